"""The rows in which two sides differ: narrowed to where they can be by checksums, then compared by key.

Two sides of ten million rows that differ in one are read once more each to find the bucket of keys in which that lies,
and once more to compare the rows of that bucket: nothing else is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from backfill_assets.core.history.row_difference import RowDifference
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import checksum_lanes, column, row_hash, valid_text

BUCKETS = 4_096
"""Into so many parts the keys of large sides are cut."""

LARGE = 100_000
"""Rows from which on it pays to look for the buckets first."""

_MOST_DIFFERING = BUCKETS // 8
"""Where more buckets differ, whole sides are compared."""

PARTITION, KIND, SOURCE_TIMES, TABLE_TIMES = "_ba_partition", "_ba_kind", "_ba_source_times", "_ba_table_times"
_CHANGED, _IN_SOURCE, _IN_TABLE = "_ba_changed", "_ba_in_source", "_ba_in_table"


def in_source(name: str) -> str:
    """Return the name that a column of the source has in a pair of rows."""
    return f"{name}_source"


def in_table(name: str) -> str:
    """Return the name that a column of the table has in a pair of rows."""
    return f"{name}_table"


@contextmanager
def one_sided(
    spec: TableSpec, source_rows: DataFrame, table_rows: DataFrame, *, rows: int
) -> Iterator[tuple[DataFrame, DataFrame, DataFrame]]:
    """Give the rows that only the source has, those that only the table has, and both together in pairs.

    The same row twice counts twice. All are held until the end of the block.

    Args:
        rows: About so many rows there are on each side.
    """
    columns = [column(name) for name in (*spec.columns, spec.partition_column)]
    source, table = source_rows.select(*columns), table_rows.select(*columns)
    if rows >= LARGE:
        source, table = _narrowed(spec, source, table)
    of_source, of_table = persist(source.exceptAll(table)), persist(table.exceptAll(source))
    try:
        yield of_source, of_table, _paired(spec, (source, of_source), (table, of_table))
    finally:
        of_source.unpersist()
        of_table.unpersist()


def _narrowed(spec: TableSpec, source: DataFrame, table: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return both sides without the rows of keys among which they are the same, by count and checksum."""
    bucket = F.pmod(F.xxhash64(*map(column, _names_of_a_row(spec))), F.lit(BUCKETS))
    here, there = _sums(spec, source, bucket, "here"), _sums(spec, table, bucket, "there")
    same = [F.col(f"_ba_{name}_here").eqNullSafe(F.col(f"_ba_{name}_there")) for name in ("n", "high", "low")]
    pairs = [F.col(f"_ba_{name}_here").eqNullSafe(F.col(f"_ba_{name}_there")) for name in ("value", "bucket")]
    differing = here.join(there, reduce(and_, pairs), "full_outer").where(~reduce(and_, same))
    found = differing.select(F.coalesce("_ba_bucket_here", "_ba_bucket_there").alias("bucket")).distinct()
    buckets = [row["bucket"] for row in found.limit(_MOST_DIFFERING + 1).collect()]
    if len(buckets) > _MOST_DIFFERING:
        return source, table
    return source.where(bucket.isin(buckets)), table.where(bucket.isin(buckets))


def _sums(spec: TableSpec, rows: DataFrame, bucket: Column, side: str) -> DataFrame:
    high, low = checksum_lanes(row_hash(spec))
    groups = column(spec.partition_column).alias(f"_ba_value_{side}"), bucket.alias(f"_ba_bucket_{side}")
    return rows.groupBy(*groups).agg(
        F.count(F.lit(1)).alias(f"_ba_n_{side}"), high.alias(f"_ba_high_{side}"), low.alias(f"_ba_low_{side}")
    )


def _names_of_a_row(spec: TableSpec) -> Sequence[str]:
    """Return the columns by which a row is found on the other side: its key, or all there are."""
    return spec.key_columns or list(spec.columns)


