"""The commit of history: in the lock, refused where it may not be made, found again where its answer was lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.effects import Effects, repeated
from backfill_assets.core.history.ports import Commit
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.fence import fence_of, first_fence, refuse_live
from backfill_assets.core.state.receipts import Receipt
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    TRIED_AGAIN,
    CommitConflictError,
    EngineFailedError,
    UncertainCommitError,
    UnsafeWriteError,
)
from backfill_assets.lake.definition import no_table
from backfill_assets.lake.overwrite import overwrite, refuse_unsafe_session
from backfill_assets.lake.saving import saving
from backfill_assets.lake.unpublished_rows import rows_by_key
from backfill_assets.spark.failures import SPARK_FAILURES, jvm_is_gone, translated
from backfill_assets.table.commit_files import file_options
from backfill_assets.table.log import LoggedCommit, TableLog
from backfill_assets.table.transaction import Transactions, WrittenFiles

ChosenFiles = tuple[WrittenFiles, Collection[str]]
"""Files of one write, and the values of the partition column whose files are not taken."""


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """Replaces partitions of one table.

    Args:
        log: Called with one sentence whenever a person would want to know.
    """

    spark: SparkSession
    spec: TableSpec
    path: str
    table_log: TableLog
    log: Callable[[str], None]
    lock_timeout_seconds: float

    def commit_files(
        self,
        files: Sequence[ChosenFiles],
        partitions: Sequence[Partition],
        receipt: Receipt,
        *,
        are_new: bool = True,
    ) -> Commit:
        """Replace the content of the given partitions by audited files, in one commit that carries the receipt.

        Args:
            are_new: Whether they were written for this commit; if not, they are those of an earlier version.

        Raises:
            As `commit_rows`; also UnreadableTableError: A file does not exist any more. The table is unchanged.
        """
        spec = self.spec
        transactions = Transactions(self.spark, self.path, spec.key, file_options(self.spark, self.path))
        values = {str(partition.value) for partition in partitions}
        chosen = [(some, values - {*without}) for some, without in files]
        predicate = replace_where(spec.partition_column, partitions)
        made: list[tuple[int, frozenset[str]]] = []

        def save() -> None:
            if are_new:
                self._refuse_other_rows(files, receipt)
            based_on = transactions.commit(
                chosen,
                predicate,
                values,
                receipt.to_json(),
                base=receipt.staged_from_version,
                check=lambda found: refuse_live(spec, partitions, fence_of(found, spec.key) or first_fence(spec)),
            )
            made.append(based_on)

        landed = self._saved(save, partitions, receipt)
        added = landed.added if made == [(landed.version - 1, landed.removed)] else None
        transactions.verify(chosen, predicate, version=landed.version, added=added)
        return replace(self._as_commit(landed, receipt.total), is_audited=True)

    def commit_rows(self, rows: DataFrame, partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        """Replace every row of the given partitions, in one commit that carries the receipt.

        Raises:
            LivePartitionsError: The live stream owns one of them by now. The table is unchanged.
            CommitConflictError: Another writer changed these partitions. The table is unchanged; a retry is safe.
            TableLockedError: Another writer holds the lock. The table is unchanged; a retry is safe.
            UnsafeWriteError: There is no table any more: the write would make one that nothing checks.
            MemoryExhaustedError: Spark ran out of memory. The table is unchanged; a smaller chunk helps.
            UncertainCommitError: Nobody could say whether the commit was made. It is whole in the table or absent.
        """
        written: list[tuple[int, int]] = []

        def save() -> None:
            written.append(overwrite(self.spark, self.spec, self.path, rows, partitions, receipt=receipt))

        landed = self._saved(save, partitions, receipt)
        return self._as_commit(landed, written[0] if written else None)

    def _saved(self, save: Callable[[], None], partitions: Sequence[Partition], receipt: Receipt) -> LoggedCommit:
        """Save under the table's lock, and find the commit in the log, also where its answer was lost."""
        with saving(self.path, self.spec.key, timeout_seconds=self.lock_timeout_seconds):
            refuse_live(
                self.spec,
                partitions,
                fence_of({**self.table_log.properties()}, self.spec.key) or first_fence(self.spec),
            )
            refuse_unsafe_session(self.spark, self.spec.key)
            self._refuse_overtaken(partitions, receipt)
            try:
                save()
            except SPARK_FAILURES as error:
                landed = None if jvm_is_gone(error) else self._find(receipt)
                if landed is None:
                    raise
                self.log(f"Spark reported a failure, but version {landed.version} was committed.")
                return landed
            landed = self._find(receipt)
        if landed is None:  # Delta promises that it is there, where no other driver can write over it
            raise CommitConflictError(
                f"`{self.spec.key}`: a save returned without an error, and its commit is not in the log: another "
                "driver has written over it.",
                state="Nothing of it is in the table.",
                remedy=f"{TRIED_AGAIN} On S3 name a log store: docs/places.md.",
            )
        return landed

    def _refuse_overtaken(self, partitions: Sequence[Partition], receipt: Receipt) -> None:
        """Spare a write that could only be older than what is there already, or that would make the table by itself."""
        newest = self.table_log.version()
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
        overtaken = self.table_log.versions_writing(since, self.spec.partition_column, partitions)
        if overtaken:
            raise CommitConflictError(
                f"`{self.spec.key}`: version {overtaken[-1]} wrote partitions of this chunk after it was staged "
                f"from version {receipt.staged_from_version}.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
            )

    def _find(self, receipt: Receipt) -> LoggedCommit | None:
        """Find our own commit in the log; ask again while the log cannot be read, for no commit is to be made twice.

        Raises:
            UncertainCommitError: It could not be read in any attempt.
        """
        failures = partial(translated, self.spec.key, self.path)
        try:
            return repeated(partial(self._look_for, receipt), Effects(log=self.log), failures=failures)
        except EngineFailedError as error:
            raise UncertainCommitError(
                f"{error.what} So nobody could say whether the commit of this chunk was made.",
                state="The chunk is whole in the table or absent; what was published before stays.",
                remedy="Launch again with `only: MISSING`: it looks for the commit first.",
                receipt_id=receipt.receipt_id,
            ) from None

    def _look_for(self, receipt: Receipt) -> LoggedCommit | None:
        """Look for our own commit in the log, newest first."""
        for version in range(self.table_log.version(), receipt.staged_from_version, -1):
            (commit,) = self.table_log.commits([version], self.spec.partition_column)
            if commit.receipt is not None and commit.receipt.receipt_id == receipt.receipt_id:
                return commit
        return None

    def _refuse_other_rows(self, files: Sequence[ChosenFiles], receipt: Receipt) -> None:
        """Compare the rows of audited files with those of the receipt: rows that were set aside are in no file."""
        counted = rows_by_key(self.spec, ((some.rows_by_value(), without) for some, without in files))
        wrong = [key for key, part in receipt.partitions.items() if counted.get(key, 0) not in (part.rows, None)]
        if wrong:
            raise UnsafeWriteError(
                f"`{self.spec.key}`: the files of {len(wrong)} partitions do not hold the rows of their receipt (first "
                f"`{wrong[0]}`): some rows lie outside the partitions, or have NULL where none is allowed.",
                state=NOTHING_WRITTEN,
                remedy="The audit lets no such partition pass: look for a change of the source while it was read.",
                partitions=wrong,
            )

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
