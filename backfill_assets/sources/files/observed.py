"""The columns that files have: of a few of them, and where in time they change."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import ANY_TIME
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.schema.inference import fits, kind_of_values
from backfill_assets.core.schema.types import plain_type
from backfill_assets.core.spec.columns import Column
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.sources.files import footers
from backfill_assets.sources.files.columns import own_name
from backfill_assets.sources.files.listing import SourceFile
from backfill_assets.sources.files.text_values import decoded
from backfill_assets.spark.expressions import collected
from backfill_assets.spark.storage import literal_path

LINES = 1000
"""Lines of a JSON file that are looked at."""

_STEPS = 8
"""Days that are looked at to begin with, evenly spread.

Between two that differ the day of the change is found by halving.
"""


def observed_columns(
    spark: SparkSession, spec: TableSpec, source: FilesSpec, listed: Sequence[SourceFile]
) -> list[Observed]:
    """Return the columns that files have, from the oldest day on, each time they change; and those of the newest.

    A file a day is looked at, and not every day: a change that is taken back between two looks is not seen. Of CSV
    nothing is returned: its fields have no types.
    """
    if source.format == "csv":
        return []
    zone = spec.grid.zone
    files = _newest_of_each_time(listed)
    seen: dict[int, dict[str, str]] = {}

    def look(i: int) -> dict[str, str]:
        if i not in seen:
            seen[i] = columns_of_file(spark, source.format, files[i], spec)
        return seen[i]

    last = len(files) - 1
    marks = sorted({round(last * step / _STEPS) for step in range(_STEPS + 1)}) if files else []
    for mark in marks:  # there may be one file alone
        look(mark)
    for before, after in itertools.pairwise(marks):
        _find_change(look, before, after)
    kept = [i for n, i in enumerate(sorted(seen)) if n == 0 or seen[i] != seen[sorted(seen)[n - 1]] or i == last]
    return [Observed(day_of(files[i], zone).isoformat(), seen[i]) for i in kept]


def _newest_of_each_time(listed: Sequence[SourceFile]) -> list[SourceFile]:
    """Return one file with something in it for each time that names say, in order; all files where they say nothing."""
    files = sorted((f for f in listed if f.size_bytes), key=lambda f: (f.window, f.modified_micros))
    if any(file.window == ANY_TIME for file in files):
        return files
    return list({file.window: file for file in files}.values())


def day_of(file: SourceFile, zone: ZoneInfo) -> date:
    """Return the first local day of a file's time; the day of its last change where its name says no time."""
    if file.window == ANY_TIME:
        return datetime.fromtimestamp(file.modified_micros / 1e6, tz=zone).date()
    return file.window.start_utc.astimezone(zone).date()


def _find_change(look: Callable[[int], dict[str, str]], before: int, after: int) -> None:
    while after - before > 1 and look(before) != look(after):
        middle = (before + after) // 2
        if look(middle) != look(before):
            after = middle
        else:
            before = middle
    for i in (before, after):
        look(i)


def columns_of_file(spark: SparkSession, kind: str, file: SourceFile, spec: TableSpec | None = None) -> dict[str, str]:
    """Return the columns of a file with their types; of JSON, those of its first lines.

    Args:
        spec: A JSON field whose values fit their column has that column's type.
    """
    if kind == "parquet":
        return _columns_of_parquet(spark, file, spec)
    encoding = spec.source.encoding if spec and isinstance(spec.source, FilesSpec) else None
    return columns_of_lines(lines_of(spark, file.path, encoding), spec)


def _columns_of_parquet(spark: SparkSession, file: SourceFile, spec: TableSpec | None) -> dict[str, str]:
    """Return the columns of a file, by the spec's names where it has them; one without any value is of any type."""
    found = footers.columns_of_file(spark, file)
    named = {own_name(spec, column.name) if spec else column.name: plain_type(column.kind) for column in found}
    known = spec.columns if spec else {}
    return {
        name: known[name].type if kind == "void" and name in known else kind
        for name, kind in named.items()
        if kind != "void" or name in known
    }


def columns_of_lines(rows: Sequence[Mapping[str, Any]], spec: TableSpec | None) -> dict[str, str]:
    """Return the types of the fields of JSON objects, and of the fields inside them that a spec looks into."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row.get(name) for row in rows] for name in names}
    for name in spec.columns if spec else ():
        path = spec.field_of(name) if spec else name
        if spec and spec.columns[name].path and "." in path:
            inside = [_at(row, path) for row in rows]
            values.pop(path.split(".")[0], None)
            if any(value is not _ABSENT for value in inside):
                values[path] = [None if value is _ABSENT else value for value in inside]
    known = {spec.field_of(name): column for name, column in spec.columns.items()} if spec else {}
    return {name: _kind(found, known.get(name)) for name, found in values.items()}


def _kind(found: Sequence[Any], column: Column | None) -> str:
    """Return the type of a field; of one whose column declares a format that it does not have, those words."""
    if column is not None and all(fits(value, column.type, column.written) for value in found):
        return column.type
    return f"not in `format: {column.format}`" if column is not None and column.format else kind_of_values(found)


def lines_of(spark: SparkSession, path: str, encoding: str | None = None) -> list[dict[str, Any]]:
    """Return the first lines of a JSON file that hold an object."""
    return objects_of(text_of(spark, path, encoding))


def objects_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects that lines of JSON hold; numbers with a point as Decimal."""
    return [row for row in map(_parsed, lines) if isinstance(row, dict)]


def text_of(spark: SparkSession, path: str, encoding: str | None = None) -> list[str]:
    """Return the first lines of a file, without a byte order mark."""
    lines = spark.read.text(literal_path(path)).limit(LINES)
    text = collected(lines.select(decoded(F.col("value"), encoding).alias("value")))
    return [line["value"].removeprefix("\ufeff") for line in text]


def _parsed(line: str) -> Any:
    try:
        return json.loads(line, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):  # the last two of numbers and of objects without an end
        return None


_ABSENT = object()


def _at(row: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(row, dict) or part not in row:
            return _ABSENT
        row = row[part]
    return row
