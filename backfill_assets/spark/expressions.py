"""Columns computed from a spec: the partition of a row, its hash, its event time. The same on every side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from backfill_assets.core.calendar.windows import Grain, hour_offset_seconds
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted
from backfill_assets.core.state.row_hash import FLAGS_IN_A_WORD


def valid_text(rows: DataFrame) -> DataFrame:
    """Return rows whose texts are UTF-8: bytes that are none become U+FFFD.

    Spark does not check the bytes of a `string`. A Connect server hands them over through Arrow, and Python fails on
    them, so rows with text of a source or a table pass here before they leave the JVM.
    """
    valid = {
        "string": F.make_valid_utf8,
        "array<string>": lambda texts: F.transform(texts, F.make_valid_utf8),
    }
    return rows.select(
        *(valid[kind](column(name)).alias(name) if kind in valid else column(name) for name, kind in rows.dtypes)
    )


def collected(rows: DataFrame) -> list[Row]:
    """Collect rows that have text of a source or a table: the same on a classic and on a Connect session."""
    return valid_text(rows).collect()


def column(name: str) -> Column:
    """Return a column by its exact name, dots and all."""
    return F.col(quoted(name))


def partition_type(spec: TableSpec) -> str:
    """Return the type of the partition column."""
    return "string" if spec.grain is Grain.HOURLY else "date"


def kept_columns(spec: TableSpec) -> list[Column]:
    """Return what a table keeps of rows that have its columns: these, and the value of its partition column."""
    value = partition_value(spec, column(spec.event_time)).alias(spec.partition_column)
    return [*map(column, spec.columns), value]


def partition_value(spec: TableSpec, event_time: Column) -> Column:
    """Return what the partition column holds for an event time: a DATE, or the text of an hour; as `Partition.value`.

    Relies on the session's zone being UTC.
    """
    if spec.grain is Grain.HOURLY:
        behind = hour_offset_seconds(spec.grid.zone, spec.grid.start_utc)
        if behind:
            seconds = _clamped(F.unix_seconds(event_time), 2**42)
            event_time = F.timestamp_seconds(seconds - F.pmod(seconds - F.lit(behind), F.lit(3600)))
        return F.date_format(event_time, "yyyy-MM-dd-HH")
    day = F.to_date(in_its_zone(spec, event_time))
    if spec.grain is Grain.WEEKLY:
        return F.trunc(day, "week")
    if spec.grain is Grain.MONTHLY:
        return F.trunc(day, "month")
    return day


def in_words(counted: DataFrame, *names: str) -> DataFrame:
    """Return counted groups with some of what they are grouped by as text.

    Spark formats a day in 0.1 microseconds, so it is done once for each group, not for each row.
    """
    return counted.withColumns({name: F.col(name).cast("string") for name in names})


def by_partition(spec: TableSpec, rows: DataFrame, *aggregates: Column) -> DataFrame:
    """Return aggregates of the rows of each partition, beside the value of the partition column, `value`, as text."""
    return in_words(rows.groupBy(column(spec.partition_column).alias("value")).agg(*aggregates), "value")


def in_its_zone(spec: TableSpec, event_time: Column) -> Column:
    """Return an event time as the clocks of the table's zone show it; a DATE is one already."""
    if spec.columns[spec.event_time].type != "timestamp" or spec.time_zone == "UTC":
        return event_time
    return F.from_utc_timestamp(F.timestamp_micros(_clamped(F.unix_micros(event_time), 2**62)), spec.time_zone)


def is_no_partition(spec: TableSpec) -> Column:
    """Return whether the partition column holds what may be no partition of the table's grid; NULL is none.

    Delta tells from its log which files have such a value, so no other is read. All that is doubtful is the year 9999,
    in which the calendar ends; `Grid.is_key` knows.
    """
    here = column(spec.partition_column)
    first = spec.grid.partition_of(spec.grid.start_utc).value
    if spec.grain is Grain.HOURLY:
        is_hour = (
            here.rlike(r"^\d{4}-\d{2}-\d{2}-\d{2}$") & F.try_to_timestamp(here, F.lit("yyyy-MM-dd-HH")).isNotNull()
        )
        return ~F.coalesce(is_hour & (here >= F.lit(first)) & (here < F.lit("9999")), F.lit(False))
    begins = {Grain.WEEKLY: F.trunc(here, "week"), Grain.MONTHLY: F.trunc(here, "month")}.get(spec.grain, here)
    inside = (here == begins) & (here >= F.lit(first)) & (here < F.lit(date(9999, 1, 1)))
    return ~F.coalesce(inside, F.lit(False))


def row_hash(spec: TableSpec) -> Column:
    """Return a 64-bit hash of a row: its values in the spec's order, and which of them are NULL.

    `xxhash64` skips NULL, so (NULL, 'a') and ('a', NULL) would be the same row without the flags in front.
    """
    names = list(spec.columns)
    flags = [
        sum(
            (
                F.when(column(name).isNull(), F.lit(1 << bit)).otherwise(F.lit(0)).cast("bigint")
                for bit, name in enumerate(part)
            ),
            start=F.lit(0).cast("bigint"),
        )
        for part in (names[i : i + FLAGS_IN_A_WORD] for i in range(0, len(names), FLAGS_IN_A_WORD))
    ]
    return F.xxhash64(*flags, *(column(name) for name in names))


def checksum_lanes(row_hash: Column) -> tuple[Column, Column]:
    """Return two sums that together are the sum of 64-bit hashes; neither overflows below two billion rows."""
    return F.sum(F.shiftright(row_hash, 32)), F.sum(row_hash.bitwiseAND(F.lit(0xFFFFFFFF)))


def event_micros(spec: TableSpec) -> Column:
    """Return the event time as microseconds since 1970; a DATE counts from its midnight in UTC."""
    event_time = column(spec.event_time)
    if spec.columns[spec.event_time].type == "date":
        return F.lit(86_400_000_000) * _clamped(F.unix_date(event_time).cast("bigint"), 2**25)
    return F.unix_micros(event_time.cast("timestamp"))


def _clamped(number: Column, limit: int) -> Column:
    """Return a number, or the limit that it lies beyond: a time that far away is in no partition, and overflows."""
    return F.when(number > limit, F.lit(limit)).when(number < -limit, F.lit(-limit)).otherwise(number)


def looked_up(values: Mapping[Any, Any], key: Column) -> Column:
    """Return what a mapping, not an empty one, has for a key; NULL if it has none."""
    return F.element_at(F.create_map(*(F.lit(part) for pair in values.items() for part in pair)), key)


def all_of(conditions: Iterable[Column]) -> Column:
    """Return whether all conditions hold; true if there is none."""
    joined = F.lit(True)
    for condition in conditions:
        joined = joined & condition
    return joined


def joined_by(
    rows: DataFrame, others: DataFrame, names: Sequence[str], how: Literal["left_semi", "left_anti"]
) -> DataFrame:
    """Return the rows of which some other has the same values in some columns (`left_semi`), or none (`left_anti`).

    NULL is the same as NULL, and both frames may be made of the same one.
    """
    renamed = others.select(*(column(name).alias(f"_ba_other_{at}") for at, name in enumerate(names)))
    same = all_of(column(name).eqNullSafe(F.col(f"_ba_other_{at}")) for at, name in enumerate(names))
    return rows.join(renamed, same, how)


def any_of(conditions: Iterable[Column]) -> Column:
    """Return whether any condition holds; false if there is none."""
    joined = F.lit(False)
    for condition in conditions:
        joined = joined | condition
    return joined
