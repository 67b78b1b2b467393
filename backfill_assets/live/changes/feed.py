"""A capture's files read into `<table>_changes`, each change exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.live.feed import FeedFile, follow_on
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.newest import NewestChanges
from backfill_assets.live.changes.table import ChangesTable, Reach
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.sources.files.listing import literal_path
from backfill_assets.spark.expressions import any_of, partition_value

FILES_AT_ONCE = 200
NOTES_AT_LEAST = 1 << 24
"""So many bytes of log without a change of the table are noted in a commit; fewer are read again after a restart."""

BYTES_A_FILE = 64 << 20
"""About so many bytes of a capture's files become one file of the table of changes."""

_NO_EVENT, _NO_TIME = "no event", "no time"

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
    newest: NewestChanges = field(init=False)
    _reach: Reach | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.newest = NewestChanges(self.table.spec, self.changes)

    @property
    def about(self) -> str:
        return f"`{self.table.spec.key}`"

    # -- looking: at the table of changes, and at the files that have landed since

    def reach(self) -> Reach | None:
        """Return how far the feed has come by what has landed; None if there is none yet. Writes nothing.

        Raises:
            ChangeFeedError: A file is missing.
        """
        noted = self._noted()
        files = self._landed(noted)
        return _with(files, noted) if files else noted

    def changes(self, since: int, until: int) -> DataFrame:
        """Return the changes of transactions that ended after one position and not after another. Writes nothing."""
        while True:
            noted = self._noted()
            rows, position = self.table.rows(since=since, until=until), noted.position if noted else 0
            files = [file for file in self._landed(noted) if file.start < until]
            try:
                filled = self._filled(files)
            except FileNotFoundError:
                continue
            if not filled:
                return rows
            landed = self._changes(filled).where(
                (F.col("after_position") >= F.lit(max(since, position))) & (F.col("after_position") < F.lit(until))
            )
            return rows.where(F.col("after_position") < F.lit(position)).unionByName(landed)

    def _noted(self) -> Reach | None:
        """Return up to where the table of changes has everything."""
        noted = self.table.reach()
        if noted and (self._reach is None or noted.position > self._reach.position or noted.began > self._reach.began):
            self._reach = noted
        return self._reach

    def _filled(self, files: Sequence[FeedFile]) -> list[Path]:
        """Return the files that hold any change.

        Raises:
            FileNotFoundError: An empty one has got a new name, which says how far the feed has come by now.
        """
        filled = [self.folder / file.name for file in files if not file.is_idle]
        for path in filled:
            if path.stat().st_size == 0:
                raise ChangeFeedError(
                    f"{self.about}: `{path.name}` of the feed is empty, and was not when it landed.",
                    state="Nothing of it, and of what follows, was read.",
                    remedy="Bring it back. If it is gone, take it away, and see what is said of the hole.",
                )
        return filled

    # -- reading: what has landed is appended to the table of changes

    def read(self, *, is_new_feed: bool = False) -> Reach | None:
        """Append what has landed by now; return how far the table of changes has come with it.

        Args:
            is_new_feed: Whether what the files begin with may lie behind a hole: what the feed brought before is then
                older than its beginning, and every partition has to be launched again.

        Raises:
            ChangeFeedError: A file is missing, or is no file of a feed.
        """
        until: int | None = None
        while True:
            reach = self._noted()
            landed = self._landed(reach, is_new_feed=is_new_feed)
            until = landed[-1].end if landed and until is None else until
            files = [file for file in landed[:FILES_AT_ONCE] if until is not None and file.end <= until]
            if not files:
                return reach
            try:
                filled = self._filled(files)
            except FileNotFoundError:
                continue
            if reach is None:
                self.table.create()
            with self.table.saving():
                if self._noted_meanwhile(reach):
                    continue
                self._append(filled, _with(files, reach), reach)
            is_new_feed = False

    def _noted_meanwhile(self, reach: Reach | None) -> bool:
        """Say whether somebody else has read files since."""
        noted = self.table.reach()
        if noted is None or (reach and noted.position <= reach.position and noted.began <= reach.began):
            return False
        self._reach = noted
        return True

    def _landed(self, reach: Reach | None, *, is_new_feed: bool = False) -> list[FeedFile]:
        if not self.folder.is_dir():
            return []
        files = [file for name in os.listdir(self.folder) if (file := FeedFile.named(name))]  # noqa: PTH208 (names alone)
        position = reach.position if reach else None
        if is_new_feed and position is not None:
            files = [file for file in files if file.end > position]
            position = None if files and min(files).start > position else position
        return follow_on(files, position, self.about)

    def _append(self, filled: Sequence[Path], reach: Reach, before: Reach | None) -> None:
        """Append the changes in some files; where there is none, how far the feed has come is noted now and then."""
        lines = self._lines(filled).persist() if filled else None
        try:
            changes = None if lines is None else self._refuse_wrong(lines, filled)
            if changes is not None and before and before.began == reach.began:
                changes = changes.where(F.col("after_position") >= F.lit(before.position))
            if changes is not None and changes.head(1):
                self.table.append(changes, reach, files=1 + sum(p.stat().st_size for p in filled) // BYTES_A_FILE)
            elif before is None or reach.began != before.began or self._is_long_ago(reach):
                self.table.append(None, reach)
        finally:
            if lines is not None:
                lines.unpersist()
        self._reach = reach

    def _is_long_ago(self, reach: Reach) -> bool:
        noted = self.table.reach()
        return noted is None or reach.position - noted.position >= NOTES_AT_LEAST

    def _changes(self, files: Sequence[Path]) -> DataFrame:
        """Return the table's changes in some files.

        Raises:
            ChangeFeedError: A line is no event, or nobody could say which partition a change touches.
        """
        return self._refuse_wrong(self._lines(files), files)

    def _lines(self, files: Sequence[Path]) -> DataFrame:
        """Describe the one parse of some files: each line's change, `wrong` and `line` if it is none, and `is_ours`.

        Other tables' events are left out by the reader: a filter here would parse each line twice.
        """
        lines = self.table.spark.read.text([literal_path(str(path)) for path in files])
        event = F.from_json("value", _EVENT)
        events = lines.where(F.trim("value") != "").select(F.col("value").alias("line"), event.alias("e"))
        sequence = F.from_json("e.source.sequence", "array<string>")[0].try_cast("bigint")
        whole = [F.col("e.op"), sequence, F.col("e.source.txId"), F.col("e.transaction.total_order")]
        schema, name = self.source.schema_and_name
        is_ours = (F.col("e.source.schema") == F.lit(schema)) & (F.col("e.source.table") == F.lit(name))
        without_time = self._has_no_time(F.col("e.before")) | self._has_no_time(F.col("e.after"))
        wrong = F.when(any_of(part.isNull() for part in whole), F.lit(_NO_EVENT)).when(
            is_ours & without_time, F.lit(_NO_TIME)
        )
        micros = F.coalesce(F.col("e.source.ts_us"), F.col("e.source.ts_ms") * 1000)
        return events.select(
            sequence.alias("after_position"),
            F.col("e.transaction.total_order").alias("number"),
            F.col("e.source.txId").alias("xid"),
            F.timestamp_micros(micros).alias("at"),
            F.col("e.op").alias("op"),
            F.when(is_ours, F.col("e.before")).alias("before"),
            F.when(is_ours, F.col("e.after")).alias("after"),
            self._partition(F.col("e.before")).alias("partition_before"),
            self._partition(F.col("e.after")).alias("partition_after"),
            wrong.alias("wrong"),
            F.when(wrong.isNotNull(), F.substring("line", 1, 300)).alias("line"),
            is_ours.alias("is_ours"),
        )

    def _has_no_time(self, row: Column) -> Column:
        """Say whether a row has an event time that cannot be read.

        Those of no day at all, and before the year 1 or after the year 9999, lie in no partition.
        """
        name, kind = self.table.spec.event_time, self.table.spec.columns[self.table.spec.event_time].type
        text = row[name]
        is_nowhere = text.isNull() | text.rlike(r"^-?infinity$| BC$|^\d{5,}")
        is_read = typed_text(text, kind, self.source.timestamps_without_zone).isNotNull()
        return row.isNotNull() & (~F.map_contains_key(row, F.lit(name)) | ~(is_nowhere | is_read))

    def _refuse_wrong(self, lines: DataFrame, files: Sequence[Path]) -> DataFrame:
        """Return the changes in lines, if all of them are right."""
        found = lines.where(F.col("wrong").isNotNull()).orderBy("wrong").select("wrong", "line").head(1)
        if not found:
            return lines.where("is_ours").drop("wrong", "line", "is_ours")
        if found[0]["wrong"] == _NO_EVENT:
            raise ChangeFeedError(
                f"{self.about}: a line of `{files[0].name}`, or of a file after it, is no event: "
                f"{found[0]['line'][:200]}",
                state="Nothing of these files was read.",
                remedy="Events are lines of JSON as Debezium writes them, without their schema.",
            )
        raise ChangeFeedError(
            f"{self.about}: a change has no `{self.table.spec.event_time}` that can be read, so nobody knows which "
            f"partition it touches: {found[0]['line']}",
            state="Nothing of its file, and of what follows, was read.",
            remedy="If the column was renamed, change the spec. If the value is wrong, correct the database, take "
            "the file away, continue behind it with `backfill-assets live KEY --new-stream`, and launch all "
            "partitions again.",
        )

    def _partition(self, row: Column) -> Column:
        """Return the partition column's value of a row; NULL if there is no row, or no time in it."""
        spec = self.table.spec
        when = typed_text(row[spec.event_time], spec.columns[spec.event_time].type, self.source.timestamps_without_zone)
        return partition_value(spec, when)


def _with(files: Sequence[FeedFile], before: Reach | None) -> Reach:
    """Return how far a feed has come with some files."""
    if before is None or files[0].start > before.position:
        return Reach(files[0].start, files[-1].end, datetime.now(UTC))
    return replace(before, position=files[-1].end)
