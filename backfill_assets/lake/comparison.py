"""Staged rows held against the table's: which rows only one side has, counted, and a few of them named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from backfill_assets.core.history.audit import AuditRule, Finding
from backfill_assets.core.history.ports import Difference
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.errors import StorageError, UnreadableSourceError
from backfill_assets.lake.latest_wins import lost_rows
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, in_text, named_by_key, values_of
from backfill_assets.lake.tally import contents, rows_by_partition
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import column
from backfill_assets.spark.failures import ANSWERED_FAILURES, first_words, translated


def differences(spec: TableSpec, staged_rows: DataFrame, table_rows: DataFrame) -> dict[str, Difference]:
    """Return the rows that only one of two sides has, by partition key; the same row twice counts twice."""
    columns = [column(name) for name in (*spec.columns, spec.partition_column)]
    source_side, table_side = staged_rows.select(*columns), table_rows.select(*columns)
    in_source, in_table = persist(source_side.exceptAll(table_side)), persist(table_side.exceptAll(source_side))
    counts = rows_by_partition(spec, in_source), rows_by_partition(spec, in_table)
    examples: dict[str, list[str]] = {}
    if any(counts):
        paired = _paired(spec, in_text(spec, in_source), in_text(spec, in_table))
        for row in first_of_each(paired, [column(spec.partition_column), F.col(_SIDE)], EXAMPLES).collect():
            examples.setdefault(spec.grid.key_of(row[spec.partition_column]), []).append(_named(spec, row))
    in_source.unpersist()
    in_table.unpersist()
    return {
        key: Difference(counts[0].get(key, 0), counts[1].get(key, 0), tuple(named)) for key, named in examples.items()
    }


def holding(
    spec: TableSpec, table_rows: DataFrame, staged: Mapping[str, Tally], log: Callable[[str], None]
) -> frozenset[str]:
    """Return the partitions whose rows in the table are exactly those that were tallied; none if one is unreadable."""
    try:
        with translated(spec.key):
            found = contents(spec, table_rows)
    except (UnreadableSourceError, StorageError, *ANSWERED_FAILURES) as error:
        log(f"`{spec.key}`: what the table has cannot be read, so it is written anew. {first_words(error)}")
        return frozenset()
    nothing = EMPTY.rows, EMPTY.checksum
    return frozenset(key for key, tally in staged.items() if (tally.rows, tally.checksum) == found.get(key, nothing))


_SIDE, _CHANGED = "_ba_side", "_ba_changed"
_SOURCE, _TABLE, _BOTH = "only in the source", "only in the table", "differs in"


def _paired(spec: TableSpec, in_source: DataFrame, in_table: DataFrame) -> DataFrame:
    """Join the rows of two sides by key, and say of each pair which columns differ; without keys, put them together."""
    here, names = spec.partition_column, list(spec.columns)
    if not spec.key_columns:
        return in_source.withColumn(_SIDE, F.lit(_SOURCE)).unionByName(in_table.withColumn(_SIDE, F.lit(_TABLE)))
    there = {name: f"_ba_there_{i}" for i, name in enumerate([here, *names])}
    others = in_table.select(*(column(name).alias(alias) for name, alias in there.items()), F.lit(1).alias("_ba_there"))
    same = [column(name).eqNullSafe(F.col(there[name])) for name in (here, *spec.key_columns)]
    pairs = in_source.withColumn("_ba_here", F.lit(1)).join(others, reduce(and_, same), "full_outer")
    differs = [F.when(~column(name).eqNullSafe(F.col(there[name])), F.lit(name)) for name in names]
    is_here, is_there = F.col("_ba_here").isNotNull(), F.col("_ba_there").isNotNull()
    side = F.when(is_here & is_there, _BOTH).when(is_here, _SOURCE).otherwise(_TABLE)
    shown = [F.when(is_here, column(name)).otherwise(F.col(there[name])).alias(name) for name in (here, *names)]
    return pairs.select(
        side.alias(_SIDE),
        F.array_compact(F.array(*differs)).alias(_CHANGED),
        *shown,
        *(F.col(there[name]) for name in names),
    )


def _named(spec: TableSpec, row: Row) -> str:
    """Name a row that differs: by its key, and with its values only where the spec says so."""
    side, names = row[_SIDE], list(spec.columns)
    if side != _BOTH:
        shown = dict.fromkeys([*spec.key_columns, *names]) if spec.checks.show_values else ()
        return f"{side}: {values_of(row, shown) or named_by_key(spec, row)}"
    changed = row[_CHANGED]
    found = f"{side} {', '.join(changed)}: {named_by_key(spec, row)}"
    if not spec.checks.show_values:
        return found
    in_table = ", ".join(f"{name}={row[f'_ba_there_{names.index(name) + 1}']}" for name in changed)
    return f"{found} (source: {values_of(row, changed)}; table: {in_table})"


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
    keeps = "exporting them to the source too keeps them"
    if folds:
        keeps = f"`backfill-assets fence {spec.key} --carry-live-rows` keeps those that are newer than the source's"
    what = (
        f"rows of the table, which no publish put there, are not among the source's; {keeps}, "
        "`discard_uncovered_rows: true` in the run's config discards them."
    )
    return {
        key: Finding(AuditRule.LIVE_ROWS_ARE_COVERED, count, f"{count:,} {what}", tuple(named.get(key, ())))
        for key, count in counts.items()
    }
