"""Rows with the same key: which of them counts, and which are superseded."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.spark.expressions import column, row_hash


def latest_wins(spec: TableSpec, rows: DataFrame, repeated: list[str], slices: int = 1) -> DataFrame:
    """Keep of each key the row that wins; of equal rows always the same one, whatever their order.

    Args:
        repeated: Keys of the partitions in which a key comes twice; other partitions are left as they are.
        slices: Into how many tasks each of these partitions goes.
    """
    here = column(spec.partition_column)
    values = [str(spec.grid.partition(key).value) for key in repeated]
    concerned = here.cast("string").isin(values)
    by_key = Window.partitionBy(here, *(column(name) for name in spec.key_columns)).orderBy(
        *(column(name).desc_nulls_last() for name in spec.latest_wins_by), row_hash(spec).desc()
    )
    ranked = rows.where(concerned).withColumn("_ba_rank", F.row_number().over(by_key))
    winners = ranked.where("_ba_rank = 1").drop("_ba_rank")
    winners = (
        in_slices(spec, winners, slices) if slices > 1 else winners.repartition(max(1, len(repeated) // 100), here)
    )
    return rows.where(here.isNull() | ~concerned).unionByName(winners)


def in_slices(spec: TableSpec, rows: DataFrame, slices: int) -> DataFrame:
    """Give each task one part of a partition: rows of the same key together, or any rows where there are no keys."""
    by = [column(name) for name in spec.key_columns] or [row_hash(spec)]
    return rows.repartition(slices, column(spec.partition_column), *by)


def lost_rows(spec: TableSpec, table_rows: DataFrame, staged_rows: DataFrame) -> DataFrame:
    """Return the rows of the table that held rows neither have nor supersede."""
    names = [*spec.columns, spec.partition_column]
    if not spec.key_columns:
        return table_rows.select(*map(column, names)).exceptAll(staged_rows.select(*map(column, names)))
    rank = F.struct(*(column(name) for name in spec.latest_wins_by), row_hash(spec))
    keys = {name: f"_ba_key_{i}" for i, name in enumerate(spec.key_columns)}
    staged = staged_rows.select(*(column(name).alias(alias) for name, alias in keys.items()), rank.alias("_ba_held"))
    covers = F.col("_ba_held") >= F.col("_ba_rank") if spec.latest_wins_by else F.col("_ba_held") == F.col("_ba_rank")
    for name, alias in keys.items():
        covers = covers & column(name).eqNullSafe(F.col(alias))
    return table_rows.withColumn("_ba_rank", rank).join(staged, covers, "left_anti").select(*map(column, names))
