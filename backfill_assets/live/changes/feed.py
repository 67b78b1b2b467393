"""A capture's files read into `<table>_changes`, each change exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.live.feed import CONNECTOR, FeedFile, as_lsn, follow_on, hole, is_of_another_log
from backfill_assets.core.schema.postgres import DatabaseColumn, shared_keys
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.events import Events
from backfill_assets.live.changes.joining import begins_at
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.live.changes.newest import NewestChanges
from backfill_assets.live.changes.table import ChangesTable, Reach
from backfill_assets.sources.database.catalog import parts_of, sends_whole_rows, unique_columns
from backfill_assets.sources.database.source import DatabaseSource

FILES_AT_ONCE = 200
NOTES_AT_LEAST = 1 << 24
"""So many bytes of log without a change of the table are noted in a commit; fewer are read again after a restart."""

BYTES_A_FILE = 64 << 20
"""About so many bytes of a capture's files become one file of the table of changes."""


@dataclass(slots=True)
class FeedReader:
    """Reads the files of a capture into the changes of one table.

    Args:
        database: Where the changes come from; it is asked nothing, unless others than a capture of ours land the files.
        folder: Where the capture lands them, on this machine's disk.
    """

    table: ChangesTable
    database: DatabaseSource
    folder: Path
    newest: NewestChanges = field(init=False)
    _reach: Reach | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.newest = NewestChanges(self.table.spec, self.changes)

    @property
    def source(self) -> DatabaseSpec:
        return self.database.source

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
        return self._with(files, noted) if files else noted

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

    def needed_from(self) -> int:
        """Return from where on files are needed: what is noted beside the table, whence a process that begins reads on.

        Where nothing changes, one that runs is ahead of that.
        """
        noted = self.table.reach()
        return noted.position if noted else 0

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
                self._append(filled, self._with(files, reach), reach)
            is_new_feed = False

    def _noted_meanwhile(self, reach: Reach | None) -> bool:
        """Say whether somebody else has read files since."""
        noted = self.table.reach()
        if noted is None or (reach and noted.position <= reach.position and noted.began <= reach.began):
            return False
        self._reach = noted
        return True

    def _landed(self, reach: Reach | None, *, is_new_feed: bool = False) -> list[FeedFile]:
        """Return the files that follow what was read; none as long as the capture does not have this table."""
        if not self.folder.is_dir() or (begins := begins_at(self.folder, self.captured)) is None:
            return []
        files, position = self._listed(), reach.position if reach else None
        if position is not None and is_of_another_log(files, position):
            files = self._listed()  # an empty one may have got a new name while they were listed
            if is_of_another_log(files, position):
                raise self._another_log(position)
        later = [file for file in files if file.end > max(position or 0, begins)]
        if position is None or (is_new_feed and later and max(min(later).start, begins) > position):
            return follow_on(later, None, self.about)
        if begins > position:
            raise hole(self.about, position, begins)
        return follow_on(later, position, self.about)

    def _listed(self) -> list[FeedFile]:
        return [file for name in os.listdir(self.folder) if (file := FeedFile.named(name))]  # noqa: PTH208 (names alone)

    def _another_log(self, position: int) -> ChangeFeedError:
        return ChangeFeedError(
            f"{self.about}: the files of the feed are of another log of the database than what was read: none of them "
            f"ends at `{as_lsn(position)}`, up to where that was.",
            state="Nothing of them was read.",
            remedy="Bring the files back. If the server was put back from an older copy, its log tells other things at "
            f"the same places: move the folder `{self.table.path}` away, start again, and launch all partitions again.",
        )

    def _with(self, files: Sequence[FeedFile], before: Reach | None) -> Reach:
        """Return how far the feed has come with some files."""
        began = max(files[0].start, begins_at(self.folder, self.captured) or 0)
        if before is None or began > before.position:
            return Reach(began, files[-1].end, datetime.now(UTC), before and before.followed_since)
        return replace(before, position=files[-1].end)

    @property
    def captured(self) -> CaptureTable:
        """The table of the database."""
        return CaptureTable(*self.source.schema_and_name)

    def _append(self, filled: Sequence[Path], reach: Reach, before: Reach | None) -> None:
        """Append the changes in some files; where there is none, how far the feed has come is noted now and then."""
        events = self._events(filled)
        lines = events.of(filled).persist() if filled else None
        try:
            changes = None if lines is None else events.without_wrong(lines, filled)
            if changes is not None:
                known = before.position if before and before.began == reach.began else reach.began
                changes = changes.where(F.col("after_position") >= F.lit(known))
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
        events = self._events(files)
        return events.without_wrong(events.of(files), files)

    def _events(self, files: Sequence[Path]) -> Events:
        """Return how events in some files are read; for those of others the catalog is asked what it says now."""
        catalog, parts = (), ()
        if any(not _is_captured(path) for path in files):
            catalog, parts = self._catalog_for_others(), parts_of(self.table.spec, self.source)
        return Events(self.table.spark, self.table.spec, self.source, catalog, parts)

    def _catalog_for_others(self) -> Sequence[DatabaseColumn]:
        """Ask for the database's columns.

        Raises:
            ChangeFeedError: Debezium's events have other values of one of the spec's, or not all that a row was before.
        """
        if not sends_whole_rows(self.table.spec, self.source):
            raise ChangeFeedError(
                f"{self.about}: the database does not send what all of a row was before it was changed or deleted, so "
                "nobody knows which partition it leaves.",
                state="Nothing of the feed's files was read.",
                remedy=f"`ALTER TABLE {self.captured.typed} REPLICA IDENTITY FULL;` holds for changes from then on. If "
                "anything was changed or deleted before, take the files away, continue behind them with "
                "`backfill-assets live KEY --new-stream`, and launch all partitions again.",
            )
        unique = unique_columns(self.table.spec, self.source)
        keys = [self.table.spec.field_of(name) for name in self.table.spec.key_columns]
        if shared := shared_keys(keys, self.captured.typed, unique):
            what, remedy = shared
            raise ChangeFeedError(
                f"{self.about}: {what}.", state="Nothing of the feed's files was read.", remedy=remedy
            )
        columns = self.database.columns()
        others = [c for c in columns if c.name in self.table.spec.columns and c.is_another_with_debezium]
        if not others:
            return columns
        named = ", ".join(f"`{column.name}` ({column.declared})" for column in others)
        raise ChangeFeedError(
            f"{self.about}: in events of Debezium {named} would not be what the database has.",
            state="Nothing of its files was read.",
            remedy="Leave it out of the spec, give it another type in the database, or let `backfill-assets capture` "
            "bring the changes.",
        )


def _is_captured(path: Path) -> bool:
    """Say whether the first event of a file is one of a capture of ours."""
    with path.open(encoding="utf-8") as lines:
        return f'"connector":"{CONNECTOR}"' in lines.readline()
