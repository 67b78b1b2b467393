"""`backfill-assets init`: a first `defs.yaml` from a look at a few files. What was guessed says so on its line."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.schema.inference import OBJECT, Guess, event_time_of, key_of, lacks_zone, latest_by_of
from backfill_assets.core.schema.compare import common_type
from backfill_assets.core.spec.table import PRIMITIVE_TYPES, TableSpec, is_column_name
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.sources.files.sample import Sample

NOTHING_CHANGED = "Nothing was written."
_ENOUGH = 20
"""Rows from which on a sample without NULL is taken for a column without NULL."""


def place_for(key: str, output: str | None) -> Path:
    """Return where the first `defs.yaml` of a table belongs.

    Raises:
        ConfigurationError: There is a file already, or no project around the working directory.
    """
    path = Path(output) if output else _defs_folder() / key / "defs.yaml"
    if path.exists():
        raise ConfigurationError(
            f"`{path}` is there already.",
            state="It was left as it is.",
            remedy=f"`backfill-assets schema {key}` proposes changes of it; `--output` names another file.",
        )
    return path


def _defs_folder() -> Path:
    """Return the folder of the project's definitions, as `[tool.dg.project]` says."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("dg", {}).get("project") if file.exists() else None
        if project:
            module = project.get("defs_module") or f"{project['root_module']}.defs"
            below = module.replace(".", "/")
            return next((place for place in (folder / below, folder / "src" / below) if place.is_dir()), folder / below)
    raise ConfigurationError(
        "There is no Dagster project here: no `pyproject.toml` with `[tool.dg.project]` in this folder or above it.",
        state=NOTHING_CHANGED,
        remedy="Run it inside the project, or name a file with `--output`.",
    )


