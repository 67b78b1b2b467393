"""What a table of a database has at one moment: added up by the database itself, and named where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Finding, unreadable_rows
from backfill_assets.core.history.moments import RowSums
from backfill_assets.core.history.ports import Scan
from backfill_assets.core.postgres import sql
from backfill_assets.core.postgres.queries import TableQueries
from backfill_assets.sources.database.snapshot import Snapshot
from backfill_assets.sources.database.unreadable import ByPartition

EXAMPLES = 3
"""Rows that are named for each partition in which some cannot be read."""


@dataclass(frozen=True, slots=True)
class DatabaseMoment:
    """One table at one moment.

    Args:
        scan: Describes the read of partitions in the snapshot.
    """

    snapshot: Snapshot
    queries: TableQueries
    scan: Callable[[Snapshot, Sequence[Partition]], Scan[DataFrame]]

    def sums(self, partitions: Sequence[Partition]) -> tuple[dict[str, RowSums], dict[str, list[Finding]]]:
        """Add up what each partition has, and say what is wrong with it, both by key. No row leaves the server."""
        asked = ByPartition(self.queries, self.snapshot.ask)
        found = {
            key: RowSums(rows, int(first), int(second), unreadable)
            for key, (rows, first, second, unreadable) in asked.answers(self.queries.sums, partitions)
        }
        wrong = {key: sums.unreadable for key, sums in found.items() if sums.unreadable}
        broken = {key: [finding] for key, finding in asked.findings.items()}
        return found, unreadable(self.snapshot, self.queries, wrong) | broken

    def rows(self, partitions: Sequence[Partition]) -> DataFrame:
        """Describe the read of their rows."""
        return self.scan(self.snapshot, sorted(partitions)).rows


def unreadable(snapshot: Snapshot, queries: TableQueries, rows: Mapping[str, int]) -> dict[str, list[Finding]]:
    """Name rows that cannot be what the spec says, by partition key.

    Args:
        rows: How many there are.
    """
    found: dict[str, list[Finding]] = {}
    for key, count in rows.items():
        partition = queries.spec.grid.partition(key)
        span = sql.begin_of(queries.spec, partition), sql.end_of(queries.spec, partition)
        query = queries.problems(span, EXAMPLES)
        named = [said for (said,) in snapshot.ask(query)] if query else []
        found[key] = [unreadable_rows(count, named)]
    return found
