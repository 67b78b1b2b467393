"""JSON lines: every line is a row in the account, whether it can be read or not.

Fields are read as text first and converted after, so that a value that does not fit its type is seen and named. Spark's
own conversion would round a decimal and take a time without a zone for UTC, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.partitions import quoted
from backfill_assets.core.spec import TableSpec
from backfill_assets.sources.columns import parents

_HAS_ZONE = r"\d{1,2}:\d{2}.*(Z|UTC|GMT|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/+-]+)$"
_PLAIN_DATE = r"^\s*\d{4,}-\d{1,2}-\d{1,2}\s*$"  # a cast takes `2024` for a day, and cuts a time off
_STARTS_WITH_DATE = r"^\s*\d{4,}-\d{1,2}-\d{1,2}"
_PREVIEW = 80
"""Characters of a line or value that a message shows."""


def read(spark: SparkSession, spec: TableSpec, paths: Sequence[str]) -> DataFrame:
    """Return the lines of files, each field as text; a line that is no JSON object has only `_ba_corrupt`."""
    schema = _text_schema(spec)
    if not paths:
        return spark.createDataFrame([], ", ".join([*(f"{quoted(name)} string" for name in spec.columns), "_ba_corrupt string"]))
    reader = spark.read.schema(schema).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", "_ba_corrupt")
    raw = reader.json(list(paths))
    return raw.select(*_columns_of(spec), "_ba_corrupt") if _has_paths(spec) else raw


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
        F.when(corrupt.isNotNull(), F.concat(F.lit("not one JSON object: "), _preview(corrupt))),
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


def count_lines(spark: SparkSession, paths: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Count the lines that are not blank, and those of them that `read` would misread; by a hash of the file as Spark names it."""
    lines = spark.read.text(list(paths)).select(F.xxhash64("_metadata.file_path").alias("file"), "value")
    counted = (
        lines.where(_is_row("value"))
        .groupBy("file")
        .agg(F.count(F.lit(1)).alias("rows"), F.count_if(_is_misread("value")).alias("misread"))
    )
    return {row["file"]: (int(row["rows"]), int(row["misread"])) for row in counted.collect()}


def fields_of(spark: SparkSession, spec: TableSpec, paths: Sequence[str], *, first_lines: int | None = None) -> dict[str, set[str]]:
    """Return the fields that any line of a file has, or any of its first lines; by file, as Spark names it.

    Fields of objects that the spec looks into are named by their path.
    """
    lines = spark.read.text(list(paths)).select(F.col("_metadata.file_path").alias("file"), "value")
    lines = lines if first_lines is None else lines.limit(first_lines)
    outer = sorted({parent for name, c in spec.columns.items() for parent in parents(spec.field_of(name), c.path)})
    inside = [_keys_below(path) for path in outer]
    keys = F.concat(*(F.coalesce(part, F.array().cast("array<string>")) for part in (F.json_object_keys("value"), *inside)))
    fields: dict[str, set[str]] = {}
    for row in lines.select("file", F.explode(keys).alias("field")).distinct().collect():
        fields.setdefault(row["file"], set()).add(row["field"])
    return fields


def _keys_below(path: str) -> Column:
    """Return the paths of the fields of an object inside a line."""
    return F.transform(F.json_object_keys(F.get_json_object("value", f"$.{path}")), lambda key: F.concat(F.lit(f"{path}."), key))


def name_lines(spark: SparkSession, spec: TableSpec, paths: Sequence[str], zone: str | None, count: int) -> list[tuple[str, int, str]]:
    """Return the first lines that cannot be read: file, as Spark names it, line number (from 1) and why."""
    whole = spark.read.text(list(paths), wholetext=True)
    numbered = whole.select(
        F.col("_metadata.file_path").alias("_ba_file"), F.posexplode(F.split("value", "\r?\n")).alias("_ba_line", "_ba_text")
    )
    bad = typed_lines(spec, numbered, zone).where("_ba_problem IS NOT NULL")
    first = bad.orderBy("_ba_file", "_ba_line").limit(count).select("_ba_file", "_ba_line", "_ba_problem")
    return [(row["_ba_file"], row["_ba_line"] + 1, row["_ba_problem"]) for row in first.collect()]


