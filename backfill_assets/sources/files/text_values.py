"""Values that are read as text first and converted after, so that one that does not fit its type is seen and named.

Spark's own conversion would round a decimal and take a time without a zone for UTC, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.sources.files.listing import SourceFile, paths_of

_HAS_ZONE = r"\d{1,2}:\d{2}.*(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)$"
_PLAIN_DATE = r"^\s*\d{4,}-\d{1,2}-\d{1,2}\s*$"  # a cast takes `2024` for a day, and cuts a time off
_STARTS_WITH_DATE = r"^\s*\d{4,}-\d{1,2}-\d{1,2}"
_PREVIEW = 80
"""Characters of a line or value that a message shows."""


def typed(spec: TableSpec, raw: DataFrame, zone: str | None) -> DataFrame:
    """Convert text to the spec's types; `_ba_problem` says what could not be.

    Args:
        raw: The spec's columns as text, and `_ba_broken`, which says why a row is none; columns of other names are
            kept.
        zone: Zone of timestamps that have none; without it they cannot be read.
    """
    fields = {name: F.col(quoted(name)) for name in spec.columns}
    values = {name: _converted(fields[name], column.type, zone) for name, column in spec.columns.items()}
    problem = F.coalesce(
        F.col("_ba_broken"),
        *(
            F.when(
                fields[name].isNotNull() & values[name].isNull(),
                F.concat(F.lit(f"`{name}` is no {_wanted(column.type, zone)}: "), preview(fields[name])),
            )
            for name, column in spec.columns.items()
        ),
    )
    others = [F.col(quoted(name)) for name in raw.columns if name not in fields and name != "_ba_broken"]
    return raw.select(*others, *(value.alias(name) for name, value in values.items()), problem.alias("_ba_problem"))


def numbered_lines(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """Return every line of files as `_ba_text`, with `_ba_file`, as Spark names it, and `_ba_line`, from 1."""
    whole = spark.read.text(paths_of(files), wholetext=True)
    text = F.regexp_replace("value", "^\ufeff", "")  # which Spark leaves out of lines
    each = whole.select(
        F.col("_metadata.file_path").alias("_ba_file"),
        F.posexplode(F.split(text, "\r\n|\n|\r")).alias("at", "_ba_text"),
    )
    return each.select("_ba_file", (F.col("at") + 1).alias("_ba_line"), "_ba_text")


def is_row(line: str) -> Column:
    """Say whether a line is more than white space."""
    return F.col(line).rlike(r"\S")


def preview(text: Column) -> Column:
    """Return the beginning of a text, for a message."""
    return F.substring(text, 1, _PREVIEW)


def _converted(text: Column, kind: str, zone: str | None) -> Column:
    """Return a field as its type; NULL if it does not fit."""
    if kind == "string":
        return text
    if kind == "boolean":
        return F.when(F.lower(text) == "true", F.lit(True)).when(F.lower(text) == "false", F.lit(False))
    if kind == "binary":
        return F.try_to_binary(text, F.lit("base64"))
    if kind == "date":
        return F.when(text.rlike(_PLAIN_DATE), text.try_cast("date"))
    if kind == "timestamp":
        text = F.when(text.rlike(_STARTS_WITH_DATE), text)
        instant = text.try_cast("timestamp")
        if zone is None:
            return F.when(text.rlike(_HAS_ZONE), instant)
        return F.when(text.rlike(_HAS_ZONE), instant).otherwise(F.to_utc_timestamp(instant, zone))
    value = text.try_cast(kind)
    if kind.startswith("decimal"):  # a cast would round what has more digits behind the point
        precision, scale = (int(digits) for digits in re.findall(r"\d+", kind))
        wide = text.try_cast(f"decimal(38,{38 - (precision - scale)})")
        return F.when(text.rlike(rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$") | (wide == value), value)
    return value


def _wanted(kind: str, zone: str | None) -> str:
    return (
        "timestamp with a zone (`timestamps_without_zone` would give it one)"
        if kind == "timestamp" and zone is None
        else kind
    )