def _paired(spec: TableSpec, source: tuple[DataFrame, DataFrame], table: tuple[DataFrame, DataFrame]) -> DataFrame:
    """Join the rows of two sides by key, and say of each pair what it is, and which columns differ.

    Args:
        source: All of its rows, and those that the table lacks.
        table: Likewise.
    """
    here, names = spec.partition_column, list(spec.columns)
    by = [here, *_names_of_a_row(spec)]
    sides = [
        one_side.select(*(column(name).alias(f"{name}{suffix}") for name in (here, *names)), F.lit(1).alias(is_there))
        for one_side, suffix, is_there in (
            (source[1], "_source", _IN_SOURCE),
            (table[1], "_table", _IN_TABLE),
        )
    ]
    same = [column(in_source(name)).eqNullSafe(column(in_table(name))) for name in by]
    pairs = sides[0].join(sides[1], reduce(and_, same), "full_outer")
    keys = [F.coalesce(column(in_source(name)), column(in_table(name))) for name in by]
    pairs = pairs.select("*", *(key.alias(f"_ba_key_{i}") for i, key in enumerate(keys)))
    for (all_rows, _), times in ((source, SOURCE_TIMES), (table, TABLE_TIMES)):
        one_row = F.min(F.struct(*map(column, names))).alias(f"{times}_row")
        counted = all_rows.groupBy(*map(column, by)).agg(F.count(F.lit(1)).alias(times), one_row)
        renamed = counted.select(
            *(column(name).alias(f"{times}_{i}") for i, name in enumerate(by)), times, f"{times}_row"
        )
        found = [F.col(f"_ba_key_{i}").eqNullSafe(F.col(f"{times}_{i}")) for i in range(len(by))]
        pairs = pairs.join(renamed, reduce(and_, found), "left").withColumn(times, F.coalesce(F.col(times), F.lit(0)))
    in_both = F.col(_IN_SOURCE).isNotNull() & F.col(_IN_TABLE).isNotNull()
    kind = (
        F.when(in_both, "different")
        .when(F.col(TABLE_TIMES) == 0, "missing")
        .when(F.col(SOURCE_TIMES) == 0, "extra")
        .otherwise("repeated")
    )
    pairs = pairs.withColumns({KIND: kind, **_filled(names)})
    has_both = F.col(KIND).isin("different", "repeated")
    differs = [
        F.when(has_both & ~column(in_source(name)).eqNullSafe(column(in_table(name))), F.lit(name)) for name in names
    ]
    return pairs.select(
        F.col("_ba_key_0").alias(PARTITION),
        KIND,
        SOURCE_TIMES,
        TABLE_TIMES,
        F.array_compact(F.array(*differs)).alias(_CHANGED),
        (F.col(SOURCE_TIMES) > 0).alias(_IN_SOURCE),
        (F.col(TABLE_TIMES) > 0).alias(_IN_TABLE),
        *(column(side(name)) for name in names for side in (in_source, in_table)),
    )


def _filled(names: Sequence[str]) -> dict[str, Column]:
    """Return the values of both sides: of a row whose key is on the other side too, one of that side's rows."""
    found: dict[str, Column] = {}
    for side, is_there, times in ((in_source, _IN_SOURCE, SOURCE_TIMES), (in_table, _IN_TABLE, TABLE_TIMES)):
        for name in names:
            other = F.col(f"{times}_row")[name]
            found[side(name)] = F.when(F.col(is_there).isNull(), other).otherwise(column(side(name)))
    return found


def values_in_text(spec: TableSpec, pairs: DataFrame) -> DataFrame:
    """Return pairs of rows with every value as text: Python would show instants in its machine's zone."""
    as_text = {
        side(name): _text(column(side(name)), kind.type)
        for name, kind in spec.columns.items()
        for side in (in_source, in_table)
    }
    return pairs.withColumns(as_text).withColumn(PARTITION, F.col(PARTITION).cast("string"))


def _text(value: Column, kind: str) -> Column:
    if kind == "timestamp":
        return F.concat(value.cast("string"), F.lit("Z"))
    return F.base64(value) if kind == "binary" else value.cast("string")


def difference_of(spec: TableSpec, row: Row) -> RowDifference:
    """Read a pair of rows whose values are text."""
    of_source, of_table = ({name: row[side(name)] for name in spec.columns} for side in (in_source, in_table))
    return RowDifference(
        spec.grid.key_of(row[PARTITION]),
        row[KIND],
        of_source if row[_IN_SOURCE] else None,
        of_table if row[_IN_TABLE] else None,
        tuple(row[_CHANGED]),
        source_times=row[SOURCE_TIMES],
        table_times=row[TABLE_TIMES],
    )


def arrow_of(spec: TableSpec, pairs: DataFrame) -> Any:
    """Return pairs of rows as an Arrow table, with the types that they have."""
    names = [side(name) for name in spec.columns for side in (in_source, in_table)]
    chosen = pairs.select(
        F.col(PARTITION).cast("string").alias("partition"),
        F.col(KIND).alias("difference"),
        F.concat_ws(",", _CHANGED).alias("differs_in"),
        F.col(SOURCE_TIMES).alias("source_times"),
        F.col(TABLE_TIMES).alias("table_times"),
        *map(column, names),
    )
    found: Any = valid_text(chosen).toArrow()
    keys = [spec.grid.key_of(value) for value in found.column("partition").to_pylist()]
    return found.set_column(0, "partition", [keys])
