"""One comparison of two frames: the rows in which they differ, counted and named.

Both sides are narrowed by checksums to the buckets of keys that differ; only the rows of those buckets are compared. If
two sides of ten million rows differ in one row, both are read once more to find its bucket, and once to compare it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from backfill_assets.core.history.ports import Difference
from backfill_assets.core.history.row_difference import RowDifference
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, named_by_key, values_of
from backfill_assets.lake.tally import rows_by_partition
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import checksum_lanes, collected, column, row_hash, valid_text

BUCKETS = 4_096
"""Number of parts into which the keys of large sides are cut."""

LARGE = 100_000
"""From this number of rows on, the buckets that differ are searched first."""

_MOST_DIFFERING = BUCKETS // 8
"""If more buckets differ, whole sides are compared."""

_PARTITION, _KIND, _SOURCE_TIMES, _TABLE_TIMES = "_ba_partition", "_ba_kind", "_ba_source_times", "_ba_table_times"
_CHANGED, _IN_SOURCE, _IN_TABLE = "_ba_changed", "_ba_in_source", "_ba_in_table"
_NTH = "_ba_nth"
"""Number of a row among those with the same key, so that each is in one pair."""


@contextmanager
def compare(
    spec: TableSpec,
    source_rows: DataFrame,
    table_rows: DataFrame,
    *,
    rows: int,
    sides: tuple[str, str] = ("the source", "the table"),
) -> Iterator[Compared]:
    """Compare the spec's columns of two frames, partition by partition. The rows are kept until the end of the block.

    Args:
        rows: Approximate number of rows on each side.
        sides: What a message calls them.
    """
    columns = [column(name) for name in (*spec.columns, spec.partition_column)]
    source, table = source_rows.select(*columns), table_rows.select(*columns)
    if rows >= LARGE:
        source, table = _narrowed(spec, source, table)
    of_source, of_table = persist(source.exceptAll(table)), persist(table.exceptAll(source))
    try:
        pairs = _paired(spec, (source, of_source), (table, of_table))
        yield Compared(spec, of_source, of_table, pairs, sides)
    finally:
        of_source.unpersist()
        of_table.unpersist()


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows in which two sides differ. The same row twice counts twice.

    Args:
        only_in_source: Rows that the table does not have, or has less often.
        only_in_table: Rows that the source does not have, or has less often.
        pairs: Both, joined by partition and key.
    """

    spec: TableSpec
    only_in_source: DataFrame
    only_in_table: DataFrame
    pairs: DataFrame
    sides: tuple[str, str]

    def differences(self) -> dict[str, Difference]:
        """Return how many rows only one side has, by partition key, and name a few of them."""
        in_source, in_table = (rows_by_partition(self.spec, one) for one in (self.only_in_source, self.only_in_table))
        named: dict[str, list[str]] = {key: [] for key in (*in_source, *in_table)}
        if not named:
            return {}
        for row in self._read(first_of_each(self.pairs, [F.col(_PARTITION), F.col(_KIND)], EXAMPLES)):
            named[row.partition].append(self._named(row))
        return {
            key: Difference(in_source.get(key, 0), in_table.get(key, 0), tuple(examples))
            for key, examples in sorted(named.items())
        }

    def count(self) -> int:
        """Return the number of pairs."""
        return self.pairs.count()

    def rows(self, most: int) -> list[RowDifference]:
        """Return the first pairs, in the order of their partitions."""
        return self._read(self._first(most))

    def arrow(self, most: int) -> Any:
        """Return the same pairs as an Arrow table, with the types of the spec."""
        names = [side(name) for name in self.spec.columns for side in (_in_source, _in_table)]
        chosen = self._first(most).select(
            F.col(_PARTITION).cast("string").alias("partition"),
            F.col(_KIND).alias("difference"),
            F.concat_ws(",", _CHANGED).alias("differs_in"),
            F.col(_SOURCE_TIMES).alias("source_times"),
            F.col(_TABLE_TIMES).alias("table_times"),
            *map(column, names),
        )
        found: Any = valid_text(chosen).toArrow()
        keys = [self.spec.grid.key_of(value) for value in found.column("partition").to_pylist()]
        return found.set_column(0, "partition", [keys])

    def _first(self, most: int) -> DataFrame:
        return self.pairs.orderBy(F.col(_PARTITION)).limit(most)

    def _read(self, pairs: DataFrame) -> list[RowDifference]:
        return [_difference_of(self.spec, row) for row in collected(_in_text(self.spec, pairs))]

    def _named(self, found: RowDifference) -> str:
        """Name a row that differs by its key; with its values only if `checks.show_values` says so."""
        row, shows = found.either, self.spec.checks.show_values
        source, table = self.sides
        named = values_of(row, row) if shows else named_by_key(self.spec, row)
        match found.kind:
            case "missing":
                return f"only in {source}: {named}"
            case "extra":
                return f"only in {table}: {named}"
            case "repeated":
                times = f"{found.source_times:,} in {source}, {found.table_times:,} in {table}"
                times += f", one differs in {', '.join(found.columns)}" if found.columns else ""
                return f"{times}: {named}"
            case "different":
                what = f"differs in {', '.join(found.columns)}: {named_by_key(self.spec, row)}"
                if not shows or found.source is None or found.table is None:
                    return what
                of_source, of_table = values_of(found.source, found.columns), values_of(found.table, found.columns)
                return f"{what} ({source.removeprefix('the ')}: {of_source}; {table.removeprefix('the ')}: {of_table})"


