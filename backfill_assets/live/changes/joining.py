"""From where on a capture's files have every change of each table: a table may join a capture that has begun.

It has joined when the publication has it and every transaction has ended that was open then: what such a one wrote
before is in no file. Where the next file begins is the table's beginning, which is noted beside the files as soon as
sessions see all that lies before it: a commit that waits for a standby is in the log, and no snapshot has it yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from backfill_assets.core.live.feed import as_lsn, from_lsn
from backfill_assets.core.postgres import questions
from backfill_assets.errors import SourceRefusedError
from backfill_assets.live.changes.landed import CaptureTable, FeedState, feed_state, note_as_a_whole, noted_beside
from backfill_assets.live.changes.rewritten import note_stored, noted_stored, stored_now
from backfill_assets.sources.database.connection import Database

if TYPE_CHECKING:
    import psycopg

TABLES = "tables.json"
"""File beside a feed's that says which tables it has, and from which position on; 0 is where the files begin."""

_POSITIONS = TypeAdapter(dict[str, int])


def noted_tables(folder: Path) -> Mapping[str, int] | None:
    """Return from where on the files in a folder have every change of each table; None if nobody has noted it.

    Raises:
        ChangeFeedError: What was noted cannot be read.
    """
    return noted_beside(folder, TABLES, _POSITIONS)


def begins_at(folder: Path, table: CaptureTable) -> int | None:
    """Return from where on the files in a folder have every change of a table; None if they do not have it yet.

    Of files that others land, who note nothing, that is where the files begin.
    """
    noted = noted_tables(folder)
    return 0 if noted is None else noted.get(str(table))


def table_state(folder: Path, table: CaptureTable) -> FeedState:
    """Return how the feed of a table stands; up to when a capture has had one that it lacks, nobody knows."""
    state = feed_state(folder)
    return state if begins_at(folder, table) is not None else replace(state, landed_at=None, has_table=False)


@dataclass(slots=True)
class Joining:
    """The tables of a capture, and those that are about to join it.

    Args:
        folder: Of the files.
    """

    folder: Path
    database: Database
    tables: Sequence[CaptureTable]
    log: Callable[[str], None]
    _waits_for: int | None = field(default=None, init=False)
    _from: int | None = field(default=None, init=False)
    _beginning: int | None = field(default=None, init=False)

    def prepare(self, connection: psycopg.Connection, *, has_begun: bool) -> None:
        """Note the tables that have every change from the beginning; the others join from now on.

        Those that the capture has no more are forgotten: if they come again, they join.
        """
        noted = noted_tables(self.folder) if has_begun else None
        if noted is None:
            noted = {str(table): 0 for table in self.tables}
        known = {str(table) for table in self.tables}
        self._note({table: position for table, position in noted.items() if table in known})
        self._from = self._beginning = None
        self._waits_for = self._newest(connection) if self._joining else None

    def look_for_other_values(self, connection: psycopg.Connection, numbers: Mapping[int, CaptureTable]) -> None:
        """Let tables join anew if rows of them have got other values, of which no change tells.

        Args:
            numbers: The tables by their numbers in the catalog.
        """
        before = noted_stored(self.folder)
        now = stored_now(connection, self.database, numbers, before)
        if now == before:
            return
        looked_at = [(str(table), table.optional) for table in self.tables if str(table) in now.keys() & before.keys()]
        if anew := [
            table for table, optional in looked_at if now[table].may_have_other_values(before[table], optional)
        ]:
            noted = noted_tables(self.folder) or {}
            self._note({table: position for table, position in noted.items() if table not in anew})
            self._from = self._beginning = None
            self._waits_for = self._newest(connection)
            self.log(
                f"{', '.join(f'`{table}`' for table in anew)} was altered so that rows may have got other values, of "
                "which the server tells no change: it joins anew, and every partition has to be launched again."
            )
        note_stored(self.folder, now)

    def look(self, connection: psycopg.Connection, start: int) -> None:
        """Let tables join if all that was open when they came has ended, and the next file begins behind that.

        What has ended before the next file begins has to be seen by now: whoever reads the table from then on has it.
        """
        if self._waits_for is None or not self._has_ended(connection, self._waits_for):
            return
        if self._from is None:
            # Behind all that sessions see: of a transaction that commits asynchronously the log is flushed later.
            self._from = from_lsn(self.database.ask(connection, questions.POSITION)[0][0])
            with suppress(SourceRefusedError):  # who may not do that waits until the server flushes by itself
                self._flush(connection)
        if self._beginning is None:
            if start < self._from:
                return
            self._beginning, self._waits_for = start, self._newest(connection)
            if not self._has_ended(connection, self._waits_for):
                return
        joined, begins = self._joining, self._beginning
        self._note({**(noted_tables(self.folder) or {}), **dict.fromkeys(joined, begins)})
        self.log(f"{', '.join(f'`{table}`' for table in joined)} has joined, from `{as_lsn(begins)}` on.")
        self._waits_for = self._from = self._beginning = None

    def _newest(self, connection: psycopg.Connection) -> int:
        """Return an id that is newer than those of all transactions that have written anything."""
        return int(self.database.ask(connection, questions.NEWEST_XID)[0][0])

    def _has_ended(self, connection: psycopg.Connection, xid: int) -> bool:
        """Say whether sessions see what every transaction did that is older."""
        return int(self.database.ask(connection, questions.OLDEST_XID)[0][0]) >= xid

    def _flush(self, connection: psycopg.Connection) -> None:
        with self.database.failures_translated(), connection.transaction():
            connection.execute(questions.FLUSH.encode())

    @property
    def _joining(self) -> list[str]:
        noted = noted_tables(self.folder) or {}
        return [str(table) for table in self.tables if str(table) not in noted]

    def _note(self, tables: Mapping[str, int]) -> None:
        note_as_a_whole(self.folder, TABLES, json.dumps(tables, indent=2))
