"""The copy of a table's receipts, one row for each partition and publish (and each reset), that people can query.

It is never the truth: it is filled from the log's receipts, after each launch and whenever it lacks some, and can be
deleted at any time within the log's retention. Beyond that it is the only place where old receipts live on. A table
that was put back from a copy of its folder, or cloned, has other commits than the copy says: it is believed only as far
as the log agrees.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core import sql
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, marked_body, newest_by_partition, undone_by
from backfill_assets.errors import BackfillAssetsError, ReceiptError
from backfill_assets.lake import local_log
from backfill_assets.lake.commit_files import file_options
from backfill_assets.lake.delta_log import newest_version, receipts_after, user_metadata
from backfill_assets.lake.paths import receipts_path
from backfill_assets.lake.properties import TABLE_ID, read_properties
from backfill_assets.lake.receipt_rows import receipt_of, rows_of
from backfill_assets.lake.saving import saving
from backfill_assets.lake.small_tables import frame_of, small_table_options
from backfill_assets.lake.unreadable import lost_files
from backfill_assets.spark.failures import ANSWERED_FAILURES, SPARK_FAILURES, first_words
from backfill_assets.spark.local_disk import local_path

_COLUMNS = (
    "version bigint, partition string, kind string, rows bigint, checksum string, first_event_time timestamp, "
    "last_event_time timestamp, superseded_rows bigint, fingerprint string, receipt_id string, run_id string, "
    "root_run_id string, staged_from_version bigint, source string, reason string, code_version string, "
    "checksum_encoding int, late_rows bigint, late_version bigint, table_id string, flow string, made_at string, "
    "columns string, began_at string, plan string, by string, "
    "measures string, overrides string, rows_before bigint"
)

_COPIED = "backfill_assets_copied"
"""What a commit of the copy carries (the newest version in it, its receipt's id, the table's), and its transaction."""

FILLED_EACH = 500
"""After so many commits a table that goes on by itself fills its copy."""

_LOCK_TIMEOUT_SECONDS = 60.0
"""Shorter than a table's own: a copy that waits for its lock is filled by whoever holds it."""


