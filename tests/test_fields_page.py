"""`docs/fields.md` has every field that a table's YAML may have, as the spec itself describes it.

`python -m tests.test_fields_page` writes it anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backfill_assets.assets.component import yaml_schema

PAGE = Path(__file__).parents[1] / "docs" / "fields.md"
TEMPLATE = r"\{\{"
"""The pattern of a text that Dagster fills in; it may stand for any value."""

BEGINS = """# Every field of a table

What may stand under `attributes:` of a `defs.yaml`. Made from the specification itself, so it is complete; `dg utils inspect-component
backfill_assets.LakehouseTable` prints the same, `backfill-assets json-schema` gives it to an editor. What each is good for is told in
the pages: [sources](sources.md), [databases](databases.md), [the live stream](live.md), [guards](guards.md), [once-flows](once.md),
[versions](versions.md), [launching](launching.md). A value may be a template of Dagster too: `"{{ env('SHOP_FOLDER') }}"`.
"""


def page() -> str:
    schema = yaml_schema()
    table, kinds = schema["properties"]["attributes"], schema["$defs"]
    lines = [BEGINS]
    for title, fields in sections(table, kinds):
        lines += [f"## {title}\n", "| field | of type | if absent | meaning |", "|---|---|---|---|"]
        needed = fields.get("required", [])
        lines += [f"| `{name}` | {cells(name, one, kinds, needed)} |" for name, one in fields["properties"].items()]
        lines.append("")
    return "\n".join(lines)


def sections(table: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The table's own fields; then those of each mapping in it, in the order in which they are met."""
    yield "Of the table", table
    for name, field in table["properties"].items():
        yield from below(name, field, kinds)


def below(path: str, field: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in alternatives(field, kinds):
        if "properties" in one:
            kind = one["properties"].get("kind", {}).get("const")
            yield f"`{path}`" + (f", `kind: {kind}`" if kind else ""), one
            for name, inner in one["properties"].items():
                yield from below(f"{path}.{name}", inner, kinds)
        if "items" in one:
            yield from below(f"{path}[]", one["items"], kinds)
        if isinstance(one.get("additionalProperties"), dict):
            yield from below(f"{path}.NAME", one["additionalProperties"], kinds)


def alternatives(field: Mapping[str, Any], kinds: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a field may hold, with references followed."""
    if "$ref" in field:
        return alternatives(kinds[field["$ref"].rpartition("/")[2]], kinds)
    several = field.get("anyOf") or field.get("oneOf")
    return [one for each in several for one in alternatives(each, kinds)] if several else [field]


def cells(name: str, field: Mapping[str, Any], kinds: Mapping[str, Any], needed: list[str]) -> str:
    held = [one for one in alternatives(field, kinds) if one.get("type") != "null" and one.get("pattern") != TEMPLATE]
    types = dict.fromkeys(in_words(one) for one in held)
    absent = "needed" if name in needed else default_of(field)
    said = field.get("description") or held[0].get("description", "")
    return " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in (", or ".join(types), absent, said))


def in_words(one: Mapping[str, Any]) -> str:
    if "enum" in one:
        return ", ".join(f"`{value}`" for value in one["enum"])
    if "const" in one:
        return f"`{one['const']}`"
    kind = one.get("type", "any")
    named = {"object": "mapping", "array": "list", "integer": "whole number", "string": "text", "boolean": "yes or no"}
    return one.get("format") or named.get(kind, kind)


def default_of(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value in (None, "", []) or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def test_every_field_is_on_the_page():
    """The page is what the spec says today."""
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.test_fields_page"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} is written.\n")
