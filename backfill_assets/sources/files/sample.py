"""A first look at files that no spec describes yet: their form, their layout, and a few of their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import Layout, Unit
from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.schema.first_layout import STRAY, FirstLayout, first_layout
from backfill_assets.core.schema.types import plain_type
from backfill_assets.core.spec.files import CsvForm, FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import column_list, quoted
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError
from backfill_assets.sources.files import footers
from backfill_assets.sources.files.columns import is_plain
from backfill_assets.sources.files.csv_sample import csv_form, csv_rows
from backfill_assets.sources.files.listing import SourceFile, below_root, every_file, list_files, refuse_table_above
from backfill_assets.sources.files.observed import LINES, columns_of_lines, objects_of, text_of
from backfill_assets.sources.files.odd_columns import ODD, as_text, read_as
from backfill_assets.sources.files.source import FORMATS
from backfill_assets.sources.files.text_values import packed_as
from backfill_assets.spark.expressions import collected
from backfill_assets.spark.storage import literal_path

_FILES_OF_ONE_TIME = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """A few files of a folder.

    Args:
        csv: How records are written, of CSV.
        kinds: Type of each column in each file that was looked at.
        rows: Sampled rows, each with the time that its file's path names; instants as text, in UTC where they have a
            zone.
    """

    format: Literal["parquet", "json", "csv"]
    csv: CsvForm | None
    layout: FirstLayout
    kinds: list[dict[str, str]]
    rows: list[tuple[Window, dict[str, Any]]]


def sample_of(spark: SparkSession, key: str, root: str, *, files: int = 5) -> Sample:
    """Look at a few of the files below a folder, from the oldest to the newest.

    Raises:
        SourceMissingError: There is no such folder.
        TableFolderError: The folder is a table.
        ConfigurationError: There are no files, or files of no known format, or packed ones whose name does not say so.
    """
    refuse_table_above(spark, root)
    found, _ = every_file(spark, key, root)
    below = [below_root(root, file.path) for file in found]
    if not below:
        raise _unusable(
            f"There are no files below `{root}`.",
            "Name the folder that holds the dated folders, once there are files in it.",
        )
    if below == [""]:
        raise _unusable(f"`{root}` is a file.", "Name the folder that holds it.")
    kind = _format_of(below)
    if kind is None:
        known = "`.parquet`, `.json`, `.jsonl`, `.ndjson`, `.csv` or `.tsv`"
        raise _unusable(
            f"The files below `{root}` are not {known}: `{below[0]}`.",
            "Write the spec by hand; `docs/schemas.md` has an example.",
        )
    layout = first_layout(below)
    if len(layout.misfits) > STRAY * len(below):
        raise _unusable(
            f"The best layout, `{layout.template}`, does not fit {len(layout.misfits):,} of {len(below):,} files, the "
            f"first of them `{layout.misfits[0]}`.",
            "Are several exports below this folder? Name the folder of one of them, or write the spec by hand.",
        )
    until = {"complete_until": "9999-01-01"} if layout.unit is Unit.ANY else {}
    spec = FilesSpec.model_validate({"path": root, "format": kind, "layout": layout.template, **until})
    listed = list_files(spark, key, spec, Layout(spec.layout, "UTC"), root).files
    full: dict[Any, list[SourceFile]] = {}
    for file in sorted(file for file in listed if file.size_bytes):
        full.setdefault(file.path if layout.unit is Unit.ANY else file.window, []).append(file)
    if not full:
        raise _unusable(f"All files below `{root}` are empty.", "Run it again once there is something in them.")
    groups = list(full.values())
    marks = sorted({round((len(groups) - 1) * step / max(files - 1, 1)) for step in range(files)})
    chosen = [file for mark in marks for file in groups[mark][:_FILES_OF_ONE_TIME]]  # keys may come again beside
    if kind == "parquet":
        kinds, rows = _looked_at_parquet(spark, chosen)
        return Sample(kind, None, layout, kinds, rows)
    texts = [(file, text_of(spark, file.path)) for file in chosen]
    for file, lines in texts:
        if how := packed_as(lines[0]) if lines else None:
            raise _unusable(f"`{file.path}` is {how.partition(': ')[0]}.", f"{how.partition(': ')[2].capitalize()}.")
    form = csv_form(next((lines for _, lines in texts if any(map(str.strip, lines))), [])) if kind == "csv" else None
    tables = [(file.window, csv_rows(lines, form) if form else objects_of(lines)) for file, lines in texts]
    rows = [(window, row) for window, table in tables for row in table]
    # a file whose amounts are all whole says little of the others
    whole = columns_of_lines([row for _, row in rows], None)
    kinds = [{name: whole[name] for row in table for name in row} for _, table in tables if table]
    return Sample(kind, form, layout, kinds, rows)


def days_of(spark: SparkSession, spec: TableSpec, source: FilesSpec, root: str) -> tuple[date, date] | None:
    """Return the UTC day of the first row and of the last one in all of the files.

    Rows that cannot be read are left out.
    """
    layout = Layout(source.layout, spec.time_zone)
    files = [file for file in list_files(spark, spec.key, source, layout, root).files if file.size_bytes]
    form = FORMATS[source.format](spark, spec, source)
    form.look_at(files)
    rows = form.rows(files)
    at = F.col(quoted(spec.event_time))
    (found,) = rows.agg(F.min(at).cast("date").alias("first"), F.max(at).cast("date").alias("last")).collect()
    return None if found["first"] is None else (found["first"], found["last"])


def _looked_at_parquet(
    spark: SparkSession, files: Sequence[SourceFile]
) -> tuple[list[dict[str, str]], list[tuple[Window, dict[str, Any]]]]:
    """Return the types of the columns of each file, and the first rows of all of them."""
    kinds: list[dict[str, str]] = []
    rows: list[tuple[Window, dict[str, Any]]] = []
    for file in files:
        found = {column.name: column.kind for column in footers.columns_of_file(spark, file) if column.kind != "void"}
        kinds.append({name: plain_type(kind) for name, kind in found.items()})
        read = {name: kind for name, kind in found.items() if kind in ODD or is_plain(plain_type(kind))}
        frame = spark.read.schema(column_list(read_as(read))).parquet(literal_path(file.path)).limit(LINES)
        rows += [(file.window, row.asDict()) for row in collected(as_text(frame, read))]
    return kinds, rows


def _format_of(paths: Sequence[str]) -> Literal["parquet", "json", "csv"] | None:
    counts: dict[Literal["parquet", "json", "csv"], int] = {
        "parquet": sum(".parquet" in path.rpartition("/")[2].lower() for path in paths),
        "json": sum(re.search(r"\.(json|jsonl|ndjson)(\.\w+)?$", path.lower()) is not None for path in paths),
        "csv": sum(re.search(r"\.(csv|tsv)(\.\w+)?$", path.lower()) is not None for path in paths),
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def _unusable(what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(what, state=NOTHING_WRITTEN, remedy=remedy)
