"""Staged rows held against the table's: which rows only one side has, counted, and a few of them named."""

from __future__ import annotations

from pyspark.sql import DataFrame

from backfill_assets.core.history.audit import AuditRule, Finding
from backfill_assets.core.history.ports import Difference
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.latest_wins import lost_rows
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, in_text, named_by_key, values_of
from backfill_assets.lake.tally import rows_by_partition
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import column


def differences(spec: TableSpec, staged_rows: DataFrame, table_rows: DataFrame) -> dict[str, Difference]:
    """Return the rows that only one of two sides has, by partition key; the same row twice counts twice."""
    here, names = spec.partition_column, [*spec.columns, spec.partition_column]
    columns = [column(name) for name in names]
    source_side, table_side = staged_rows.select(*columns), table_rows.select(*columns)
    sides = {"source": source_side.exceptAll(table_side), "table": table_side.exceptAll(source_side)}
    counts: dict[str, dict[str, int]] = {"source": {}, "table": {}}
    examples: dict[str, list[str]] = {}
    for side, rows in sides.items():
        kept = persist(rows)
        counts[side] = rows_by_partition(spec, kept)
        for row in in_text(spec, first_of_each(kept, column(here), EXAMPLES)).collect():
            named = f"only in the {side}: {values_of(spec, row)}"
            examples.setdefault(spec.grid.key_of(row[here]), []).append(named)
        kept.unpersist()
    return {
        key: Difference(counts["source"].get(key, 0), counts["table"].get(key, 0), tuple(named))
        for key, named in examples.items()
    }


def rows_missing_from_source(spec: TableSpec, staged_rows: DataFrame, table_rows: DataFrame) -> dict[str, Finding]:
    """Return the rows of the table that staged rows neither have nor supersede, by partition key."""
    lost = persist(lost_rows(spec, table_rows, staged_rows))
    counts = rows_by_partition(spec, lost)
    named: dict[str, list[str]] = {}
    if counts:
        for row in in_text(spec, first_of_each(lost, column(spec.partition_column), EXAMPLES)).collect():
            key = spec.grid.key_of(row[spec.partition_column])
            named.setdefault(key, []).append(named_by_key(spec, row))
    lost.unpersist()
    folds = spec.live is not None and spec.live.late == "fold"
    keeps = f"`backfill-assets fence {spec.key} --carry-live-rows`" if folds else "exporting them to the source too"
    what = (
        f"rows of the table, which no publish put there, are not among the source's; {keeps} keeps them, "
        "`discard_uncovered_rows: true` in the run's config discards them."
    )
    return {
        key: Finding(AuditRule.LIVE_ROWS_ARE_COVERED, count, f"{count:,} {what}", tuple(named.get(key, ())))
        for key, count in counts.items()
    }
