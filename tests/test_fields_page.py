"""`docs/fields.md` has every field that a table's YAML may have, as the spec itself describes it.

`python -m tests.test_fields_page` writes it anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backfill_assets.core.spec.no_effect import NO_EFFECT
from backfill_assets.core.spec.table import TableSpec

PAGE = Path(__file__).parents[1] / "docs" / "fields.md"
BEGINS = """# Every field of a table

What may stand under `attributes:` of a `defs.yaml`. Made from the specification itself, so it is complete. `dg utils inspect-component
backfill_assets.LakehouseTable` prints the same, and [an editor](schemas.md#help-in-the-editor) can show it. What each is good for is told in
the pages: [sources](sources.md), [databases](databases.md), [the live stream](live.md), [guards](guards.md), [once-flows](once.md),
[versions](versions.md), [launching](launching.md). A spec that states a field which has no effect is refused when it loads: "Refused"
says where that is. A value may be a template of Dagster too: `"{{ env('SHOP_FOLDER') }}"`.
"""


def page() -> str:
    table = TableSpec.model_json_schema()
    kinds = table["$defs"]
    lines = [BEGINS]
    for path, part in sections(table, kinds):
        lines += [f"## {title_of(path)}\n", "| field | of type | if absent | meaning |", "|---|---|---|---|"]
        needed = part.get("required", [])
        for name, one in part["properties"].items():
            lines.append(f"| `{name}` | {cells(name, one, kinds, needed)}{useless(within(path, name))} |")
        lines.append("")
    return "\n".join(lines)


def fields() -> list[str]:
    """The path of every field that a table's YAML may have: `source(files).csv.quote`, `columns.NAME.type`."""
    table = TableSpec.model_json_schema()
    parts = sections(table, table["$defs"])
    return [within(path, name) for path, part in parts for name in part["properties"]]


def within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def title_of(path: str) -> str:
    """The heading of a part: a kind of source is named where the part is that source."""
    kind = path[:-1].partition("(")[2] if path.endswith(")") else ""
    shown = re.sub(r"\(\w+\)", "", path)
    return (f"`{shown}`" if path else "Of the table") + (f", `kind: {kind}`" if kind else "")


def useless(field: str) -> str:
    """The modes in which a spec may not state a field, in words."""
    return "".join(f" Refused {row.mode}." for row in NO_EFFECT if row.field == field)


def sections(table: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The table's own fields; then those of each mapping in it, by its path, in the order in which they are met."""
    yield "", table
    for name, field in table["properties"].items():
        yield from below(name, field, kinds)


def below(path: str, field: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in alternatives(field, kinds):
        if "properties" in one:
            kind = one["properties"].get("kind", {}).get("const")
            here = f"{path}({kind})" if kind else path
            yield here, one
            for name, inner in one["properties"].items():
                yield from below(f"{here}.{name}", inner, kinds)
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
    held = [one for one in alternatives(field, kinds) if one.get("type") != "null"]
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
