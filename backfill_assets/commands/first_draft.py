"""The text of a first `defs.yaml`: each column with its type, and each guess with its reason on its line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from backfill_assets.core.schema.inference import OBJECT, Guess, event_time_of, key_of, lacks_zone, latest_by_of
from backfill_assets.core.schema.types import common_type
from backfill_assets.core.spec.columns import PRIMITIVE_TYPES, SPARKS_OWN, is_column_name
from backfill_assets.errors import ConfigurationError
from backfill_assets.sources.files.sample import Sample

NOTHING_CHANGED = "Nothing was written."
_ENOUGH = 20
"""Rows from which on a sample without NULL is taken for a column without NULL."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """What a sample seems to say of a table, and cannot say for sure.

    Args:
        without_zone: Columns whose instants have no zone.
    """

    event_time: Guess
    row_key: Guess | None
    latest: Guess | None
    without_zone: Sequence[str]


def draft(key: str, path: str, sample: Sample) -> str:
    """Return the YAML of a table made of files of which a few were looked at.

    Args:
        path: The source's folder as the spec names it.

    Raises:
        ConfigurationError: The files do not make a table.
    """
    columns, optional, left_out = _columns_of(sample)
    guesses = _guesses(key, columns, sample)
    rows = [row for _, row in sample.rows]
    lines = [
        f"# First draft of `backfill-assets init`, from {len(rows):,} rows of {len(sample.kinds)} files. Look at "
        "every guess.",
        "type: backfill_assets.LakehouseTable",
        "attributes:",
        f"  key: {key}",
        "  columns:",
    ]
    lines += [f"    {_column(n, kind, rows, guesses, is_optional=n in optional)}" for n, kind in columns.items()]
    lines += [f"    # left out: {name}: {why}" for name, why in left_out.items()]
    lines += [*_table_lines(guesses, sample), *_source_lines(path, guesses, sample)]
    return "".join(f"{_on_one_line(line)}\n" for line in lines)


def _guesses(key: str, columns: Mapping[str, str], sample: Sample) -> Guesses:
    """Guess which columns say when a row happened, which row it is, and which version of it is the newest."""
    if not any(kind in ("timestamp", "date") for kind in columns.values()):
        raise ConfigurationError(
            f"None of the columns is a timestamp or a date: {', '.join(columns) or 'there are none'}.",
            state=NOTHING_CHANGED,
            remedy="A table needs one that says when a row happened. Instants are read as `2024-02-29T12:00:00Z`; "
            "numbers are not.",
        )
    rows = [row for _, row in sample.rows]
    event_time = event_time_of(columns, sample.rows)
    if event_time is None:
        raise ConfigurationError(
            "No timestamp or date lies inside the day of its folder in at least half of the sampled rows.",
            state=NOTHING_CHANGED,
            remedy="Are the folders days of another time zone, or of the export instead of the event? Then write "
            "the spec by hand.",
        )
    others = {name: kind for name, kind in columns.items() if name != event_time.value}
    latest = latest_by_of(others)
    row_key = key_of(others, rows, key.split("/")[1], latest)
    naive = [name for name in columns if any(found.get(name) == "timestamp_ntz" for found in sample.kinds)]
    naive += [
        name
        for name, kind in columns.items()
        if sample.format == "json" and kind == "timestamp" and lacks_zone(row.get(name) for row in rows)
    ]
    return Guesses(event_time, row_key, latest, list(dict.fromkeys(naive)))


def _table_lines(guesses: Guesses, sample: Sample) -> list[str]:
    row_key, event_time, latest = guesses.row_key, guesses.event_time, guesses.latest
    lines = [
        f"  key_columns: [{_quoted(row_key.value)}]  # guess: {row_key.why}"
        if row_key
        else "  key_columns: []  # guess: no column with an id's name was unique in the sample",
        f"  event_time: {_quoted(event_time.value)}  # guess: {event_time.why}",
    ]
    if latest and row_key:
        lines.append(f"  latest_wins_by: [{_quoted(latest.value)}]  # guess: {latest.why}")
    return [
        *lines,
        "  grain: daily  # guess: as the folders are",
        f"  start: {sample.days[0].isoformat()}  # the earliest folder",
        "  time_zone: UTC  # guess: the zone whose days the folders are",
    ]


def _source_lines(path: str, guesses: Guesses, sample: Sample) -> list[str]:
    span = (sample.days[-1] - sample.days[0]).days + 1
    gaps = span - len(sample.days)
    lines = [
        "  source:",
        "    kind: files",
        f"    path: {_quoted(path)}",
        f"    format: {sample.format}",
        f"    layout: {_quoted(sample.layout)}  # from {len(sample.days):,} folders",
    ]
    if gaps:
        lines.append(
            f"    # gaps: allowed  # {gaps:,} of {span:,} days have no folder: days without rows, or days that are "
            "missing?"
        )
    if guesses.without_zone:
        lines.append(f"    timestamps_without_zone: UTC  # guess: {', '.join(guesses.without_zone)} have none")
    return lines


def _columns_of(sample: Sample) -> tuple[dict[str, str], set[str], dict[str, str]]:
    """Return the columns with their types, those that some files lack, and what was left out with the reason."""
    columns: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys(name for kinds in sample.kinds for name in kinds):
        found = [kinds[name].replace("timestamp_ntz", "timestamp") for kinds in sample.kinds if name in kinds]
        kind: str | None = found[0]
        for other in found[1:]:
            kind = kind and common_type(kind, other)
        if (
            not is_column_name(name)
            or name.startswith("_ba_")
            or name.casefold() in {"dt", SPARKS_OWN, *(n.casefold() for n in columns)}
        ):
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
    name: str,
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    guesses: Guesses,
    *,
    is_optional: bool,
) -> str:
    if is_optional:
        return f'{_quoted(name)}: {{type: "{kind}", optional: true}}  # guess: some of the sampled files lack it'
    if name == guesses.event_time.value or (guesses.row_key and name == guesses.row_key.value):
        return f"{_quoted(name)}: {kind} not null"
    if len(rows) >= _ENOUGH and all(row.get(name) is not None for row in rows):
        return f"{_quoted(name)}: {kind} not null  # guess: no NULL in {len(rows):,} sampled rows"
    return f"{_quoted(name)}: {kind}"


def _on_one_line(line: str) -> str:
    """Return a line that stays one, whatever the names in its comment are: a second one would be read as YAML."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _quoted(text: str) -> str:
    """Return a text as YAML reads it back."""
    return (
        text
        if re.fullmatch(r"[A-Za-z_/][\w/.-]*", text) and yaml.safe_load(text) == text
        else json.dumps(text, ensure_ascii=False)
    )