@dataclass(frozen=True, slots=True)
class ReceiptsTable:
    """The receipts of one table: `<table>_receipts` beside it, and the log for what that lacks."""

    spark: SparkSession
    table: str
    table_path: str

    @property
    def path(self) -> str:
        return receipts_path(self.table_path)

    @property
    def _table_id(self) -> str:
        """Which table the receipts are of: one that was deleted and made again is another."""
        return (read_properties(self.spark, self.table_path) or {}).get(TABLE_ID, "")

    def all(self) -> dict[int, Receipt]:
        """Return every receipt there is, by version of the table."""
        if local_log.is_whole(self.spark, self.table_path):
            return receipts_after(self.spark, self.table_path, -1)
        copied = self._copied()
        newest = max(copied, default=-1)
        logged = receipts_after(self.spark, self.table_path, newest - 1 if self._carried() else -1)
        if newest < 0 or _agree(newest, copied[newest].receipt_id, logged):
            return copied | logged
        return self._believed(copied) | receipts_after(self.spark, self.table_path, -1)

    def newest(self, *, until: int | None = None) -> dict[str, PublishedPartition]:
        """Return the newest publish of each partition, as of a version of the table or the newest."""
        return newest_by_partition(self._newest_receipts(until))

    def undone(self) -> set[str]:
        """Return the keys of partitions that were written last by an undo."""
        receipts = sorted(self._newest_receipts().items())
        newest = {key: receipt for _, receipt in receipts for key in receipt.partitions}
        return {key for key, receipt in newest.items() if undone_by(receipt)}

    def _newest_receipts(self, until: int | None = None) -> dict[int, Receipt]:
        """Return the receipts that say which the newest publish of each partition is.

        A table that follows a database gets receipts with each refresh, for ever. So where nobody has edited the copy,
        only the newest row of each partition is read of it, and all rows of those that an undo put back; a receipt then
        names the partitions of which it is the newest.
        """
        carried = None if local_log.is_whole(self.spark, self.table_path) else self._carried()
        logged = receipts_after(self.spark, self.table_path, carried[_COPIED] - 1) if carried else {}
        if carried is None or not _agree(carried[_COPIED], carried["receipt_id"], logged):
            return _as_of(until, self.all())
        logged = _as_of(until, logged)
        undone = {key for one in logged.values() if one.kind == "put_back" for key in one.partitions}
        try:
            return self._newest_copied_receipts(until, undone) | logged
        except AnalysisException:  # the copy was deleted meanwhile
            return _as_of(until, self.all())

    def in_log(self, *, newest: int = 1_000) -> dict[int, Receipt]:
        """Return the receipts among the newest commits of the log, and all that the copy lacks, by version.

        Every launch fills the copy when it ends, unless it is killed; and a stream may commit any number of batches
        before the next one looks for what that one published.
        """
        before = newest_version(self.spark, self.table_path) - newest
        after = min(before, self._newest_copied(self._carried())[0]) if before >= 0 else -1
        return receipts_after(self.spark, self.table_path, after)

    def fill(self) -> int:
        """Copy what the log has and the copy lacks; return how many receipts that were.

        Raises:
            ReceiptError: Files of the copy are gone, and the log has forgotten commits that may have been in them.
        """
        with saving(self.path, self.table, timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            self._put_away_if_damaged()
            number = newest_version(self.spark, self.path) + 1  # another who found the copy like this has the same
            lacking, newest_copied = self._lacking()
            if lacking:
                of_table = {"table_id": self._table_id}
                newest, receipt_id = max(newest_copied, (max(lacking), lacking[max(lacking)].receipt_id))
                rows = [
                    {**row, **of_table}
                    for version, receipt in sorted(lacking.items())
                    for row in rows_of(version, receipt)
                ]
                carried = {_COPIED: newest, "receipt_id": receipt_id, **of_table}
                writer = frame_of(self.spark, rows, _COLUMNS).write.format("delta").mode("append")
                writer.options(**small_table_options(self.spark, self.path), userMetadata=json.dumps(carried)).options(
                    txnAppId=_COPIED, txnVersion=str(number)
                ).save(self.path)
            return len(lacking)

    def fill_if_behind(self, warn: Callable[[str], None]) -> None:
        """Copy what the log has, if that is some hundred commits, each of which every look reads; or say why not."""
        try:
            newest = newest_version(self.spark, self.table_path)
            if newest >= FILLED_EACH and newest - self._newest_copied(self._carried())[0] >= FILLED_EACH:
                self.fill()
        except (*SPARK_FAILURES, BackfillAssetsError) as error:
            warn(f"The receipts could not be copied to `{self.path}`; that is tried again. {first_words(error)}")

    def _put_away_if_damaged(self) -> None:
        """Move a copy aside of which files are gone: as long as the log has every commit, another one is as good."""
        if not (lost := lost_files(self.spark, self.path)):
            return
        if not local_log.is_whole(self.spark, self.table_path, most=sys.maxsize):
            raise self._damaged(f"{len(lost):,} of its files are gone, first `{min(lost)}`")
        folder = local_path(self.path)
        assert folder is not None  # noqa: S101 (it was looked at on this disk)
        folder.rename(f"{folder}_damaged_{uuid.uuid4().hex[:8]}")

    def _lacking(self) -> tuple[dict[int, Receipt], tuple[int, str]]:
        """Return what the copy lacks, and the newest that it has.

        Where it is another table's it lacks all there is, and the table gets another id.
        """
        carried = self._carried()
        newest, receipt_id = known = self._newest_copied(carried)
        untouched = carried is not None
        logged = receipts_after(self.spark, self.table_path, newest - 1 if untouched else -1)
        if newest < 0 or (untouched and _agree(newest, receipt_id, logged)):
            return {version: receipt for version, receipt in logged.items() if version > newest}, known
        copied = self._copied()
        if _agree(newest, receipt_id, logged):
            return _without(logged, copied), known
        if len(believed := self._believed(copied)) == len(copied):
            return {version: receipt for version, receipt in logged.items() if version > newest}, known
        with saving(self.table_path, self.table, timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            self.spark.sql(sql.set_properties(self.table_path, {TABLE_ID: uuid.uuid4().hex}))
        return believed | receipts_after(self.spark, self.table_path, -1), (-1, "")

    def _newest_copied(self, carried: dict[str, Any] | None) -> tuple[int, str]:
        """Return the newest version that was copied, and the id of its receipt; -1 if there is none.

        Args:
            carried: What the copy's newest commit carries, if it is ours.
        """
        if carried is not None:
            return carried[_COPIED], carried["receipt_id"]
        try:
            newest = F.max_by("receipt_id", "version").alias("receipt_id")
            (row,) = self._of_this_table().agg(F.max("version").alias("newest"), newest).collect()
        except AnalysisException:
            return -1, ""
        except ANSWERED_FAILURES as error:
            raise self._damaged(first_words(error)) from error
        return (-1, "") if row["newest"] is None else (int(row["newest"]), row["receipt_id"])

    def _carried(self) -> dict[str, Any] | None:
        """Return what the copy's newest commit carries; None unless it is ours: nobody has edited the copy since."""
        for metadata in user_metadata(self.spark, self.path, -1, newest=1).values():
            carried = marked_body(metadata, _COPIED)
            if carried is not None and carried["table_id"] == self._table_id:
                return carried
        return None

    def _believed(self, copied: dict[int, Receipt]) -> dict[int, Receipt]:
        """Return what is of this table's own past: up to the newest that its log has too, and what that forgot."""
        commits = user_metadata(self.spark, self.table_path, -1)
        logged = receipts_after(self.spark, self.table_path, -1)
        agreed = max((v for v, receipt in copied.items() if _agree(v, receipt.receipt_id, logged)), default=-1)
        known = max(agreed, min(commits, default=0) - 1)
        return {version: receipt for version, receipt in copied.items() if version <= known}

    def _of_this_table(self) -> DataFrame:
        copied = self.spark.read.format("delta").options(**file_options(self.spark, self.path)).load(self.path)
        return copied.where(F.col("table_id") == self._table_id)

    def _damaged(self, why: str) -> ReceiptError:
        return ReceiptError(
            f"`{self.table}`: the copy of its receipts at `{self.path}` cannot be read: {why}",
            state="The table's rows are not affected.",
            remedy="Put the folder back from a backup; or move it away, and the next launch fills it again from the "
            "table's log: partitions that were published before that begins are launched again.",
        )

    def _copied(self) -> dict[int, Receipt]:
        try:
            return self._receipts_in(self._of_this_table())
        except AnalysisException:
            return {}

    def _newest_copied_receipts(self, until: int | None, whole: set[str]) -> dict[int, Receipt]:
        """Return the copied receipts that are the newest of a partition, and all of some partitions.

        Args:
            whole: Partitions of which every receipt is asked for; so it is of those that an undo put back last.
        """
        rows = self._of_this_table().where(F.col("partition").isNotNull())
        rows = rows if until is None else rows.where(F.col("version") <= until)
        newest = rows.groupBy("partition").agg(F.max("version").alias("version"))
        found = self._receipts_in(rows.join(F.broadcast(newest), ["partition", "version"]))
        whole = whole | {key for one in found.values() if one.kind == "put_back" for key in one.partitions}
        if not whole:
            return found
        earlier = self._receipts_in(rows.where(F.col("partition").isin(*sorted(whole))))
        joined = {
            version: replace(one, partitions={**one.partitions, **earlier[version].partitions})
            for version, one in found.items()
            if version in earlier
        }
        return found | earlier | joined

    def _receipts_in(self, rows: DataFrame) -> dict[int, Receipt]:
        """Return the receipts in rows of the copy, by version."""
        micros = [F.unix_micros(f"{which}_event_time").alias(f"{which}_micros") for which in ("first", "last")]
        try:
            collected = rows.select("*", *micros).collect()
        except AnalysisException:
            raise
        except ANSWERED_FAILURES as error:
            raise self._damaged(first_words(error)) from error
        by_version: dict[int, list[dict[str, Any]]] = {}
        for row in collected:
            by_version.setdefault(int(row["version"]), []).append(row.asDict())
        return {version: receipt_of(self.table, group) for version, group in by_version.items()}


def _without(logged: Mapping[int, Receipt], copied: Mapping[int, Receipt]) -> dict[int, Receipt]:
    """Return of the log's receipts what a copy lacks, which somebody has edited."""
    found = {version: receipt for version, receipt in logged.items() if version not in copied}
    for version in logged.keys() & copied.keys():
        lacking = {k: p for k, p in logged[version].partitions.items() if k not in copied[version].partitions}
        if lacking:
            found[version] = replace(logged[version], partitions=lacking)
    return found


def _as_of(until: int | None, receipts: dict[int, Receipt]) -> dict[int, Receipt]:
    return {version: one for version, one in receipts.items() if until is None or version <= until}


def _agree(version: int, receipt_id: str, logged: Mapping[int, Receipt]) -> bool:
    return version in logged and logged[version].receipt_id == receipt_id
