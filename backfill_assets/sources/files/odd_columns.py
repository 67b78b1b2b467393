"""Columns of Parquet files that Spark has no type for, or not the spec's: how they are read, and become the spec's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.schema.types import (
    TIMESTAMP_NANOS,
    TIMESTAMP_NTZ_NANOS,
    largest_whole,
    plain_type,
    reads_as,
    reads_by_value,
)
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import quoted

_NANOS = (TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS)
_WITHOUT_ZONE = ("timestamp_ntz", TIMESTAMP_NTZ_NANOS)

ODD = frozenset({*_NANOS, *_WITHOUT_ZONE, "void"})
"""Types that are read otherwise than as the spec's, whatever that is."""


def is_odd(kind: str, wanted: str) -> bool:
    """Say whether a column is read otherwise than as the spec's type, and then becomes it."""
    return kind in ODD or (not reads_as(kind, wanted) and reads_by_value(kind, wanted))


def read_as(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the types with which Spark is to read files; a column that never has a value is not read.

    Args:
        kinds: Types of columns by name: of odd ones as the files say, of others as they are wanted.
    """
    return {name: "bigint" if kind in _NANOS else plain_type(kind) for name, kind in kinds.items() if kind != "void"}


def typed(
    spec: TableSpec, raw: DataFrame, odd: Mapping[str, str], *, zone: str, nanoseconds: Literal["refused", "cut"]
) -> DataFrame:
    """Convert columns to the spec's types; a number that its column's type does not have is named in `_ba_problem`.

    Args:
        raw: Read with the types that `read_as` says; other columns are kept.
        zone: Of timestamps without one. A time that its clocks skip is named in `_ba_problem`.
        nanoseconds: Whether a value that is no whole microsecond is named there too.
    """
    values = [_value(name, column.type, odd.get(name), zone).alias(name) for name, column in spec.columns.items()]
    others = [F.col(quoted(name)) for name in raw.columns if name not in spec.columns]
    numbers = {name: kind for name, kind in odd.items() if kind not in ODD}
    problems = [_no_number(name, kind, spec.columns[name].type) for name, kind in numbers.items()]
    problems += [_finer(name) for name, kind in odd.items() if kind in _NANOS and nanoseconds == "refused"]
    problems += [_skipped(name, kind, zone) for name, kind in odd.items() if kind in _WITHOUT_ZONE and zone != "UTC"]
    problem = [F.coalesce(*problems).alias("_ba_problem")] if problems else []
    return raw.select(*others, *values, *problem)


def as_text(raw: DataFrame, kinds: Mapping[str, str]) -> DataFrame:
    """Make text of instants, read as `read_as` says; those that have a zone are in UTC."""
    nanos = {name: _instant(F.col(quoted(name))) for name, kind in kinds.items() if kind in _NANOS}
    instants = {name: F.col(quoted(name)) for name, kind in kinds.items() if kind in ("timestamp", "timestamp_ntz")}
    texts = {name: value.cast("string") for name, value in {**nanos, **instants}.items()}
    return raw.withColumns(texts) if texts else raw  # a Connect server refuses none


def _value(name: str, wanted: str, kind: str | None, zone: str) -> Column:
    if kind == "void":
        return F.lit(None).cast(wanted)
    if kind is not None and kind not in ODD:
        return _number(F.col(quoted(name)), kind, wanted)
    value = _instant(F.col(quoted(name))) if kind in _NANOS else F.col(quoted(name))
    return F.to_utc_timestamp(value.cast("timestamp"), zone) if kind in _WITHOUT_ZONE else value


def _number(value: Column, kind: str, wanted: str) -> Column:
    """Return the same number as another type; NULL if that does not have it."""
    converted, largest = value.try_cast(wanted), largest_whole(kind, wanted)
    is_exact = converted.try_cast(plain_type(kind)) == value
    return F.when(is_exact if largest is None else is_exact & value.between(-largest, largest), converted)


def _no_number(name: str, kind: str, wanted: str) -> Column:
    """Return what is wrong with a number that another type does not have; NULL if it has it."""
    value = F.col(quoted(name))
    words = f"`{name}` is no {'exact ' if largest_whole(kind, wanted) else ''}{wanted}: "
    is_lost = value.isNotNull() & _number(value, kind, wanted).isNull()
    return F.when(is_lost, F.concat(F.lit(words), value.cast("string")))


def _instant(nanos: Column) -> Column:
    """Return the microsecond that has begun: one later would lie in the next partition at the end of one."""
    is_between = (nanos < 0) & (F.pmod(nanos, F.lit(1000)) != 0)
    return F.timestamp_micros(F.call_function("div", nanos, F.lit(1000)) - is_between.cast("bigint"))


def _finer(name: str) -> Column:
    """Return what is wrong with a value that is no whole microsecond; NULL if it is one."""
    nanos = F.col(quoted(name))
    rest = F.pmod(nanos, F.lit(1000))
    digits = F.concat(
        F.date_format(_instant(nanos), "yyyy-MM-dd HH:mm:ss.SSSSSS"), F.lpad(rest.cast("string"), 3, F.lit("0"))
    )
    words = f"`{name}` is no whole microsecond, and a timestamp has no finer ones (`nanoseconds: cut` would cut it): "
    return F.when(rest != 0, F.concat(F.lit(words), digits))


def _skipped(name: str, kind: str, zone: str) -> Column:
    """Return what is wrong with a local time that clocks never show; NULL if they do."""
    local = (_instant(F.col(quoted(name))) if kind in _NANOS else F.col(quoted(name))).cast("timestamp")
    is_shown = F.from_utc_timestamp(F.to_utc_timestamp(local, zone), zone) == local
    words = F.lit(f"`{name}` is a time that the clocks of {zone} skip: ")
    return F.when(~is_shown, F.concat(words, F.date_format(local, "yyyy-MM-dd HH:mm:ss.SSSSSS")))
