"""Rows with the same key: which of them counts, and which are superseded."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.spark.expressions import all_of, column, row_hash

IS_LATE = "_ba_is_late"
"""Column of rows that says whether a row comes from the late rows."""


def winners(spec: TableSpec, rows: DataFrame) -> DataFrame:
    """Keep of each key the row that wins; of rows as new as each other the source's, and always the same one.

    A late row that is as new as the source's is a copy of it, and may be from before a column was added. Of two late
    ones that are as new as each other that one wins which has values in more columns.

    Args:
        rows: Of the table's columns; `IS_LATE` says which ones are late, if any are.
    """
    by_key = Window.partitionBy(column(spec.partition_column), *(column(name) for name in spec.key_columns)).orderBy(
        *(column(name).desc_nulls_last() for name in spec.latest_wins_by),
        *(_by_lateness(spec) if IS_LATE in rows.columns else []),
        row_hash(spec).desc(),
    )
    ranked = rows.withColumn("_ba_rank", F.row_number().over(by_key))
    return ranked.where("_ba_rank = 1").drop("_ba_rank")


def _by_lateness(spec: TableSpec) -> list[Column]:
    has_value = [F.when(column(name).isNull(), 0).otherwise(1) for name in spec.columns]
    return [column(IS_LATE).asc(), F.when(column(IS_LATE), reduce(add, has_value)).desc_nulls_last()]


def lost_rows(spec: TableSpec, table_rows: DataFrame, staged_rows: DataFrame) -> DataFrame:
    """Return the rows of the table that staged rows neither have nor supersede.

    A staged row has a row of the table if it has each of its values. Where that has none nothing can be lost: the
    column may be younger than the row. A staged row with the same key, in the same partition, supersedes it if it is
    newer: a key may come once in each partition.
    """
    names = [*spec.columns, spec.partition_column]
    table_rows, staged_rows = (rows.select(*map(column, names)) for rows in (table_rows, staged_rows))
    if not spec.key_columns:
        return _lost_without_keys(spec, table_rows, staged_rows)
    aliases = {name: f"_ba_staged_{i}" for i, name in enumerate(names)}
    others = {*spec.columns} - {*spec.key_columns}
    staged = staged_rows.select(*(column(name).alias(alias) for name, alias in aliases.items()))
    same_key = all_of(column(name).eqNullSafe(F.col(aliases[name])) for name in names if name not in others)
    covers = all_of(column(n).isNull() | column(n).eqNullSafe(F.col(a)) for n, a in aliases.items())
    if newest := spec.latest_wins_by:
        ours = F.struct(*(F.col(aliases[name]).alias(f"_{i}") for i, name in enumerate(newest)))
        theirs = F.struct(*(column(name).alias(f"_{i}") for i, name in enumerate(newest)))
        covers = (ours > theirs) | ((ours == theirs) & covers)
    return table_rows.join(staged, same_key & covers, "left_anti")


def _lost_without_keys(spec: TableSpec, table_rows: DataFrame, staged_rows: DataFrame) -> DataFrame:
    """Return the rows that are there more often than staged, without columns that have no value in their partition."""
    here = column(spec.partition_column)
    counts = (F.count(column(name)).alias(f"_ba_filled_{i}") for i, name in enumerate(spec.columns))
    values: dict[tuple[str, ...], list[Any]] = {}
    for row in table_rows.groupBy(here.alias("_ba_here")).agg(*counts).collect():
        filled = tuple(name for i, name in enumerate(spec.columns) if row[f"_ba_filled_{i}"])
        values.setdefault(filled, []).append(row["_ba_here"])
    lost = table_rows.limit(0)
    for filled, partitions in values.items():
        columns = [*map(column, filled), here]
        theirs, ours = (rows.where(here.isin(partitions)).select(*columns) for rows in (table_rows, staged_rows))
        lost = lost.unionByName(theirs.exceptAll(ours), allowMissingColumns=True)
    return lost
