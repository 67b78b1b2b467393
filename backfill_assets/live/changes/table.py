"""`<table>_changes`: every change of a table that its feed has brought, in order, only appended to.

Each commit carries from where to where in the database's log its changes are. That is the whole bookkeeping: whoever
appends reads there how far it has come, so a file is appended once, whoever was killed when.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core import sql
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.changes import Order
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PublishedPartition, marked_body, undone_by
from backfill_assets.lake.paths import changes_path
from backfill_assets.lake.saving import saving
from backfill_assets.spark.expressions import partition_type
from backfill_assets.table.commit_files import file_options
from backfill_assets.table.readers import log_of, open_table

MARK = "backfill_assets_changes"
_RECENT = 50
_PROPERTIES = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.checkpointInterval": "100",
    "delta.enableDeletionVectors": "false",
    "delta.dataSkippingNumIndexedCols": "4",
}


FOLDED_TO = "folded_to"
"""Name in a receipt's source of the position up to which changes are in its partitions."""


def whose_rows(published: PublishedPartition) -> PublishedPartition:
    """Return the publish whose rows a partition has: its newest, or the one before a commit that took itself back.

    What a person took back is the newest there is: it stays as it was put, until it is launched.
    """
    before, receipt = published.restored, published.receipt
    if receipt.kind == "put_back" and not undone_by(receipt) and before is not None and published.has_published_rows:
        return whose_rows(before)
    return published


def folded_to(published: PublishedPartition | None) -> int | None:
    """Return up to where changes are in a partition; None if it was not published, or was restored to what it was."""
    if published is None or (newest := whose_rows(published)).receipt.kind != "publish":
        return None
    position = newest.receipt.source.get(FOLDED_TO)
    return int(position) if position is not None else None


def launch_of(published: PublishedPartition | None) -> PublishedPartition | None:
    """Return the publish whose rows a partition has, though it be taken back to it; None if nobody knows."""
    while published is not None and published.receipt.kind != "publish":
        published = published.restored
    return published


@dataclass(frozen=True, slots=True)
class Reach:
    """What a feed has brought so far.

    Args:
        began: Position of the database's log from which on it has every change.
        position: Position up to which it has.
        began_at: When its first file was read.
        first_at: When the first file of the first feed was, where another one has followed it; None where none has.
    """

    began: int
    position: int
    began_at: datetime
    first_at: datetime | None = None

    @property
    def followed_since(self) -> datetime:
        """When the table began to follow its database, by whichever feed: what has begun since is no past of it."""
        return self.first_at or self.began_at

    def begins_before(self, partition: Partition) -> bool:
        """Say whether the table has followed for all of a partition's time."""
        return partition.window.start_utc >= self.followed_since

    def is_in_all_of(self, partition: Partition) -> bool:
        """Say whether it has been this feed for all of a partition's time."""
        return partition.window.start_utc >= self.began_at

    def fingerprint(self, newest: Order | None) -> str:
        """Name the newest change of a partition, and the feed that brought it."""
        return f"{self.began:X}:" + (f"{newest[0]:X}.{newest[1]}" if newest else "none")

    def folded(self, published: PublishedPartition | None) -> int:
        """Return up to where changes are in a partition, though it be undone; where the feed began if nobody knows."""
        launched = launch_of(published)
        position = folded_to(launched) if launched and self.brought(launched.partition.fingerprint) else None
        return self.began if position is None else position

    def brought(self, fingerprint: str) -> bool:
        """Say whether it is this feed that a fingerprint names: another one's positions may be of another log."""
        return fingerprint.startswith(f"{self.began:X}:")


@dataclass(frozen=True, slots=True)
class ChangesTable:
    """The changes of one table.

    Columns: `after_position` (the position after which the transaction ended), `number` (of the change in its
    transaction), `xid` (negative if only its lower half is known, as Debezium has it), `at` (when it was committed),
    `op`, `before` and `after` (values as text, by column), and the partition that the row lay in before and lies in
    after, NULL where it lies in none.
    """

    spark: SparkSession
    spec: TableSpec
    table_path: str

    @property
    def path(self) -> str:
        return changes_path(self.table_path)

    @property
    def columns(self) -> Mapping[str, str]:
        """Types by name."""
        value = partition_type(self.spec)
        return {
            "after_position": "bigint", "number": "bigint", "xid": "bigint", "at": "timestamp", "op": "string",
            "before": "map<string,string>", "after": "map<string,string>", "partition_before": value,
            "partition_after": value,
        }  # fmt: skip

    def reach(self) -> Reach | None:
        """Return how far the feed has come; None if it has brought nothing yet."""
        for newest in (_RECENT, None):
            infos = log_of(self.spark, self.path).infos(newest=newest)
            for _, one in sorted(infos.items(), reverse=True):
                if body := marked_body(one.user_metadata, MARK):
                    began_at, first_at = datetime.fromisoformat(body["began_at"]), body.get("first_at")
                    first = datetime.fromisoformat(first_at) if first_at else None
                    return Reach(int(body["began"]), int(body["position"]), began_at, first)
            if len(infos) < _RECENT:
                return None
        return None

    def create(self) -> None:
        """Make the table if it is not there."""
        if open_table(self.spark, self.path) is None:
            self.spark.sql(sql.create_table(self.path, self.columns, properties=_PROPERTIES))

    def append(self, rows: DataFrame | None, reach: Reach, *, files: int = 1) -> None:
        """Append changes, or none, in one commit that carries how far the feed has come with them.

        The caller holds the lock, and has read from where on they are after it had it.
        """
        if rows is None:
            rows = self.rows().limit(0)
        began_at = reach.began_at.isoformat(timespec="seconds")
        body = {MARK: 1, "began": reach.began, "position": reach.position, "began_at": began_at}
        if reach.first_at:
            body["first_at"] = reach.first_at.isoformat(timespec="seconds")
        (
            rows.select(*self.columns)
            .coalesce(files)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"changes:{self.spec.key}:{reach.began}")
            .option("txnVersion", str(reach.position))
            .option("userMetadata", json.dumps(body))
            .options(**file_options(self.spark, self.path))
            .save(self.path)
        )

    def saving(self) -> Any:
        """Hold the lock of this table."""
        return saving(self.path, self.spec.key)

    def rows(self, *, since: int = 0, until: int | None = None) -> DataFrame:
        """Return the changes of transactions that ended after one position and not after another; none if never made.

        Args:
            since: Changes whose transaction ended after it.
            until: Up to where the feed had come.
        """
        rows = open_table(self.spark, self.path)
        if rows is None:
            types = self.columns
            rows = self.spark.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in types.items()))
        rows = rows.where(F.col("after_position") >= F.lit(since))
        return rows if until is None else rows.where(F.col("after_position") < F.lit(until))
