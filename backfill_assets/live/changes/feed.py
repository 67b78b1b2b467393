"""A capture's files read into `<table>_changes`, each change exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.live.feed import FeedFile, follow_on
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.table import ChangesTable, Reach
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.sources.files.listing import literal_path
from backfill_assets.spark.expressions import partition_value

FILES_AT_ONCE = 200
NOTES_AT_LEAST = 1 << 24
"""So many bytes of log without a change of the table are noted in a commit; fewer are read again after a restart."""

_EVENT = (
    "op string, before map<string,string>, after map<string,string>, "
    "source struct<schema string, table string, txId bigint, sequence string, ts_us bigint, ts_ms bigint>, "
    "transaction struct<total_order bigint>"
)


@dataclass(slots=True)
class FeedReader:
    """Reads the files of a capture into the changes of one table.

    Args:
        folder: Where the capture lands them, on this machine's disk.
    """

    table: ChangesTable
    source: DatabaseSpec
    folder: Path
    _reach: Reach | None = None

    @property
    def about(self) -> str:
        return f"`{self.table.spec.key}`"

    def reach(self) -> Reach | None:
        """Return how far the table has come; None if there is no feed yet."""
        noted = self.table.reach()
        if noted and (self._reach is None or noted.position > self._reach.position or noted.began > self._reach.began):
            self._reach = noted
        return self._reach

    def read(self, *, is_new_feed: bool = False) -> Reach | None:
        """Read all files that have landed since; return how far the table has come with them.

        Args:
            is_new_feed: Whether what the files begin with may lie behind a hole: what the feed brought before is then
                older than its beginning, and every partition has to be launched again.

        Raises:
            ChangeFeedError: A file is missing, or is no file of a feed.
        """
        while True:
            reach = self.reach()
            files = self._landed(reach, is_new_feed=is_new_feed)
            if not files:
                return reach
            if reach is None:
                self.table.create()
            with self.table.saving():
                if self._noted_meanwhile(reach):
                    continue
                if reach is None or files[0].start > reach.position:
                    found = Reach(files[0].start, files[-1].end, datetime.now(UTC))
                else:
                    found = replace(reach, position=files[-1].end)
                self._append(files, found, reach)
            is_new_feed = False

    def _noted_meanwhile(self, reach: Reach | None) -> bool:
        """Say whether somebody else has read files since."""
        noted = self.table.reach()
        if noted is None or (reach and noted.position <= reach.position and noted.began <= reach.began):
            return False
        self._reach = noted
        return True

    def _landed(self, reach: Reach | None, *, is_new_feed: bool) -> list[FeedFile]:
        if not self.folder.is_dir():
            return []
        files = [file for name in os.listdir(self.folder) if (file := FeedFile.named(name))]  # noqa: PTH208 (names alone)
        position = reach.position if reach else None
        if is_new_feed and reach and files and min(files).start > reach.position:
            position = None
        return follow_on(files, position, self.about)[:FILES_AT_ONCE]

    def _append(self, files: Sequence[FeedFile], reach: Reach, before: Reach | None) -> None:
        paths = [self.folder / file.name for file in files]
        filled = [path for path in paths if path.stat().st_size]
        if not filled:
            noted = before.position if before else -NOTES_AT_LEAST
            if reach.position - noted >= NOTES_AT_LEAST or (before and reach.began != before.began):
                self.table.append(None, reach)
            self._reach = reach
            return
        changes = self._changes(filled)
        if before and before.began == reach.began:
            changes = changes.where(F.col("after_position") >= F.lit(before.position))
        self.table.append(changes, reach)
        self._reach = reach

    def _changes(self, files: Sequence[Path]) -> DataFrame:
        """Return the table's changes in some files.

        Raises:
            ChangeFeedError: A line is no event.
        """
        lines = self.table.spark.read.text([literal_path(str(path)) for path in files])
        event = F.from_json("value", _EVENT)
        events = lines.select(F.col("value").alias("line"), event.alias("e")).where(F.trim("value") != "")
        broken = events.where(F.col("e.op").isNull() | F.col("e.source.sequence").isNull()).select("line").head(1)
        if broken:
            raise ChangeFeedError(
                f"{self.about}: a line of `{files[0].name}`, or of a file after it, is no event: "
                f"{broken[0]['line'][:200]}",
                state="Nothing of these files was read.",
                remedy="Events are lines of JSON as Debezium writes them, without their schema.",
            )
        schema, name = self.source.schema_and_name
        ours = events.where((F.col("e.source.schema") == F.lit(schema)) & (F.col("e.source.table") == F.lit(name)))
        sequence = F.from_json("e.source.sequence", "array<string>")
        micros = F.coalesce(F.col("e.source.ts_us"), F.col("e.source.ts_ms") * 1000)
        return ours.select(
            F.coalesce(sequence[0].cast("bigint"), F.lit(0)).alias("after_position"),
            F.col("e.transaction.total_order").alias("number"),
            F.col("e.source.txId").alias("xid"),
            F.timestamp_micros(micros).alias("at"),
            F.col("e.op").alias("op"),
            F.col("e.before").alias("before"),
            F.col("e.after").alias("after"),
            self._partition(F.col("e.before")).alias("partition_before"),
            self._partition(F.col("e.after")).alias("partition_after"),
        )

    def _partition(self, row: Column) -> Column:
        """Return the partition column's value of a row; NULL if there is no row, or no time in it."""
        spec = self.table.spec
        when = typed_text(row[spec.event_time], spec.columns[spec.event_time].type, self.source.timestamps_without_zone)
        return partition_value(spec, when)
