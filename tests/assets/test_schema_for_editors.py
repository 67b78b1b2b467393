"""The schema with which editors complete a `defs.yaml`: printed by Dagster's own command, as `docs/schemas.md` says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

PROJECT = Path(__file__).parents[2]


def test_the_schema_for_editors():
    """Every shipped table is valid; a typo, a wrong grain and a field that is not there are not; every field is explained."""
    (command,) = [line for line in (PROJECT / "docs/schemas.md").read_text().splitlines() if "json-schema" in line]
    dg = Path(sys.executable).with_name("dg")
    words = [str(dg), *command.partition(" > ")[0].split()[1:]]
    schema = json.loads(subprocess.run(words, cwd=PROJECT, capture_output=True, check=True).stdout)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    shipped = sorted(PROJECT.glob("backfill_assets/defs/**/defs.yaml"))
    assert shipped
    for file in shipped:
        document = yaml.load(file.read_text(), Loader=yaml.BaseLoader)
        document = _with_numbers(document)
        assert list(validator.iter_errors(document)) == [], file
        for place, name, value in (
            (document["attributes"], "colums", {}),
            (document["attributes"], "grain", "dayly"),
            (document["attributes"].get("source", document["attributes"].get("changes")), "pth", "x"),
            (document["attributes"]["columns"], "extra", {"typ": "int"}),
            (document, "attribute", {}),
        ):
            kept = dict(place)
            place[name] = value
            assert list(validator.iter_errors(document)), (file, name)
            place.clear()
            place.update(kept)
    unexplained = list(_unexplained("", schema["properties"]["attributes"]))
    assert unexplained == []


def _unexplained(path: str, part: Any) -> Iterator[str]:
    """Yield the path of each field that has no description."""
    for shape in (part, *part.get("anyOf", []), *part.get("oneOf", [])):
        for name, field in shape.get("properties", {}).items():
            if not field.get("description") and "const" not in field:
                yield f"{path}.{name}"
            yield from _unexplained(f"{path}.{name}", field)
        for inner in (shape.get("items"), shape.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from _unexplained(path, inner)


def _with_numbers(value: Any) -> Any:
    """Read numbers and truth as YAML does, and dates as the text that an editor sees."""
    if isinstance(value, dict):
        return {name: _with_numbers(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [_with_numbers(inside) for inside in value]
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:  # quoted in the file, as a cron expression is
        return value
    return found if isinstance(found, bool | int | float) else value