def _in_source(name: str) -> str:
    """Return the name that a column of the source has in a pair of rows."""
    return f"{name}_source"


def _in_table(name: str) -> str:
    """Return the name that a column of the table has in a pair of rows."""
    return f"{name}_table"


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
    nth = F.row_number().over(Window.partitionBy(*map(column, by)).orderBy(*map(column, names)))
    sides = [
        one_side.withColumn(_NTH, nth).select(
            *(column(name).alias(f"{name}{suffix}") for name in (here, *names, _NTH)), F.lit(1).alias(is_there)
        )
        for one_side, suffix, is_there in (
            (source[1], "_source", _IN_SOURCE),
            (table[1], "_table", _IN_TABLE),
        )
    ]
    same = [column(_in_source(name)).eqNullSafe(column(_in_table(name))) for name in (*by, _NTH)]
    pairs = sides[0].join(sides[1], reduce(and_, same), "full_outer")
    keys = [F.coalesce(column(_in_source(name)), column(_in_table(name))) for name in by]
    pairs = pairs.select("*", *(key.alias(f"_ba_key_{i}") for i, key in enumerate(keys)))
    for (all_rows, _), times in ((source, _SOURCE_TIMES), (table, _TABLE_TIMES)):
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
        .when(F.col(_TABLE_TIMES) == 0, "missing")
        .when(F.col(_SOURCE_TIMES) == 0, "extra")
        .otherwise("repeated")
    )
    pairs = pairs.withColumns({_KIND: kind, **_filled(names)})
    has_both = F.col(_KIND).isin("different", "repeated")
    differs = [
        F.when(has_both & ~column(_in_source(name)).eqNullSafe(column(_in_table(name))), F.lit(name)) for name in names
    ]
    return pairs.select(
        F.col("_ba_key_0").alias(_PARTITION),
        _KIND,
        _SOURCE_TIMES,
        _TABLE_TIMES,
        F.array_compact(F.array(*differs)).alias(_CHANGED),
        (F.col(_SOURCE_TIMES) > 0).alias(_IN_SOURCE),
        (F.col(_TABLE_TIMES) > 0).alias(_IN_TABLE),
        *(column(side(name)) for name in names for side in (_in_source, _in_table)),
    )


def _filled(names: Sequence[str]) -> dict[str, Column]:
    """Return the values of both sides: of a row whose key is on the other side too, one of that side's rows."""
    found: dict[str, Column] = {}
    for side, is_there, times in ((_in_source, _IN_SOURCE, _SOURCE_TIMES), (_in_table, _IN_TABLE, _TABLE_TIMES)):
        for name in names:
            other = F.col(f"{times}_row")[name]
            found[side(name)] = F.when(F.col(is_there).isNull(), other).otherwise(column(side(name)))
    return found


def _in_text(spec: TableSpec, pairs: DataFrame) -> DataFrame:
    """Return pairs of rows with every value as text: Python would show instants in its machine's zone."""
    as_text = {
        side(name): _text(column(side(name)), kind.type)
        for name, kind in spec.columns.items()
        for side in (_in_source, _in_table)
    }
    return pairs.withColumns(as_text).withColumn(_PARTITION, F.col(_PARTITION).cast("string"))


def _text(value: Column, kind: str) -> Column:
    if kind == "timestamp":
        return F.concat(value.cast("string"), F.lit("Z"))
    return F.base64(value) if kind == "binary" else value.cast("string")


def _difference_of(spec: TableSpec, row: Row) -> RowDifference:
    """Read a pair of rows whose values are text."""
    of_source, of_table = ({name: row[side(name)] for name in spec.columns} for side in (_in_source, _in_table))
    return RowDifference(
        spec.grid.key_of(row[_PARTITION]),
        row[_KIND],
        of_source if row[_IN_SOURCE] else None,
        of_table if row[_IN_TABLE] else None,
        tuple(row[_CHANGED]),
        source_times=row[_SOURCE_TIMES],
        table_times=row[_TABLE_TIMES],
    )
