"""The live side of one table: its appends, and the fence that it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.live.receipts import CLOSED, LiveReceipt
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.fence import Fence, is_history
from backfill_assets.core.state.partition_status import partitions_with_foreign_rows
from backfill_assets.errors import UndoError
from backfill_assets.lake.earlier import readable
from backfill_assets.lake.overwrite import refuse_unsafe_session
from backfill_assets.lake.properties import write_fence
from backfill_assets.lake.saving import saving
from backfill_assets.lake.side_tables import QuarantineTable
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import column
from backfill_assets.spark.storage import literal_path
from backfill_assets.table.commit_files import file_options

RECENT_COMMITS = 50
"""Commits that are looked through for a receipt before the whole log is."""


@dataclass(frozen=True, slots=True)
class LiveTable:
    """What a live writer, and whoever moves the fence, needs of a table. Implements `core.live.ports.LiveLake`."""

    table: LakeTable

    @property
    def quarantine(self) -> QuarantineTable:
        return QuarantineTable(self.table.spark, self.table.path)

    def fence(self) -> Fence | None:
        """Return the fence as it is now."""
        return self.table.fence()

    def append(self, rows: DataFrame, receipt: LiveReceipt, transaction: tuple[str, int]) -> bool:
        """Append rows in one commit that carries the receipt; return whether that commit is in the log.

        Raises:
            CommitConflictError: Another writer came between. The table is unchanged; a retry is safe.
            TableLockedError: Another writer holds the lock. The table is unchanged; a retry is safe.
        """
        refuse_unsafe_session(self.table.spark, self.table.spec.key)
        try:
            with self._saving(self.table.path):
                self._append(rows, receipt, transaction)
        except Exception:
            if self._is_in_log(receipt):
                self.table.log(f"The answer to the commit of batch {receipt.batch} was lost, but it is there.")
                return True
            raise
        return self._is_in_log(receipt)

    def close(self, receipt: LiveReceipt, transaction: tuple[str, int]) -> None:
        """Use up an epoch's transaction id by an empty commit."""
        with self._saving(self.table.path):
            self._append(self.table.no_rows(), receipt, transaction)

    def find(self, matches: Callable[[LiveReceipt], bool]) -> LiveReceipt | None:
        """Return the newest live receipt in the log for which something holds."""
        for newest in (RECENT_COMMITS, None):
            if newest is None and self.table.version() < RECENT_COMMITS:
                return None
            for _, receipt in self.receipts(newest=newest):
                if matches(receipt):
                    return receipt
        return None

    def receipts(self, *, newest: int | None = None) -> Iterator[tuple[datetime, LiveReceipt]]:
        """Return the receipts of the live side, the newest first, each with when it was committed."""
        yield from self.table.table_log.live_receipts(newest=newest)

    def used_up_to(self, name: str) -> int:
        """Return the largest number of a batch that a transaction id has used up, as the log's checkpoints tell it.

        Delta keeps it there when it cleans up the commits, and with them the receipts. -1 if it was no batch's, or the
        log has no checkpoint yet.
        """
        checkpoints = self.table.spark.read.schema("txn STRUCT<appId: STRING, version: BIGINT>")
        try:
            told = checkpoints.parquet(f"{literal_path(self.table.path)}/_delta_log/*.checkpoint*.parquet")
            of_batches = told.where((F.col("txn.appId") == name) & (F.col("txn.version") < CLOSED))
            (row,) = of_batches.agg(F.max("txn.version").alias("number")).collect()
        except AnalysisException:
            return -1
        return -1 if row["number"] is None else int(row["number"])

    def append_late(self, rows: DataFrame, transaction: tuple[str, int]) -> None:
        """Append to `<table>_late`; a transaction that was committed before does nothing."""
        late = self.table.late_table
        with self._saving(late.path):
            late.create()
            late.append(rows, stream=transaction[0].partition(":")[2], batch=transaction[1], transaction=transaction)

    def append_quarantine(self, rows: DataFrame, transaction: tuple[str, int]) -> None:
        """Append to `<table>_quarantine`; a transaction that was committed before does nothing."""
        with self._saving(self.quarantine.path):
            self.quarantine.create()
            self.quarantine.append(
                rows, stream=transaction[0].partition(":")[2], batch=transaction[1], transaction=transaction
            )

    def rows_from(self, at: datetime) -> int:
        """Return how many rows the table has in partitions that start at an instant or later."""
        first = self.table.spec.grid.partition_of(at).value
        return self.table.read().where(column(self.table.spec.partition_column) >= F.lit(first)).count()

    def store_fence(self, fence: Fence, *, instead_of: Fence) -> None:
        """Store a fence in the table's properties, unless another than `instead_of` is there by now."""
        with self._saving(self.table.path):
            if self.fence() == instead_of:
                write_fence(self.table.spark, self.table.path, fence)

    def carry_live_rows(self) -> int:
        """Append to `<table>_late` the rows of history partitions that no publish put there, as of one version.

        Of a partition that was never published that is every row. Rows that are there already are not appended again.
        Returns how many were.

        Raises:
            UndoError: What was published in some of them cannot be read any more. The rows of the others are carried.
        """
        fence = self.fence()
        spec, table = self.table.spec, self.table
        if fence is None:
            return 0
        history = [p for p in spec.grid.until(fence.at_utc) if is_history(p, fence)]
        if not history:
            return 0
        at = table.version()  # what is launched meanwhile is nobody's to carry
        of_all = table.published(until=at)
        published = {p.key: of_all[p.key] for p in history if p.key in of_all}
        since = table.written_by_others(published, version=at)
        sealed = partitions_with_foreign_rows(history, table.rows_now(history, version=at), published, since)
        if not sealed:
            return 0
        put_there: dict[int | None, list[Partition]] = {}
        for p in sealed:
            newest = published.get(p.key)
            while newest is not None and not newest.has_published_rows:
                newest = newest.restored  # what was put back may be a publish's rows and others
            put_there.setdefault(newest.version if newest else None, []).append(p)
        count, mixed = 0, dict[str, UndoError]()
        with self._saving(table.late_table.path):
            table.late_table.create()
            for version, partitions in sorted(put_there.items(), key=lambda item: item[0] or -1):
                try:
                    count += self._carry(partitions, version, at, fence.epoch)
                except UndoError as error:
                    mixed |= {p.key: error for p in partitions}
        if mixed:
            raise _cannot_be_told_apart(spec, mixed, count)
        return count

    # -- how -----------------------------------------------------------------------------------------------------------

    def _carry(self, partitions: Sequence[Partition], version: int | None, at: int, epoch: int) -> int:
        """Append the rows of partitions that were not there yet at a version, and are not among the late ones either.

        Args:
            version: Which published them; None if none did.
            at: Whose rows are looked at.

        Raises:
            UndoError: What was published cannot be read any more.
        """
        spec, table = self.table.spec, self.table
        names = [column(name) for name in [*spec.columns, spec.partition_column]]
        here = replace_where(spec.partition_column, partitions)
        rows, then = table.read(at).where(here).select(*names), None
        try:
            if version is not None:
                with readable(spec, "what was published"):
                    then = persist(table.read(version).where(here).select(*names))
                    then.count()
                rows = rows.exceptAll(then)
            there = table.late_table.rows_of(partitions)
            lacking = rows if there is None else rows.exceptAll(there)
            count = lacking.count()
            if count:
                table.late_table.append(lacking, stream="carried", batch=epoch)
            return count
        finally:
            if then is not None:
                then.unpersist()

    def _append(self, rows: DataFrame, receipt: LiveReceipt, transaction: tuple[str, int]) -> None:
        name, number = transaction
        (
            rows.coalesce(2)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", name)
            .option("txnVersion", str(number))
            .option("userMetadata", receipt.to_json())
            .options(**file_options(self.table.spark, self.table.path))
            .save(self.table.path)
        )

    def _is_in_log(self, receipt: LiveReceipt) -> bool:
        return any(found.receipt_id == receipt.receipt_id for _, found in self.receipts(newest=RECENT_COMMITS))

    def _saving(self, path: str) -> AbstractContextManager[None]:
        return saving(path, self.table.spec.key, timeout_seconds=self.table.lock_timeout_seconds)


def _cannot_be_told_apart(spec: TableSpec, mixed: Mapping[str, UndoError], carried: int) -> UndoError:
    first, *_ = sorted(mixed)
    return UndoError(
        f"`{spec.key}`: of {len(mixed):,} partitions, the first of them {first}, the rows that others wrote cannot be "
        f"told from those that were published: {mixed[first].what}",
        state=f"{carried:,} rows of the other partitions were carried; these are as they were.",
        remedy=f"`backfill-assets reconcile {spec.key} --explain` names the rows that their source lacks. Export those "
        "that are to stay, and launch these partitions with `discard_uncovered_rows: true`.",
    )
