"""A look at files without reading them all: the columns of a few, and where in time they change."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.schema.inference import fits, kind_of_values, layout_of
from backfill_assets.core.calendar.layouts import ANY_TIME, Layout
from backfill_assets.core.spec.files import FilesSource
from backfill_assets.core.calendar.partitions import quoted
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError, SourceMissingError
from backfill_assets.sources.files.source import FilesBelowFolders
from backfill_assets.sources.files.listing import SourceFile, as_listed, list_files, literal_path

LINES = 1000
"""Lines of a JSON file that are looked at."""

_STEPS = 8
"""Days that are looked at to begin with, evenly spread; between two that differ the day of the change is found by halving."""


def observed_columns(source: FilesBelowFolders) -> list[Observed]:
    """Return the columns that the source's files have, from the oldest day on, each time they change; and those of the newest.

    A file a day is looked at, and not every day: a change that is taken back between two looks is not seen.
    """
    spec = source.spec
    zone = spec.grid.zone
    files = source.newest_of_each_time()
    seen: dict[int, dict[str, str]] = {}

    def look(i: int) -> dict[str, str]:
        if i not in seen:
            seen[i] = columns_of_file(source.spark, source.source.format, files[i], spec)
        return seen[i]

    last = len(files) - 1
    marks = sorted({round(last * step / _STEPS) for step in range(_STEPS + 1)}) if files else []
    for before, after in itertools.pairwise(marks):
        _find_change(look, before, after)
    kept = [i for n, i in enumerate(sorted(seen)) if n == 0 or seen[i] != seen[sorted(seen)[n - 1]] or i == last]
    return [Observed(day_of(files[i], zone).isoformat(), seen[i]) for i in kept]


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
        return {f.name: f.dataType.simpleString() for f in spark.read.parquet(literal_path(file.path)).schema.fields}
    return columns_of_lines(lines_of(spark, file), spec)


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
    types = {spec.field_of(name): column.type for name, column in spec.columns.items()} if spec else {}
    return {
        name: types[name] if name in types and all(fits(value, types[name]) for value in found) else kind_of_values(found)
        for name, found in values.items()
    }


def lines_of(spark: SparkSession, file: SourceFile) -> list[dict[str, Any]]:
    """Return the first lines of a JSON file that hold an object; numbers with a point as Decimal."""
    text = spark.read.text(literal_path(file.path)).limit(LINES).collect()
    return [row for row in (_parsed(line["value"]) for line in text) if isinstance(row, dict)]


def _parsed(line: str) -> Any:
    try:
        return json.loads(line, parse_float=Decimal)
    except ValueError:
        return None


_ABSENT = object()


def _at(row: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(row, dict) or part not in row:
            return _ABSENT
        row = row[part]
    return row


# -- a source that no spec describes yet -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """A few files of a folder.

    Args:
        days: Every day that has a folder.
        kinds: Type of each column in each file that was looked at.
        rows: Sampled rows, each with the day of its folder; instants as text, in UTC where they have a zone.
    """

    format: Literal["parquet", "json"]
    layout: str
    days: list[date]
    kinds: list[dict[str, str]]
    rows: list[tuple[date, dict[str, Any]]]


def sample_of(spark: SparkSession, root: str, *, files: int = 5) -> Sample:
    """Look at a few of the files below a folder, from the oldest day to the newest.

    Raises:
        SourceMissingError: There is no such folder.
        ConfigurationError: There are no files, no dated folders, or files of no known format.
    """
    try:
        uris = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(root)).inputFiles()
    except AnalysisException as error:
        raise SourceMissingError(
            f"The folder `{root}` is not there, or cannot be listed.", state=NOTHING_WRITTEN, remedy="Name the folder that holds the files."
        ) from error
    below = [path[len(as_listed(root, path)) :].strip("/") for path in (unquote(re.sub(r"^file:/+", "file:/", uri)) for uri in uris)]
    if not below:
        raise _unusable(f"There are no files below `{root}`.", "Name the folder that holds the dated folders, once there are files in it.")
    kind = _format_of(below)
    if kind is None:
        known = "`.parquet`, `.json`, `.jsonl` or `.ndjson`"
        raise _unusable(
            f"The files below `{root}` are not {known}: `{below[0]}`.", "Write the spec by hand; `docs/schemas.md` has an example."
        )
    found = layout_of([path.rpartition("/")[0] for path in below])
    if found is None:
        raise _unusable(
            f"No folder below `{root}` names a day: the first file is `{below[0]}`.",
            "History is read from dated folders, such as `2024/02/29` or `dt=2024-02-29`; name the folder that holds them.",
        )
    layout, days = found
    files_source = FilesSource.model_validate({"path": root, "format": kind, "layout": layout})
    listed = list_files(spark, root, files_source, Layout(files_source.layout, "UTC"), root).files
    by_day = {file.window: file for file in sorted(listed) if file.size_bytes}
    full = [by_day[window] for window in sorted(by_day)]
    if not full:
        raise _unusable(f"All files below `{root}` are empty.", "Run it again once there is something in them.")
    chosen = [full[i] for i in sorted({round((len(full) - 1) * step / max(files - 1, 1)) for step in range(files)})]
    kinds, rows = [], []
    for file in chosen:
        if kind == "json":
            lines = lines_of(spark, file)
            kinds.append(columns_of_lines(lines, None))
        else:
            kinds.append(columns_of_file(spark, kind, file))
            instants = [name for name, found in kinds[-1].items() if found in ("timestamp", "timestamp_ntz")]
            frame = spark.read.parquet(literal_path(file.path)).limit(LINES)
            lines = [row.asDict() for row in frame.withColumns({n: F.col(quoted(n)).cast("string") for n in instants}).collect()]
        rows += [(day_of(file, ZoneInfo("UTC")), row) for row in lines]
    if kind == "json":  # a file whose amounts are all whole says little of the others
        whole = columns_of_lines([row for _, row in rows], None)
        kinds = [{name: whole[name] for name in found} for found in kinds]
    return Sample(kind, layout, days, kinds, rows)


def _format_of(paths: Sequence[str]) -> Literal["parquet", "json"] | None:
    counts: dict[Literal["parquet", "json"], int] = {
        "parquet": sum(".parquet" in path.rpartition("/")[2].lower() for path in paths),
        "json": sum(re.search(r"\.(json|jsonl|ndjson)(\.\w+)?$", path.lower()) is not None for path in paths),
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def _unusable(what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(what, state=NOTHING_WRITTEN, remedy=remedy)
