"""`<table>_operations`: what a table's log tells of each commit, kept when the log has forgotten it.

Receipts live on in their own copy. What has none, batches, moves of the fence, changes of columns, commits of others,
would be lost when Delta cleans the log. So whoever writes the table copies what is not there yet, at most once a day:
the log keeps its commits for 30. Batches of a stream that follow each other are one row. No decision rests on it.

With it the copy of the receipts is filled, on which decisions do rest: not every receipt is a launch's, and not every
launch lives to copy its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.operations import LoggedOperation, batches_as_one
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.lake import local_log
from backfill_assets.lake.delta_log import committed, logged, open_table
from backfill_assets.lake.paths import operations_path
from backfill_assets.lake.properties import TABLE_ID, read_properties
from backfill_assets.lake.receipts_table import ReceiptsTable
from backfill_assets.lake.saving import saving
from backfill_assets.lake.small_tables import frame_of, small_table_options
from backfill_assets.spark.failures import SPARK_FAILURES, first_words

FILLED_EVERY = timedelta(days=1)

_COLUMNS = (
    "version bigint, last_version bigint, at string, operation string, properties string, live string, "
    "stream string, rows bigint, batches bigint, after bigint, stored_at string, table_id string"
)
_LOCK_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class OperationsTable:
    """What the log of one table tells, and what it told before it was cleaned."""

    spark: SparkSession
    table: str
    table_path: str

    @property
    def path(self) -> str:
        return operations_path(self.table_path)

    @property
    def _table_id(self) -> str:
        """Which table the operations are of: one that was deleted and made again is another."""
        return (read_properties(self.spark, self.table_path) or {}).get(TABLE_ID, "")

    def all(self) -> list[LoggedOperation]:
        """Return every commit that the log or the copy tells of, in order; batches side by side may be one."""
        stored = self._stored()
        after = self._agreed(stored)
        return [*_until(stored, after), *logged(self.spark, self.table_path, after=after)]

    def fill_if_due(self, now_utc: datetime, warn: Callable[[str], None]) -> None:
        """Copy what is not there yet, receipts too, if that was not done for a day; a failure ends nothing."""
        try:
            if self._is_due(now_utc):
                self.fill(now_utc)
                ReceiptsTable(self.spark, self.table, self.table_path).fill()
        except (*SPARK_FAILURES, BackfillAssetsError) as error:
            warn(f"What the log tells could not be copied to `{self.path}`; that is tried again. {first_words(error)}")

    def fill(self, now_utc: datetime) -> None:
        """Append what the log has and the copy lacks.

        Raises:
            TableLockedError, CommitConflictError: Another writer is there. Nothing was appended.
        """
        with saving(self.path, self.table, timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            after = self._agreed(self._stored())
            of_all = {"after": after, "stored_at": now_utc.isoformat(), "table_id": self._table_id}
            lacking = batches_as_one(logged(self.spark, self.table_path, after=after))
            if rows := [{**_fields_of(one), **of_all} for one in lacking]:
                writer = frame_of(self.spark, rows, _COLUMNS).write.format("delta").mode("append")
                writer.options(**small_table_options(self.spark, self.path)).save(self.path)

    def _is_due(self, now_utc: datetime) -> bool:
        """Say whether it was filled a day ago or earlier; if never, whether the table is that old."""
        filled = _commit_times(self.spark, self.path)
        times = filled[-1:] or _commit_times(self.spark, self.table_path)[:1]
        return bool(times) and now_utc - times[0] >= FILLED_EVERY

    def _stored(self) -> list[LoggedOperation]:
        """Return what is in the copy, in order: of versions that were copied again, what was copied last."""
        rows = open_table(self.spark, self.path)
        if rows is None:
            return []
        mine = rows.where(F.col("table_id") == self._table_id)
        kept: list[LoggedOperation] = []
        stored_at = ""
        for row in mine.orderBy("stored_at", "after", "version").collect():
            if row["stored_at"] != stored_at:
                stored_at, kept = row["stored_at"], _until(kept, row["after"])
            kept.append(_operation_of(row))
        return kept

    def _agreed(self, stored: list[LoggedOperation]) -> int:
        """Return the last version of which the copy is believed; -1 if there is none.

        A table that was put back from a copy of its folder has other commits than those that were stored: then its log
        is believed as far as it goes, and the copy before that.
        """
        if not stored:
            return -1
        newest = stored[-1]
        found = {one.version: one.at for one in logged(self.spark, self.table_path, after=newest.last_version - 1)}
        if found and found.get(newest.last_version, newest.at) == newest.at:
            return newest.last_version
        return min((one.version for one in logged(self.spark, self.table_path)), default=0) - 1


def _until(stored: Iterable[LoggedOperation], version: int) -> list[LoggedOperation]:
    return [one for one in stored if one.last_version <= version]


def _commit_times(spark: SparkSession, path: str) -> list[datetime]:
    """Return when the oldest and the newest commit of a table were made that its log has; none if there is no table."""
    here = local_log.commit_times(spark, path)
    if here is not None or local_log.was_never_made(spark, path):
        return list(here or ())
    times = committed(spark, path)
    return [times[min(times)], times[max(times)]] if times else []


def _fields_of(one: LoggedOperation) -> dict[str, Any]:
    return {
        "version": one.version,
        "last_version": one.last_version,
        "at": one.at.astimezone(UTC).isoformat(),
        "operation": one.name,
        "properties": json.dumps(dict(one.properties)),
        "live": one.live,
        "stream": one.stream,
        "rows": one.rows,
        "batches": one.batches,
    }


def _operation_of(row: Row) -> LoggedOperation:
    properties: Mapping[str, str] = json.loads(row["properties"])
    return LoggedOperation(
        row["version"],
        datetime.fromisoformat(row["at"]),
        row["operation"],
        properties,
        row["live"],
        stream=row["stream"],
        rows=row["rows"],
        batches=row["batches"],
    )