def first_spec(key: str, path: str) -> str:
    """Return the YAML of a table made of the files below a folder.

    Raises:
        SourceMissingError: There is no such folder.
        ConfigurationError: The files do not make a table, or the key is none.
    """
    from backfill_assets.sources.files.sample import sample_of

    if not re.fullmatch(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*", key):
        raise ConfigurationError(
            f"`{key}` is no key of a table.",
            state=NOTHING_CHANGED,
            remedy="A key is `layer/name`, both of small letters, digits and `_`: for example `bronze/orders`.",
        )
    lakehouse = Lakehouse()
    root, written = _root_of(lakehouse, path)
    text = _yaml(key, written, sample_of(lakehouse.spark, root))
    try:
        TableSpec.model_validate(yaml.safe_load(text)["attributes"])
    except ValidationError as error:
        raise ConfigurationError(
            f"`{key}`: what was found makes no table: {error.errors()[0]['msg']}.",
            state=NOTHING_CHANGED,
            remedy="Write the spec by hand.",
        ) from error
    return text


def _root_of(lakehouse: Lakehouse, path: str) -> tuple[str, str]:
    """Return a source's folder, and how a spec names it: below `landing/`, or absolute."""
    root, landing = lakehouse.landing_path(path), lakehouse.landing_path("")
    if "://" not in root and not Path(root).is_dir() and Path(path).is_dir():
        root = os.path.abspath(path)  # noqa: PTH100 (a str, and no links resolved)
    return root, root[len(landing) :].strip("/") if root.startswith(landing) and root != landing else root


def _yaml(key: str, path: str, sample: Sample) -> str:
    columns, optional, left_out = _columns_of(sample)
    if not any(kind in ("timestamp", "date") for kind in columns.values()):
        raise ConfigurationError(
            f"None of the columns is a timestamp or a date: {', '.join(columns) or 'there are none'}.",
            state=NOTHING_CHANGED,
            remedy="A table needs one that says when a row happened. Instants are read as `2024-02-29T12:00:00Z`; numbers are not.",
        )
    rows = [row for _, row in sample.rows]
    event_time = event_time_of(columns, sample.rows)
    if event_time is None:
        raise ConfigurationError(
            "No timestamp or date lies inside the day of its folder in at least half of the sampled rows.",
            state=NOTHING_CHANGED,
            remedy="Are the folders days of another time zone, or of the export instead of the event? Then write the spec by hand.",
        )
    latest = latest_by_of({name: kind for name, kind in columns.items() if name != event_time.value})
    row_key = key_of({name: kind for name, kind in columns.items() if name != event_time.value}, rows, key.split("/")[1], latest)
    naive = [name for name in columns if any(found.get(name) == "timestamp_ntz" for found in sample.kinds)]
    naive += [n for n, kind in columns.items() if sample.format == "json" and kind == "timestamp" and lacks_zone(r.get(n) for r in rows)]
    span = (sample.days[-1] - sample.days[0]).days + 1
    gaps = span - len(sample.days)
    lines = [
        f"# First draft of `backfill-assets init`, from {len(rows):,} rows of {len(sample.kinds)} files. Look at every guess.",
        "type: backfill_assets.LakehouseTable",
        "attributes:",
        f"  key: {key}",
        "  columns:",
    ]
    lines += [f"    {_column(name, kind, rows, event_time, row_key, is_optional=name in optional)}" for name, kind in columns.items()]
    lines += [f"    # left out: {name}: {why}" for name, why in left_out.items()]
    lines += [
        f"  key_columns: [{_quoted(row_key.value)}]  # guess: {row_key.why}"
        if row_key
        else "  key_columns: []  # guess: no column with an id's name was unique in the sample",
        f"  event_time: {_quoted(event_time.value)}  # guess: {event_time.why}",
    ]
    if latest and row_key:
        lines.append(f"  latest_wins_by: [{_quoted(latest.value)}]  # guess: {latest.why}")
    lines += [
        "  grain: daily  # guess: as the folders are",
        f"  start: {sample.days[0].isoformat()}  # the earliest folder",
        "  time_zone: UTC  # guess: the zone whose days the folders are",
        "  source:",
        "    kind: files",
        f"    path: {_quoted(path)}",
        f"    format: {sample.format}",
        f"    layout: {_quoted(sample.layout)}  # from {len(sample.days):,} folders",
    ]
    if gaps:
        lines.append(f"    # gaps: allowed  # {gaps:,} of {span:,} days have no folder: days without rows, or days that are missing?")
    if naive:
        lines.append(f"    timestamps_without_zone: UTC  # guess: {', '.join(dict.fromkeys(naive))} have none")
    return "\n".join(lines) + "\n"


def _columns_of(sample: Sample) -> tuple[dict[str, str], set[str], dict[str, str]]:
    """Return the columns with their types, those that some files lack, and what was left out with the reason."""
    columns: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys(name for kinds in sample.kinds for name in kinds):
        found = [kinds[name].replace("timestamp_ntz", "timestamp") for kinds in sample.kinds if name in kinds]
        kind: str | None = found[0]
        for other in found[1:]:
            kind = kind and common_type(kind, other)
        if not is_column_name(name) or name.startswith("_ba_") or name.casefold() in {"dt", *(n.casefold() for n in columns)}:
            left_out[name] = "its name cannot be that of a column here (see `partition_column` for `dt`)"
        elif kind == OBJECT:
            left_out[name] = f"an object; `from: {name}.field` reads a field of it, type `string` its JSON text"
        elif kind is None:
            left_out[name] = f"its type changes from file to file: {', '.join(dict.fromkeys(found))}"
        elif kind not in PRIMITIVE_TYPES and not kind.startswith("decimal("):
            left_out[name] = f"`{kind}` is not a plain value"
        else:
            columns[name] = kind
    return columns, {name for name in columns if any(name not in kinds for kinds in sample.kinds)}, left_out


def _column(
    name: str, kind: str, rows: list[Mapping[str, Any]] | list[dict[str, Any]], event_time: Guess, key: Guess | None, *, is_optional: bool
) -> str:
    if is_optional:
        return f'{_quoted(name)}: {{type: "{kind}", optional: true}}  # guess: some of the sampled files lack it'
    if name == event_time.value or (key and name == key.value):
        return f"{_quoted(name)}: {kind} not null"
    if len(rows) >= _ENOUGH and all(row.get(name) is not None for row in rows):
        return f"{_quoted(name)}: {kind} not null  # guess: no NULL in {len(rows):,} sampled rows"
    return f"{_quoted(name)}: {kind}"


def _quoted(text: str) -> str:
    """Return a text as YAML reads it back."""
    return text if re.fullmatch(r"[A-Za-z_/][\w/.-]*", text) and yaml.safe_load(text) == text else json.dumps(text, ensure_ascii=False)
