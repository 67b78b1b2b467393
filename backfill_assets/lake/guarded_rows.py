"""Rows of the table that a guard keeps, held against staged rows: which would get lost, or be others."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Finding
from backfill_assets.core.history.guards import NO_OTHERS, Guard, KeyRange, Others
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.compare import compare
from backfill_assets.lake.latest_wins import lost_rows
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, in_text, named_by_key
from backfill_assets.lake.staged_chunk import rows_of
from backfill_assets.lake.tally import rows_by_partition
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import collected, column, joined_by


def rows_at_stake(
    spec: TableSpec,
    guard: Guard,
    sides: tuple[StagedChunk[DataFrame], DataFrame],
    partitions: Sequence[Partition],
    others: Others = NO_OTHERS,
) -> dict[str, Finding]:
    """Return the rows that a guard keeps, and staged rows would not, by partition key.

    Args:
        sides: What is staged, and the table's rows of the partitions.
    """
    staged, table_rows = sides
    staged_rows = rows_of(spec, staged, [*partitions, *others.written])
    match guard.rule:
        case AuditRule.OTHER_KEYS_ARE_UNCHANGED if guard.keys:
            outside = ~_within(spec, guard.keys)
            return _changed(spec, guard.keys, (staged_rows.where(outside), table_rows.where(outside)), staged.count)
        case AuditRule.KEYS_ARE_KEPT:
            if others.gone is not None:
                names = [spec.partition_column, *spec.key_columns]
                table_rows = joined_by(table_rows, others.gone, names, "left_anti")
            return _lost_keys(spec, (staged_rows, table_rows), staged.rows if others.refused else None)
        case _:
            return _lost(spec, guard.rule, lost_rows(spec, table_rows, staged_rows), _what_covers(spec))


def rows_with(spec: TableSpec, table_rows: DataFrame, keys: KeyRange) -> dict[str, int]:
    """Return how many rows have one of some keys, by partition key."""
    return rows_by_partition(spec, table_rows.where(_within(spec, keys)))


def _what_covers(spec: TableSpec) -> str:
    keeps = "exporting them to the source too keeps them"
    if spec.live is not None and spec.live.late == "fold":
        keeps = (
            f"`backfill-assets fence {spec.key} --carry-live-rows` keeps those that no publish put there, if they are "
            "newer than the source's"
        )
    return (
        f"rows of a partition with rows that no publish put there are not among the source's; {keeps}, and then "
        "`discard_uncovered_rows: true` in the run's config discards the rest."
    )


def _lost_keys(spec: TableSpec, sides: tuple[DataFrame, DataFrame], moved: DataFrame | None) -> dict[str, Finding]:
    """Return the rows of the table of which no staged row has the key.

    Args:
        moved: Everything that is staged, wherever it lies; if given, only its keys count.
    """
    names = spec.key_columns or list(spec.columns)
    staged_rows, table_rows = sides
    lost = joined_by(table_rows, staged_rows, names, "left_anti")
    if moved is None:
        what = "rows of the table have keys that the source has in no partition of this chunk; `keep_keys` keeps them."
    else:
        lost = joined_by(lost, moved, names, "left_semi")
        what = "rows of the table have keys that the source has in refused partitions; until those pass they stay here."
    return _lost(spec, AuditRule.KEYS_ARE_KEPT, lost, what)


def _lost(spec: TableSpec, rule: AuditRule, rows: DataFrame, what: str) -> dict[str, Finding]:
    """Count rows by partition, and name a few."""
    lost = persist(rows)
    named: dict[str, list[str]] = {}
    try:
        counts = rows_by_partition(spec, lost)
        if counts:
            for row in collected(in_text(spec, first_of_each(lost, column(spec.partition_column), EXAMPLES))):
                key = spec.grid.key_of(row[spec.partition_column])
                named.setdefault(key, []).append(named_by_key(spec, row))
    finally:
        lost.unpersist()
    return {key: Finding(rule, count, f"{count:,} {what}", tuple(named.get(key, ()))) for key, count in counts.items()}


def _changed(spec: TableSpec, keys: KeyRange, sides: tuple[DataFrame, DataFrame], rows: int) -> dict[str, Finding]:
    """Return the rows outside a range of keys that only one side has."""
    with compare(spec, *sides, rows=rows) as compared:
        found = compared.differences()
    return {
        key: Finding(
            AuditRule.OTHER_KEYS_ARE_UNCHANGED,
            one.only_in_source + one.only_in_table,
            f"outside {keys} the source has {one.only_in_source:,} rows that the table has not, and the table "
            f"{one.only_in_table:,} that the source has not; without `only_keys` they are published too.",
            one.examples,
        )
        for key, one in found.items()
    }


def _within(spec: TableSpec, keys: KeyRange) -> Column:
    kind = spec.columns[keys.column].type
    first, last = F.lit(keys.first).cast(kind), F.lit(keys.last).cast(kind)
    return F.coalesce(column(keys.column).between(first, last), F.lit(False))
