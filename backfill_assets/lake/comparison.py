"""Staged rows held against the table's: which rows only one side has, counted, and a few of them named."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.history.ports import Difference
from backfill_assets.core.history.row_difference import RowDifference
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.lake.row_differences import KIND, PARTITION, difference_of, one_sided, values_in_text
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, named_by_key, values_of
from backfill_assets.lake.tally import contents, rows_by_partition
from backfill_assets.spark.expressions import collected


def differences(spec: TableSpec, staged_rows: DataFrame, table_rows: DataFrame, *, rows: int) -> dict[str, Difference]:
    """Return the rows that only one of two sides has, by partition key; the same row twice counts twice.

    Args:
        rows: About so many rows there are on each side.
    """
    both = one_sided(spec, staged_rows, table_rows, rows=rows)
    with both as (in_source, in_table, pairs):
        counts = rows_by_partition(spec, in_source), rows_by_partition(spec, in_table)
        examples: dict[str, list[str]] = {}
        if any(counts):
            few = first_of_each(pairs, [F.col(PARTITION), F.col(KIND)], EXAMPLES)
            for row in collected(values_in_text(spec, few)):
                examples.setdefault(spec.grid.key_of(row[PARTITION]), []).append(_named(spec, difference_of(spec, row)))
    return {
        key: Difference(counts[0].get(key, 0), counts[1].get(key, 0), tuple(named)) for key, named in examples.items()
    }


def same_rows(spec: TableSpec, table_rows: DataFrame, staged: Mapping[str, Tally]) -> frozenset[str]:
    """Return the partitions whose rows in the table are exactly those that were tallied."""
    found = contents(spec, table_rows)
    nothing = EMPTY.rows, EMPTY.checksum
    return frozenset(key for key, tally in staged.items() if (tally.rows, tally.checksum) == found.get(key, nothing))


def _named(spec: TableSpec, found: RowDifference) -> str:
    """Name a row that differs: by its key, and with its values only where the spec says so."""
    row, shows = found.either, spec.checks.show_values
    named = named_by_key(spec, row)
    match found.kind:
        case "missing" | "extra":
            side = "source" if found.kind == "missing" else "table"
            return f"only in the {side}: {values_of(row, row) if shows else named}"
        case "repeated":
            times = f"{found.source_times:,} in the source, {found.table_times:,} in the table"
            times += f", one differs in {', '.join(found.columns)}" if found.columns else ""
            return f"{times}: {values_of(row, row) if shows else named}"
        case "different":
            what = f"differs in {', '.join(found.columns)}: {named}"
            if not shows or found.source is None or found.table is None:
                return what
            of_source, of_table = values_of(found.source, found.columns), values_of(found.table, found.columns)
            return f"{what} (source: {of_source}; table: {of_table})"
