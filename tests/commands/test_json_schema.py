"""`json-schema`: what an editor is told of a table in YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from click.testing import CliRunner

from backfill_assets.cli import main


def test_the_schema_for_editors(tmp_path):
    """Every shipped table is valid; a typo, a wrong grain and a field that is not there are not; every field is explained."""
    schema = json.loads(CliRunner().invoke(main, ["json-schema"]).stdout)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    shipped = sorted(Path(__file__).parents[2].glob("backfill_assets/defs/**/defs.yaml"))
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
    unexplained = [
        f"{model}.{name}"
        for model, part in [("TableSpec", schema["properties"]["attributes"]), *schema["$defs"].items()]
        for shape in [part, *part.get("anyOf", [])]
        for name, field in shape.get("properties", {}).items()
        if not field.get("description")
        and "const" not in field
        and not schema["$defs"].get(field.get("$ref", "")[8:], {}).get("description")
    ]
    assert unexplained == []


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
