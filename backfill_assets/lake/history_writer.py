"""The commit of history: in the lock, refused where it may not be made, found again where its answer was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Commit
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import refuse_live
from backfill_assets.core.state.receipts import Receipt
from backfill_assets.errors import NOTHING_WRITTEN, TRIED_AGAIN, CommitConflictError
from backfill_assets.lake.delta_log import (
    LoggedCommit,
    newest_version,
    no_table,
    read_commits,
)
from backfill_assets.lake.overwrite import overwrite
from backfill_assets.lake.properties import read_fence
from backfill_assets.lake.saving import saving
from backfill_assets.lake.versions_writing import versions_writing
from backfill_assets.spark.failures import SPARK_FAILURES, jvm_is_gone


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """Replaces partitions of one table.

    Args:
        log: Called with one sentence whenever a person would want to know.
    """

    spark: SparkSession
    spec: TableSpec
    path: str
    log: Callable[[str], None]
    lock_timeout_seconds: float

    def commit(self, rows: DataFrame, partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        """Replace every row of the given partitions, in one commit that carries the receipt.

        Raises:
            LivePartitionsError: The live stream owns one of them by now. The table is unchanged.
            CommitConflictError: Another writer changed these partitions. The table is unchanged; a retry is safe.
            TableLockedError: Another writer holds the lock. The table is unchanged; a retry is safe.
            UnsafeWriteError: There is no table any more: the write would make one that nothing checks.
            MemoryExhaustedError: Spark ran out of memory. The table is unchanged; a smaller chunk helps.
        """
        with saving(self.path, self.spec.key, timeout_seconds=self.lock_timeout_seconds):
            refuse_live(self.spec, partitions, read_fence(self.spark, self.spec, self.path))
            self._refuse_overtaken(partitions, receipt)
            try:
                written = overwrite(self.spark, self.spec, self.path, rows, partitions, receipt=receipt)
            except SPARK_FAILURES as error:
                landed = None if jvm_is_gone(error) else self._find(receipt)
                if landed is None:
                    raise
                self.log(f"The answer to a commit was lost, but it is there: version {landed.version}.")
                return self._as_commit(landed, None)
            landed = self._find(receipt)
        if landed is None:  # Delta promises that it is there, where no other driver can write over it
            raise CommitConflictError(
                f"`{self.spec.key}`: a save returned without an error, and its commit is not in the log: another "
                "driver has written over it.",
                state="Nothing of it is in the table.",
                remedy=f"{TRIED_AGAIN} On S3 name a log store: docs/places.md.",
            )
        return self._as_commit(landed, written)

    def _refuse_overtaken(self, partitions: Sequence[Partition], receipt: Receipt) -> None:
        """Spare a write that could only be older than what is there already, or that would make the table by itself."""
        newest = newest_version(self.spark, self.path)
        if newest < 0:
            raise no_table(self.spec, self.path)
        if newest < receipt.staged_from_version:
            raise CommitConflictError(
                f"`{self.spec.key}`: the table is at version {newest}, and this chunk was staged from version "
                f"{receipt.staged_from_version}: it was removed and made again meanwhile.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
            )
        since = range(receipt.staged_from_version + 1, newest + 1)
        column = self.spec.partition_column
        overtaken = versions_writing(self.spark, self.path, since, column, partitions, forgotten_too=True)
        if overtaken:
            raise CommitConflictError(
                f"`{self.spec.key}`: version {overtaken[-1]} wrote partitions of this chunk after it was staged "
                f"from version {receipt.staged_from_version}.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
            )

    def _find(self, receipt: Receipt) -> LoggedCommit | None:
        """Find our own commit in the log, newest first."""
        newest = newest_version(self.spark, self.path)
        for version in range(newest, receipt.staged_from_version, -1):
            (commit,) = read_commits(self.spark, self.path, [version], self.spec.partition_column)
            if commit.receipt is not None and commit.receipt.receipt_id == receipt.receipt_id:
                return commit
        return None

    def _as_commit(self, landed: LoggedCommit, written: tuple[int, int] | None) -> Commit:
        """Return a commit with keys of partitions instead of the values in the log."""
        key_of = self.spec.grid.key_of
        return Commit(
            landed.version,
            {key_of(value): rows for value, rows in landed.rows.items()},
            {key_of(value): size for value, size in landed.size_bytes.items()},
            written,
            {key_of(value): rows for value, rows in landed.rows_removed.items()},
        )
