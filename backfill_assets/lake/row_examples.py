"""Rows in messages: which of them break a rule, each in one line, instants in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from backfill_assets.core.history.audit import AuditRule, Verdict
from backfill_assets.core.history.row_difference import Values
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.spark.expressions import collected, column, partition_value

EXAMPLES = 3
"""Rows that are named for each rule and partition."""


def broken_rows(
    spec: TableSpec, staged: StagedChunk[DataFrame], verdicts: Sequence[Verdict]
) -> dict[str, dict[AuditRule, list[str]]]:
    """Name a few of the rows that break a rule, by partition key and rule."""
    values = {v.partition.key: str(v.partition.value) for v in verdicts}
    belongs = partition_value(spec, column(spec.event_time)).cast("string")
    here = belongs
    if staged.partition_by_file is not None and "_ba_file_id" in staged.rows.columns:
        pairs = [
            part
            for home, key in staged.partition_by_file.items()
            if key in values
            for part in (F.lit(home).cast("bigint"), F.lit(values[key]))
        ]
        home = F.element_at(F.create_map(*pairs), F.col("_ba_file_id"))
        here = F.when(F.col("_ba_file_id").isNull(), belongs).otherwise(home)
    failed = (
        staged.rows.withColumn("_ba_here", here)
        .where(F.col("_ba_here").isin(list(values.values())))
        .withColumn("_ba_note", belongs)
    )
    here = F.col("_ba_here")
    broken = {f.rule for v in verdicts for f in v.findings}
    found: dict[str, dict[AuditRule, list[str]]] = {}
    for rule, rows in (
        (AuditRule.ROWS_INSIDE_PARTITION, lambda: failed.where(F.col("_ba_note") != here)),
        (AuditRule.REQUIRED_COLUMNS_ARE_FILLED, lambda: _with_nulls(spec, failed)),
        (AuditRule.KEYS_ARE_UNIQUE, lambda: _with_repeated_keys(spec, failed)),
    ):
        if rule in broken:
            for row in collected(in_text(spec, first_of_each(rows(), here, EXAMPLES))):
                stray = spec.grid.key_of(row["_ba_note"]) if rule is AuditRule.ROWS_INSIDE_PARTITION else None
                named = named_by_key(spec, row, stray)
                found.setdefault(spec.grid.key_of(row["_ba_here"]), {}).setdefault(rule, []).append(named)
    return found


def named_by_key(spec: TableSpec, row: Row | Values, belongs_to: str | None = None) -> str:
    """Name a row by its key and its event time; without a key by all its values, if the spec lets them be shown."""
    names = spec.key_columns or (list(spec.columns) if spec.checks.show_values else [])
    values = values_of(row, [name for name in names if name != spec.event_time])
    where = f" (belongs to {belongs_to})" if belongs_to else ""
    return f"{values or 'a row'} at {row[spec.event_time]}{where}"


def values_of(row: Row | Values, names: Iterable[str]) -> str:
    """Write out some columns of a row."""
    return ", ".join(f"{name}={'NULL' if row[name] is None else row[name]}" for name in names)


def in_text(spec: TableSpec, rows: DataFrame) -> DataFrame:
    """Write out instants in UTC, and days: Python would show instants in its machine's zone, and has no year 20240."""
    instants = [name for name, c in spec.columns.items() if c.type == "timestamp"]
    days = [name for name, kind in rows.dtypes if kind == "date"]
    return rows.withColumns(
        {name: F.concat(column(name).cast("string"), F.lit("Z")) for name in instants}
        | {name: column(name).cast("string") for name in days}
    )


def _with_nulls(spec: TableSpec, rows: DataFrame) -> DataFrame:
    missing = F.lit(False)
    for name in spec.required_columns:
        missing = missing | column(name).isNull()
    return rows.where(missing)


def _with_repeated_keys(spec: TableSpec, rows: DataFrame) -> DataFrame:
    keys = [column(name) for name in spec.key_columns]
    by_key = Window.partitionBy(column(spec.partition_column), *keys)
    return rows.withColumn("_ba_times", F.count(F.lit(1)).over(by_key)).where("_ba_times > 1")


def first_of_each(rows: DataFrame, by: Column | list[Column], count: int) -> DataFrame:
    """Return the first few rows of each group."""
    numbered = rows.withColumn("_ba_number", F.row_number().over(Window.partitionBy(by).orderBy(F.lit(1))))
    return numbered.where(F.col("_ba_number") <= count)
