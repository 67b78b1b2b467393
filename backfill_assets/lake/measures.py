"""Measures of partitions in Spark: one pass over the rows for each column by which any is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from backfill_assets.core.calendar.chunks import halves_of
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.expectations import Expectation
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.measures import NEEDED, Counted, Group, Measures, measured
from backfill_assets.errors import ConfigurationError
from backfill_assets.spark.expressions import column, in_words
from backfill_assets.spark.failures import translated

MOST_GROUPS = 100_000
"""So many groups of one measure are brought to the driver at a time."""


def measures_of(spec: TableSpec, rows: DataFrame, partitions: Sequence[Partition]) -> Measures:
    """Return what a spec's expectations measure of some partitions; of fewer at a time where there are many groups.

    Raises:
        ConfigurationError: A measure of one partition is taken by a column of too many values.
        UnreadableSourceError, StorageError, MemoryExhaustedError: The rows cannot be read.
    """
    try:
        with translated(spec.key):
            return _measured(spec, rows.where(replace_where(spec.partition_column, partitions)))
    except _TooManyGroups as error:
        if len(partitions) > 1:
            found: dict[str, Mapping[str, Mapping[Group, Decimal | None]]] = {}
            for half in halves_of(partitions):
                found |= measures_of(spec, rows, half)
            return found
        raise ConfigurationError(
            f"`{spec.key}`: `{error}` has more than {MOST_GROUPS:,} groups in partition {partitions[0].key}.",
            state="This chunk was not written; the chunks before it are published.",
            remedy="Take it by a column of fewer values.",
        ) from None


class _TooManyGroups(Exception):  # noqa: N818 (no error: fewer partitions are measured at a time)
    """Of a measure, by its name."""


def _measured(spec: TableSpec, rows: DataFrame) -> Measures:
    found: dict[str, dict[str, dict[Group, Decimal | None]]] = {}
    by_column: dict[str | None, list[Expectation]] = {}
    for expected in spec.expect:
        by_column.setdefault(expected.by, []).append(expected)
    for by, expectations in by_column.items():
        for row in _counted(spec, rows, by, expectations):
            of_partition = found.setdefault(spec.grid.key_of(row["_ba_value"]), {})
            for expected in expectations:
                value = measured(expected.function, _counted_of(row, expected.column))
                of_partition.setdefault(expected.name, {})[row["_ba_group"]] = value
    return found


def _counted(spec: TableSpec, rows: DataFrame, by: str | None, expectations: Sequence[Expectation]) -> list[Row]:
    group = F.make_valid_utf8(column(by).cast("string")) if by else F.lit("")
    needed: dict[str, Column] = {}
    for expected in expectations:
        if expected.column:
            aggregates = _aggregates(expected.column, spec.columns[expected.column].type)
            needed |= {_alias(field, expected.column): aggregates[field] for field in NEEDED[expected.function]}
    counted = rows.groupBy(column(spec.partition_column).alias("_ba_value"), group.alias("_ba_group")).agg(
        F.count(F.lit(1)).alias("_ba_rows"), *(each.alias(name) for name, each in needed.items())
    )
    found = in_words(counted, "_ba_value").limit(MOST_GROUPS + 1).collect()
    if len(found) > MOST_GROUPS:
        raise _TooManyGroups(expectations[0].name)
    return found


def _aggregates(name: str, kind: str) -> Mapping[str, Column]:
    """Return how the fields of `Counted` are counted; of whole numbers and decimals without rounding."""
    values = column(name)
    wide = values.cast("decimal(38,0)") if kind.endswith("int") else values
    return {
        "filled": F.count(values),
        "total": F.try_sum(wide),
        "smallest": F.min(values),
        "largest": F.max(values),
    }


def _counted_of(row: Row, name: str | None) -> Counted:
    if name is None:
        return Counted(row["_ba_rows"])
    found = {field: row[_alias(field, name)] for field in ("filled", *_VALUES) if _alias(field, name) in row}
    values = {field: Decimal(str(found[field])) for field in _VALUES if found.get(field) is not None}
    return Counted(row["_ba_rows"], found.get("filled", 0), **values)


_VALUES = ("total", "smallest", "largest")


def _alias(field: str, name: str) -> str:
    return f"_ba_{field} {name}"
