"""The text of a first `defs.yaml`: each column with its type, and each guess with its reason on its line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import yaml

from backfill_assets.core.calendar.layouts import Unit
from backfill_assets.core.calendar.windows import Grain, first_day
from backfill_assets.core.schema.inference import (
    OBJECT,
    Guess,
    decides,
    event_time_of,
    instant_of,
    key_of,
    lacks_zone,
    latest_by_of,
)
from backfill_assets.core.schema.types import common_type
from backfill_assets.core.spec.columns import SPARKS_OWN, is_column_name
from backfill_assets.core.spec.encodings import NOTHING
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError
from backfill_assets.sources.files.columns import is_plain
from backfill_assets.sources.files.sample import Sample

_GRAINS = {
    Unit.HOUR: Grain.HOURLY,
    Unit.DAY: Grain.DAILY,
    Unit.MONTH: Grain.MONTHLY,
    Unit.YEAR: Grain.MONTHLY,
    Unit.ANY: Grain.DAILY,
}
_ENOUGH = 20
"""Rows from which on a sample without NULL is taken for a column without NULL."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """What a sample seems to say of a table, and cannot say for sure.

    Args:
        is_decided: Whether keys come twice in the sample, and the newest row of each is known.
        without_zone: Columns whose instants have no zone.
    """

    event_time: Guess
    row_key: Guess | None
    latest: Guess | None
    is_decided: bool
    without_zone: Sequence[str]


def draft(
    key: str, path: str, sample: Sample, grain: Grain | None = None, span: tuple[date, date] | None = None
) -> str:
    """Return the YAML of a table made of files of which a few were looked at.

    Args:
        path: The source's folder as the spec names it.
        grain: None: as the paths are.
        span: The days of the first and the last row, where paths name no time; None: of the sampled rows.

    Raises:
        ConfigurationError: The files do not make a table.
    """
    columns, optional, left_out = _columns_of(sample)
    guesses = _guesses(key, columns, left_out, sample)
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
    kinds = {kind.partition("(")[0] for kind in columns.values()}
    if sample.format == "csv" and kinds & {"bigint", "decimal", "double"}:
        lines.append(
            "    # guess: no number is a code; one with zeros in front or behind loses them, and needs `string`"
        )
    if "double" in kinds and sample.format != "parquet":
        lines.append(
            "    # guess: a `double` may be rounded; a number that must not be, of 39 digits say, needs `string`"
        )
    lines += [f"    # left out: {name}: {why}" for name, why in left_out.items()]
    first, last = span or _span_of(guesses.event_time, sample)
    grain_line = f"{grain}" if grain else f"{_GRAINS[sample.layout.unit]}  # guess: {_why(sample.layout.unit)}"
    start = first_day(first, grain or _GRAINS[sample.layout.unit])
    lines += [
        *_table_lines(guesses),
        f"  grain: {grain_line}",
        f"  start: {start}  # {_of_the_start(sample, start, first)}",
    ]
    lines += ["  time_zone: UTC  # guess: the zone whose days are meant"]
    lines += _source_lines(path, guesses, sample, max(last, start + timedelta(days=1)))
    return "".join(f"{_on_one_line(line)}\n" for line in lines)


def _guesses(key: str, columns: Mapping[str, str], left_out: Mapping[str, str], sample: Sample) -> Guesses:
    """Guess which columns say when a row happened, which row it is, and which version of it is the newest."""
    skipped = "".join(f" Skipped `{name}`: {why}." for name, why in left_out.items())
    if not any(kind in ("timestamp", "date") for kind in columns.values()):
        raise ConfigurationError(
            f"None of the columns is a timestamp or a date: {', '.join(columns) or 'there are none'}.{skipped}",
            state=NOTHING_WRITTEN,
            remedy="A table needs one that says when a row happened. Instants that are written otherwise than "
            "`2024-02-29T12:00:00Z`, as numbers for example, need a `format`: write the spec by hand. A skipped "
            "column needs another name or form in the export.",
        )
    rows = [row for _, row in sample.rows]
    event_time = event_time_of(columns, sample.rows, sample.layout.unit)
    if event_time is None:
        unit = sample.layout.unit
        if unit is Unit.ANY:
            raise ConfigurationError(
                f"Each column with instants or days has a NULL in the sample.{skipped}",
                state=NOTHING_WRITTEN,
                remedy="The one that says when a row happened must have a value in each row; write the spec by hand.",
            )
        raise ConfigurationError(
            f"No timestamp or date lies inside the {unit} that its file's path names (`layout: "
            f"{sample.layout.template}`) in at least half of the sampled rows.{skipped}",
            state=NOTHING_WRITTEN,
            remedy=f"Do the paths name {unit}s of another time zone, or of the export instead of the event, or is the "
            "event time NULL in a row? Then write the spec by hand. No column is read from a path: a day that only "
            "folders name must be a column of the export.",
        )
    others = {name: kind for name, kind in columns.items() if name != event_time.value}
    latest = latest_by_of(others)
    row_key = key_of(others, rows, key.split("/")[1], latest)
    naive = [name for name in columns if any(found.get(name) == "timestamp_ntz" for found in sample.kinds)]
    naive += [
        name
        for name, kind in columns.items()
        if sample.format != "parquet" and kind == "timestamp" and lacks_zone(row.get(name) for row in rows)
    ]
    is_decided = bool(latest and row_key and decides(latest.value, row_key.value, rows))
    return Guesses(event_time, row_key, latest, is_decided, list(dict.fromkeys(naive)))


def _span_of(event_time: Guess, sample: Sample) -> tuple[date, date]:
    """Return the days of the first and the last time that paths name; where they name none, of the sampled rows."""
    windows = sample.layout.windows
    if sample.layout.unit is not Unit.ANY:
        return windows[0].start_utc.date(), (windows[-1].end_utc - timedelta(microseconds=1)).date()
    days = [instant.date() for _, row in sample.rows if (instant := instant_of(row.get(event_time.value)))]
    return min(days), max(days)


def _why(unit: Unit) -> str:
    return "the paths name no time" if unit is Unit.ANY else f"the paths name {unit}s"


def _of_the_start(sample: Sample, start: date, first: date) -> str:
    of = "row" if sample.layout.unit is Unit.ANY else f"{sample.layout.unit} that a path names"
    return f"the earliest {of}" if start == first else f"of the partition with {first}, the earliest {of}"


def _table_lines(guesses: Guesses) -> list[str]:
    row_key, event_time, latest = guesses.row_key, guesses.event_time, guesses.latest
    lines = [
        f"  key_columns: [{_quoted(row_key.value)}]  # guess: {row_key.why}"
        if row_key
        else "  key_columns: []  # guess: no column with an id's name was unique in the sample",
        f"  event_time: {_quoted(event_time.value)}  # guess: {event_time.why}",
    ]
    if latest and row_key and guesses.is_decided:
        lines.append(f"  latest_wins_by: [{_quoted(latest.value)}]  # guess: {latest.why}")
    elif latest and row_key:
        lines.append(
            f"  # latest_wins_by: [{_quoted(latest.value)}]  # {latest.why}; no key comes twice in the sample. Without "
            "it, one that does fails its partition"
        )
    return lines


def _source_lines(path: str, guesses: Guesses, sample: Sample, complete_until: date) -> list[str]:
    layout, unit = sample.layout, sample.layout.unit
    lines = ["  source:", "    kind: files", f"    path: {_quoted(path)}", f"    format: {sample.format}"]
    if sample.csv is not None and (form := sample.csv.model_dump(exclude_defaults=True)):
        lines.append(f"    csv: {json.dumps(form)}  # guess: as the sampled files are")
    if unit is Unit.ANY:
        lines.append("    layout: flat  # guess: the paths name no time")
        lines.append(
            f"    complete_until: {complete_until}  # guess: the day of the newest row, which may still be missing some"
        )
    else:
        several = "; guess: all that `*` stands for are rows of this table" if "*" in layout.template else ""
        lines.append(f"    layout: {_quoted(layout.template)}  # from {len(layout.windows):,} {unit}s{several}")
        if unit in (Unit.YEAR, Unit.MONTH):
            lines.append(
                f"    # complete_until: {complete_until + timedelta(days=1)}  # for shorter partitions: without it the "
                f"newest {unit} is complete when a later one is there"
            )
    if layout.misfits:
        lines.append(f"    # it does not fit {len(layout.misfits):,} files, which are left out: {layout.misfits[0]}")
    if layout.gaps:
        lines.append(
            f"    # gaps: allowed  # {layout.gaps:,} of {layout.gaps + len(layout.windows):,} {unit}s have no file: "
            f"{unit}s without rows, or files that are missing?"
        )
    if guesses.without_zone:
        lines.append(f"    timestamps_without_zone: UTC  # guess: {', '.join(guesses.without_zone)} have none")
    return lines


def _columns_of(sample: Sample) -> tuple[dict[str, str], set[str], dict[str, str]]:
    """Return the columns with their types, those that some files lack, and what was left out with the reason.

    Raises:
        ConfigurationError: A column's name is not UTF-8.
    """
    columns: dict[str, str] = {}
    left_out: dict[str, str] = {}
    if odd := [name for kinds in sample.kinds for name in kinds if NOTHING in name]:
        raise ConfigurationError(
            f"The name of the column `{odd[0]}` is not UTF-8.",
            state=NOTHING_WRITTEN,
            remedy="Does the source need `encoding: windows-1252`? Then write the spec by hand; otherwise fix the "
            "export.",
        )
    for name in dict.fromkeys(name for kinds in sample.kinds for name in kinds):
        found = [kinds[name].replace("timestamp_ntz", "timestamp") for kinds in sample.kinds if name in kinds]
        kind: str | None = found[0]
        for other in found[1:]:
            kind = kind and common_type(kind, other)
        if (
            not is_column_name(name)
            or not name.isprintable()
            or name.casefold().startswith("_ba_")
            or name.casefold() in {"dt", SPARKS_OWN, *(n.casefold() for n in columns)}
        ):
            left_out[name] = "its name cannot be that of a column here (see `partition_column` for `dt`)"
        elif kind == OBJECT:
            left_out[name] = f"an object; `from: {name}.field` reads a field of it, type `string` its JSON text"
        elif kind is None:
            left_out[name] = f"its type changes from file to file: {', '.join(dict.fromkeys(found))}"
        elif not is_plain(kind):
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
    if name == guesses.event_time.value or (guesses.row_key and name == guesses.row_key.value):
        return f"{_quoted(name)}: {kind} not null"
    if is_optional:
        return f'{_quoted(name)}: {{type: "{kind}", optional: true}}  # guess: some of the sampled files lack it'
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
