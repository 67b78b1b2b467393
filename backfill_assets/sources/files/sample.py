"""A first look at files that no spec describes yet: their form, their layout, and a few of their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.layouts import Layout
from backfill_assets.core.schema.inference import layout_of
from backfill_assets.core.schema.types import decimal_size, plain_type
from backfill_assets.core.spec.columns import PRIMITIVE_TYPES
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.sql import column_list
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError, SourceMissingError
from backfill_assets.sources.files import footers
from backfill_assets.sources.files.listing import SourceFile, as_listed, list_files, literal_path
from backfill_assets.sources.files.observed import LINES, columns_of_file, columns_of_lines, day_of, lines_of
from backfill_assets.sources.files.odd_columns import ODD, as_text, read_as


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
    below = _paths_below(spark, root)
    kind = _format_of(below)
    if kind is None:
        known = "`.parquet`, `.json`, `.jsonl` or `.ndjson`"
        raise _unusable(
            f"The files below `{root}` are not {known}: `{below[0]}`.",
            "Write the spec by hand; `docs/schemas.md` has an example.",
        )
    found = layout_of([path.rpartition("/")[0] for path in below])
    if found is None:
        raise _unusable(
            f"No folder below `{root}` names a day: the first file is `{below[0]}`.",
            "History is read from dated folders, such as `2024/02/29` or `dt=2024-02-29`; name the folder that "
            "holds them.",
        )
    layout, days = found
    files_spec = FilesSpec.model_validate({"path": root, "format": kind, "layout": layout})
    listed = list_files(spark, root, files_spec, Layout(files_spec.layout, "UTC"), root).files
    by_day = {file.window: file for file in sorted(listed) if file.size_bytes}
    full = [by_day[window] for window in sorted(by_day)]
    if not full:
        raise _unusable(f"All files below `{root}` are empty.", "Run it again once there is something in them.")
    chosen = [full[i] for i in sorted({round((len(full) - 1) * step / max(files - 1, 1)) for step in range(files)})]
    kinds, rows = _looked_at(spark, kind, chosen)
    return Sample(kind, layout, days, kinds, rows)


def _paths_below(spark: SparkSession, root: str) -> list[str]:
    """Return the paths of all files below a folder, without the folder itself."""
    try:
        below = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(root))
        uris = below.inputFiles()
    except AnalysisException as error:
        raise SourceMissingError(
            f"The folder `{root}` is not there, or cannot be listed.",
            state=NOTHING_WRITTEN,
            remedy="Name the folder that holds the files.",
        ) from error
    paths = [unquote(re.sub(r"^file:/+", "file:/", uri)) for uri in uris]
    if not paths:
        raise _unusable(
            f"There are no files below `{root}`.",
            "Name the folder that holds the dated folders, once there are files in it.",
        )
    return [path[len(as_listed(root, path)) :].strip("/") for path in paths]


def _looked_at(
    spark: SparkSession, kind: str, files: Sequence[SourceFile]
) -> tuple[list[dict[str, str]], list[tuple[date, dict[str, Any]]]]:
    """Return the types of the columns of each file, and the first rows of all of them."""
    kinds: list[dict[str, str]] = []
    rows: list[tuple[date, dict[str, Any]]] = []
    for file in files:
        if kind == "json":
            lines = lines_of(spark, file)
            kinds.append(columns_of_lines(lines, None))
        else:
            kinds.append(columns_of_file(spark, kind, file))
            read = {column.name: column.kind for column in footers.columns_of_file(spark, file)}
            read = {name: found if found in ODD else plain_type(found) for name, found in read.items()}
            read = {name: found for name, found in read.items() if found in ODD or _is_plain(found)}
            frame = spark.read.schema(column_list(read_as(read))).parquet(literal_path(file.path)).limit(LINES)
            lines = [row.asDict() for row in as_text(frame, read).collect()]
        rows += [(day_of(file, ZoneInfo("UTC")), row) for row in lines]
    if kind == "json":  # a file whose amounts are all whole says little of the others
        whole = columns_of_lines([row for _, row in rows], None)
        kinds = [{name: whole[name] for name in found} for found in kinds]
    return kinds, rows


def _is_plain(kind: str) -> bool:
    return kind in PRIMITIVE_TYPES or (decimal_size(kind) or (39, 0))[0] <= 38


def _format_of(paths: Sequence[str]) -> Literal["parquet", "json"] | None:
    counts: dict[Literal["parquet", "json"], int] = {
        "parquet": sum(".parquet" in path.rpartition("/")[2].lower() for path in paths),
        "json": sum(re.search(r"\.(json|jsonl|ndjson)(\.\w+)?$", path.lower()) is not None for path in paths),
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def _unusable(what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(what, state=NOTHING_WRITTEN, remedy=remedy)
