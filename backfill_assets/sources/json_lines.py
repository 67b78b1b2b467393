"""JSON lines: every line is a row in the account, whether it can be read or not.

Fields are read as text first and converted after, so that a value that does not fit its type is seen and named. Spark's
own conversion would round a decimal and take a time without a zone for UTC, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.partitions import quoted
from backfill_assets.core.spec import TableSpec

_HAS_ZONE = r"\d{1,2}:\d{2}.*(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)$"
_PREVIEW = 80
"""Characters of a line or value that a message shows."""


def read(spark: SparkSession, spec: TableSpec, paths: Sequence[str]) -> DataFrame:
    """Return the lines of files, each field as text; a line that is no JSON object has only `_ba_corrupt`."""
    schema = _text_schema(spec)
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", "_ba_corrupt")
    return reader.json(list(paths))


def typed(spec: TableSpec, raw: DataFrame, zone: str | None) -> DataFrame:
    """Convert fields to the spec's types; `_ba_problem` says what could not be.

    Args:
        raw: As `read` returns it; columns of other names are kept.
        zone: Zone of timestamps that have none; without it they cannot be read.
    """
    fields = {name: F.col(quoted(name)) for name in spec.columns}
    values = {name: _converted(fields[name], column.type, zone) for name, column in spec.columns.items()}
    corrupt = F.col("_ba_corrupt")
    problem = F.coalesce(
        F.when(corrupt.isNotNull(), F.concat(F.lit("no JSON object: "), _preview(corrupt))),
        *(
            F.when(
                fields[name].isNotNull() & values[name].isNull(),
                F.concat(F.lit(f"`{name}` is no {_wanted(column.type, zone)}: "), _preview(fields[name])),
            )
            for name, column in spec.columns.items()
        ),
    )
    others = [F.col(quoted(name)) for name in raw.columns if name not in fields and name != "_ba_corrupt"]
    return raw.select(*others, *(value.alias(name) for name, value in values.items()), problem.alias("_ba_problem"))


def count_lines(spark: SparkSession, paths: Sequence[str]) -> dict[str, int]:
    """Count the lines that are not blank, by file."""
    lines = spark.read.text(list(paths)).select(F.col("_metadata.file_path").alias("file"), "value")
    counted = lines.where(F.trim("value") != "").groupBy("file").agg(F.count(F.lit(1)).alias("rows"))
    return {row["file"]: int(row["rows"]) for row in counted.collect()}


def name_lines(spark: SparkSession, spec: TableSpec, paths: Sequence[str], zone: str | None, count: int) -> list[str]:
    """Return the first lines that cannot be read: file, line number (from 1) and why."""
    whole = spark.read.option("wholetext", "true").text(list(paths))
    numbered = whole.select(
        F.col("_metadata.file_path").alias("_ba_file"), F.posexplode(F.split("value", "\r?\n")).alias("_ba_line", "_ba_text")
    ).where(F.trim("_ba_text") != "")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_ba_corrupt"}
    parsed = numbered.select("_ba_file", "_ba_line", F.from_json("_ba_text", _text_schema(spec), options).alias("fields"))
    bad = typed(spec, parsed.select("_ba_file", "_ba_line", "fields.*"), zone).where("_ba_problem IS NOT NULL")
    first = bad.orderBy("_ba_file", "_ba_line").limit(count).select("_ba_file", "_ba_line", "_ba_problem")
    return [f"{row['_ba_file']} line {row['_ba_line'] + 1}: {row['_ba_problem']}" for row in first.collect()]


def _text_schema(spec: TableSpec) -> str:
    return ", ".join([*(f"{quoted(name)} string" for name in spec.columns), "_ba_corrupt string"])


def _converted(text: Column, kind: str, zone: str | None) -> Column:
    """Return a field as its type; NULL if it does not fit."""
    if kind == "string":
        return text
    if kind == "boolean":
        return F.when(F.lower(text) == "true", F.lit(True)).when(F.lower(text) == "false", F.lit(False))  # noqa: FBT003 (SQL literals)
    if kind == "binary":
        return F.try_to_binary(text, F.lit("base64"))
    if kind == "timestamp":
        instant = text.try_cast("timestamp")
        if zone is None:
            return F.when(text.rlike(_HAS_ZONE), instant)
        return F.when(text.rlike(_HAS_ZONE), instant).otherwise(F.to_utc_timestamp(instant, zone))
    value = text.try_cast(kind)
    if kind.startswith("decimal"):
        return F.when(text.try_cast("decimal(38,18)") == value, value)
    return value


def _wanted(kind: str, zone: str | None) -> str:
    return "timestamp with a zone (`timestamps_without_zone` would give it one)" if kind == "timestamp" and zone is None else kind


def _preview(text: Column) -> Column:
    return F.substring(text, 1, _PREVIEW)
