"""Tallies in Spark: the one set of expressions by which staged rows and the table's rows are counted alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from backfill_assets.core.calendar.layouts import ANY_TIME
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import EMPTY, Tally, checksum_of
from backfill_assets.spark.expressions import (
    any_of,
    by_partition,
    checksum_lanes,
    collected,
    column,
    event_micros,
    in_words,
    partition_value,
    row_hash,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR = tuple((at - _EPOCH) // timedelta(microseconds=1) for at in (ANY_TIME.start_utc, ANY_TIME.end_utc))


Groups = dict[str, list[Row]]
"""What was counted of the rows of each partition, by its key, before it is added up."""


def tally_rows(
    spec: TableSpec, rows: DataFrame, partition_by_file: Mapping[Any, str] | None = None
) -> dict[str, Tally]:
    """Count a frame by partition, as `groups_of` and `tallies_of` do."""
    return tallies_of(spec, groups_of(spec, rows, partition_by_file))


def groups_of(spec: TableSpec, rows: DataFrame, partition_by_file: Mapping[Any, str] | None = None) -> Groups:
    """Count a frame of the spec's columns and the partition column, by partition, in one pass.

    A row is counted where it is kept: in the partition of its `_ba_file_id` if there are homes, else of its partition
    column. It is a stray there if its event time lies elsewhere. `duplicate_keys` is left at 0.

    Args:
        partition_by_file: The partition key of each value of `_ba_file_id`.
    """
    event = event_micros(spec)
    in_calendar = event.between(*_CALENDAR)  # Python has no word for other days, and no partition has such rows
    kept_in = F.col("_ba_file_id") if partition_by_file is not None else column(spec.partition_column)
    problem = F.col("_ba_problem") if "_ba_problem" in rows.columns else F.lit(None)
    high, low = checksum_lanes(F.col("_ba_hash"))
    any_null_key = any_of(column(name).isNull() for name in spec.key_columns)
    counted = (
        rows.withColumn("_ba_hash", row_hash(spec))
        .groupBy(
            kept_in.alias("_ba_kept_in"),
            partition_value(spec, column(spec.event_time)).alias("_ba_value"),
            problem.isNotNull().alias("_ba_unreadable"),
        )
        .agg(
            F.count(F.lit(1)).alias("_ba_rows"),
            high.alias("_ba_high"),
            low.alias("_ba_low"),
            F.min(F.when(in_calendar, event)).alias("_ba_first"),
            F.max(F.when(in_calendar, event)).alias("_ba_last"),
            F.count_if(any_null_key).alias("_ba_null_keys"),
            *(F.count(column(name)).alias(f"_ba_filled_{i}") for i, name in enumerate(spec.columns)),
        )
    )
    groups: Groups = {}
    key_of = spec.grid.key_of
    for row in collected(in_words(counted, "_ba_value", *(["_ba_kept_in"] if partition_by_file is None else []))):
        kept_in = partition_by_file[row["_ba_kept_in"]] if partition_by_file is not None else key_of(row["_ba_kept_in"])
        groups.setdefault(kept_in, []).append(row)
    return groups


def tallies_of(spec: TableSpec, groups: Groups) -> dict[str, Tally]:
    """Add up what was counted, by partition key."""
    return {key: _tally(spec, key, of_partition) for key, of_partition in groups.items()}


def duplicate_keys_by_partition(spec: TableSpec, rows: DataFrame) -> dict[str, int]:
    """Return how many rows repeat a key within their partition, by partition; partitions without any are left out.

    One 64-bit hash of partition and key is looked at first: it can see a repetition where there is none but never miss
    one. Only if it sees any are keys counted by value.
    """
    if not spec.key_columns:
        return {}
    here = column(spec.partition_column)
    rows = rows.where(here.isNotNull())  # without an event time a row fails anyway
    key = F.xxhash64(here, *(column(name) for name in spec.key_columns)).alias("_ba_key")
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 4)
    grouped = rows.select(key).repartition(tasks, "_ba_key").groupBy("_ba_key")
    if grouped.agg(F.count(F.lit(1)).alias("_ba_times")).where("_ba_times > 1").limit(1).count() == 0:
        return {}
    return _repeated(spec, rows.select(here.alias("_ba_partition"), *(column(name) for name in spec.key_columns)))


def _repeated(spec: TableSpec, keys: DataFrame) -> dict[str, int]:
    """Count rows beyond the first of each key, by partition."""
    keys = keys.withColumn("_ba_partition", F.col("_ba_partition").cast("string"))
    each = keys.groupBy("_ba_partition", *(column(name) for name in spec.key_columns)).agg(
        F.count(F.lit(1)).alias("_ba_times")
    )
    beyond = (
        each.where(F.col("_ba_times") > 1)
        .groupBy("_ba_partition")
        .agg(F.sum(F.col("_ba_times") - 1).alias("_ba_beyond"))
    )
    return {spec.grid.key_of(row["_ba_partition"]): int(row["_ba_beyond"]) for row in beyond.collect()}


def _tally(spec: TableSpec, key: str, groups: list[Row]) -> Tally:
    """Add up the groups of one partition."""
    read = [group for group in groups if not group["_ba_unreadable"]]
    rows = sum(group["_ba_rows"] for group in read)
    filled = {name: sum(group[f"_ba_filled_{i}"] for group in read) for i, name in enumerate(spec.columns)}
    return Tally(
        rows=rows,
        checksum=checksum_of(sum(g["_ba_high"] for g in read), sum(g["_ba_low"] for g in read)),
        first_event_micros=min((g["_ba_first"] for g in read if g["_ba_first"] is not None), default=None),
        last_event_micros=max((g["_ba_last"] for g in read if g["_ba_last"] is not None), default=None),
        null_keys=sum(group["_ba_null_keys"] for group in read),
        stray_rows=sum(
            group["_ba_rows"]
            for group in read
            if group["_ba_value"] is not None and spec.grid.key_of(group["_ba_value"]) != key
        ),
        unreadable_rows=sum(group["_ba_rows"] for group in groups if group["_ba_unreadable"]),
        nulls={name: rows - filled[name] for name in spec.required_columns if filled[name] < rows},
        empty_columns=_empty_columns(spec, read),
    )


def _empty_columns(spec: TableSpec, groups: list[Row]) -> tuple[str, ...]:
    """Return the columns that are NULL in every row of a home: of one file, where there are files."""
    by_home: dict[object, list[Row]] = {}
    for group in groups:
        by_home.setdefault(group["_ba_kept_in"], []).append(group)
    return tuple(
        name
        for i, name in enumerate(spec.columns)
        if any(all(group[f"_ba_filled_{i}"] == 0 for group in file_id) for file_id in by_home.values())
    )


def contents(spec: TableSpec, rows: DataFrame) -> dict[str, tuple[int, int]]:
    """Return rows and checksum by partition key: of a tally what says whether two sides have the same rows."""
    high, low = checksum_lanes(F.col("_ba_hash"))
    hashed = rows.withColumn("_ba_hash", row_hash(spec))
    found = collected(by_partition(spec, hashed, F.count(F.lit(1)).alias("n"), high.alias("high"), low.alias("low")))
    return {spec.grid.key_of(row["value"]): (int(row["n"]), checksum_of(row["high"], row["low"])) for row in found}


def same_rows(spec: TableSpec, rows: DataFrame, tallies: Mapping[str, Tally]) -> frozenset[str]:
    """Return the partitions, by key, whose rows are exactly those that were tallied."""
    found, nothing = contents(spec, rows), (EMPTY.rows, EMPTY.checksum)
    return frozenset(key for key, tally in tallies.items() if (tally.rows, tally.checksum) == found.get(key, nothing))


def rows_by_partition(spec: TableSpec, rows: DataFrame) -> dict[str, int]:
    """Count rows by partition key."""
    return {spec.grid.key_of(value): count for value, count in rows_by_value(spec, rows).items()}


def rows_by_value(spec: TableSpec, rows: DataFrame) -> dict[str, int]:
    """Count rows by value of the partition column, as text."""
    found = collected(by_partition(spec, rows, F.count(F.lit(1)).alias("n")))
    return {"NULL" if row["value"] is None else str(row["value"]): int(row["n"]) for row in found}