def typed_lines(spec: TableSpec, lines: DataFrame, zone: str | None) -> DataFrame:
    """Parse the lines in `_ba_text` that are not blank, as `read` and `typed` would; the frame's other columns are kept."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_ba_corrupt"}
    parsed = lines.where(_is_row("_ba_text")).select("*", F.from_json("_ba_text", _text_schema(spec), options).alias("_ba_fields"))
    fields = parsed.select(*lines.columns, *_columns_of(spec, "_ba_fields"), "_ba_fields._ba_corrupt")
    fields = fields.withColumn("_ba_corrupt", F.when(_is_misread("_ba_text"), F.col("_ba_text")).otherwise(F.col("_ba_corrupt")))
    decimals = [name for name, column in spec.columns.items() if column.type.startswith("decimal")]
    return typed(spec, fields.withColumns({name: _as_written(name, spec.field_of(name)) for name in decimals}), zone)


def _as_written(name: str, field: str) -> Column:
    """Return a number as it stands in the line; `from_json` would pass it through a double, which the reader does not.

    Another field of the same name, deeper in the line, is another number; the one that is meant is that number as a double.
    """
    pattern = rf'"{re.escape(field.rsplit(".", 1)[-1])}"\s*:\s*(-?\d[\d.eE+-]*)'
    numbers = F.regexp_extract_all("_ba_text", F.lit(pattern), F.lit(1))
    parsed = F.col(quoted(name))
    meant = F.filter(numbers, lambda number: number.try_cast("double") == parsed.try_cast("double"))
    return F.coalesce(F.get(meant, F.lit(0)), parsed)


def _is_row(line: str) -> Column:
    """Say whether a line is more than white space."""
    return F.col(line).rlike(r"\S")


def _is_misread(line: str) -> Column:
    """Say whether Spark would take a line for something else without a word.

    It reads an array as several rows, and what follows an object on the same line not at all. Only lines that do not
    look like one object are parsed for it.
    """
    text = F.col(line)
    looks_right = text.rlike(r"^\s*\{.*\}\s*$") & ~text.rlike(r"\}\s*,?\s*\{")
    alone = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<struct<_ba_any: string>>")
    is_one = F.coalesce(F.size(alone) == 1, F.lit(False)) & text.rlike(r"^\s*\{")
    is_read = text.rlike(r"^\s*\[") | F.json_object_keys(text).isNotNull()
    return F.when(looks_right, F.lit(False)).otherwise(is_read & ~is_one)


def _has_paths(spec: TableSpec) -> bool:
    return any(column.path for column in spec.columns.values())


def _text_schema(spec: TableSpec) -> str:
    """Return the fields that the spec names, each as text; those of an object inside it."""
    if not _has_paths(spec):
        return ", ".join([*(f"{quoted(name)} string" for name in spec.columns), "_ba_corrupt string"])
    tree: dict[str, Any] = {}
    for name, column in spec.columns.items():
        *outer, last = column.path.split(".") if column.path else [name]
        inside = tree
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = None
    return ", ".join([*(f"{quoted(name)} {_text_type(inside)}" for name, inside in tree.items()), "_ba_corrupt string"])


def _text_type(inside: dict[str, Any] | None) -> str:
    if inside is None:
        return "string"
    return f"struct<{', '.join(f'{quoted(name)}: {_text_type(deeper)}' for name, deeper in inside.items())}>"


def _columns_of(spec: TableSpec, below: str = "") -> list[Column]:
    """Return the spec's columns from where `_text_schema` has them."""
    front = f"{below}." if below else ""
    paths = {name: column.path.split(".") if column.path else [name] for name, column in spec.columns.items()}
    return [F.col(front + ".".join(map(quoted, parts))).alias(name) for name, parts in paths.items()]


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
    return "timestamp with a zone (`timestamps_without_zone` would give it one)" if kind == "timestamp" and zone is None else kind


def _preview(text: Column) -> Column:
    return F.substring(text, 1, _PREVIEW)
