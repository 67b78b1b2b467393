"""Measures of partitions in Spark: one pass over the rows for each column by which any is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from backfill_assets.core.spec.expectations import Expectation
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.measures import NEEDED, Counted, Group, Measures, measured
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError
from backfill_assets.spark.expressions import column

MOST_GROUPS = 100_000
"""So many groups of one measure are looked at, in all partitions of a chunk together."""


def measures_of(spec: TableSpec, rows: DataFrame) -> Measures:
    """Return what a spec's expectations measure, by partition.

    Raises:
        ConfigurationError: A measure is taken by a column of too many values.
    """
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
    group = column(by).cast("string") if by else F.lit("")
    needed: dict[str, Column] = {}
    for expected in expectations:
        if expected.column:
            aggregates = _aggregates(expected.column, spec.columns[expected.column].type)
            needed |= {_alias(field, expected.column): aggregates[field] for field in NEEDED[expected.function]}
    counted = rows.groupBy(
        column(spec.partition_column).cast("string").alias("_ba_value"), group.alias("_ba_group")
    ).agg(F.count(F.lit(1)).alias("_ba_rows"), *(each.alias(name) for name, each in needed.items()))
    found = counted.limit(MOST_GROUPS + 1).collect()
    if len(found) > MOST_GROUPS:
        raise ConfigurationError(
            f"`{spec.key}`: `{expectations[0].name}` has more than {MOST_GROUPS:,} groups in the partitions of one "
            "chunk.",
            state=NOTHING_WRITTEN,
            remedy="Take it by a column of fewer values, or set `chunk.max_partitions`.",
        )
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
