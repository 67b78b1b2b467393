"""A capture: the changes of a PostgreSQL database, landed as files, each transaction exactly once and in order.

The files say how far it has come, not the server's slot: a file is written, synced, renamed and its folder synced
before the slot is moved past it. Whoever is killed between any two of these continues from the files.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from backfill_assets.core.history.changes import full_xid
from backfill_assets.core.live.feed import (
    FeedFile,
    Transaction,
    as_lsn,
    envelope,
    follow_on,
    from_lsn,
)
from backfill_assets.core.live.pgoutput import Begin, Change, Commit, Decoder, Truncate
from backfill_assets.core.postgres import questions
from backfill_assets.errors import CaptureRunningError, ChangeFeedError, SourceUnavailableError
from backfill_assets.live.changes.another_past import is_another_past
from backfill_assets.live.changes.joining import Joining, noted_tables
from backfill_assets.live.changes.landed import (
    STOPPED,
    Brought,
    CaptureTable,
    Landed,
    end_noted,
    land_idle,
    note_caught_up,
    note_slot,
    sync,
    tables_of,
)
from backfill_assets.live.changes.published import Publication
from backfill_assets.sources.database.connection import Database

if TYPE_CHECKING:
    import psycopg

CHANGES_AT_ONCE = 20_000
"""So many changes are asked for at once, about: a transaction is never cut."""

FETCHED_AT_ONCE = 2_000
_PART = "part-{}.tmp"
_LOOK_AGAIN_SECONDS = 0.1
_NOTHING_TAKEN = "What was captured before has landed; nothing after it has been taken from the server."


@dataclass(slots=True)
class Capture:
    """Captures the changes of some tables of one database into one folder.

    Args:
        name: Slot and publication are `backfill_assets_<name>`.
        folder: Of files on this machine's disk.
        heartbeat_seconds: After so long without a change the feed says that there was none.
        lock_wait_seconds: So long the server may take to notice that a capture before this one was killed.
        has_landed: Whether the server has given what it had, in this run, be it nothing.
    """

    name: str
    database: Database
    tables: Sequence[CaptureTable]
    folder: Path
    log: Callable[[str], None] = field(default=lambda _: None)
    heartbeat_seconds: float = 5.0
    changes_at_once: int = CHANGES_AT_ONCE
    lock_wait_seconds: float = 10.0
    has_landed: bool = field(default=False, init=False)
    _looked_at: float = field(default=0.0, init=False)
    _kept: str = field(default="", init=False)
    _numbers: Mapping[int, CaptureTable] = field(default_factory=dict[int, CaptureTable], init=False)
    _joining: Joining = field(init=False)

    @property
    def slot(self) -> str:
        """The slot's name, and the publication's."""
        return f"backfill_assets_{self.name}"

    def run(
        self, *, once: bool, pause_seconds: float, stop: threading.Event, report: Callable[[Landed], None] | None = None
    ) -> None:
        """Capture until stopped, or until all that is there by now has landed.

        Raises:
            SourceUnavailableError: The server did not answer.
            SourceRefusedError: A right is missing, or the server is set up without logical replication.
            ChangeFeedError: Slot and files do not fit each other, or a row comes without what was there before.
            CaptureRunningError: Another one of the same name is running.
            StorageError: The folder is full, or may not be written.
        """
        self.has_landed, self._kept, self._looked_at = False, "", 0.0
        no_ends = (CaptureRunningError,) if once else (CaptureRunningError, SourceUnavailableError)
        with (
            end_noted(self.folder, but_for=no_ends),
            self.database.connected() as connection,
            self._alone(connection, stop),
        ):
            if stop.is_set():
                return
            for left_over in self.folder.glob(_PART.format("*")):  # of one that was killed
                left_over.unlink(missing_ok=True)
            self._prepare(connection)
            until = self._flushed(connection) if once else None
            while not stop.is_set():
                landed = self.land(connection)
                (self.folder / STOPPED).unlink(missing_ok=True)
                if landed.file and report:
                    report(landed)
                if once and (landed.file is None or landed.file.end >= (until or 0)):
                    return
                if landed.transactions == 0 and stop.wait(pause_seconds):
                    return

    @contextmanager
    def _alone(self, connection: psycopg.Connection, stop: threading.Event) -> Iterator[None]:
        """Hold the lock that another capture of the same name would need, or be stopped while it is waited for."""
        until = time.monotonic() + self.lock_wait_seconds
        while not self.database.ask(connection, questions.TRY_LOCK, (self.slot,))[0][0]:
            if time.monotonic() >= until:
                raise CaptureRunningError(
                    f"The capture `{self.name}` is running already, from another process or machine.",
                    state="Nothing was taken from the server.",
                    remedy="Let that one run, or stop it first.",
                )
            if stop.wait(_LOOK_AGAIN_SECONDS):
                break
        yield

    def _prepare(self, connection: psycopg.Connection) -> None:
        """Make the publication and, after it, the slot, if they are not there; hold them against tables and files."""
        has_slot, has_files = self._slot(connection) is not None, bool(self._files())
        has_begun = has_slot or has_files
        self._numbers = self._publication.prepare(connection, noted_tables(self.folder), has_begun=has_begun)
        self._joining = Joining(self.folder, self.database, self.tables, self.log)
        self._joining.prepare(connection, has_begun=has_begun)
        if not has_slot:
            if has_files:
                raise self._slot_is_gone("there is no such slot")
            self.database.run(connection, questions.CREATE_SLOT, (self.slot,))
            self.log(f"The slot `{self.slot}` was made: every change from now on is kept until it has landed.")

    @property
    def _publication(self) -> Publication:
        return Publication(self.slot, self.database, self.tables, self.folder, self.log)

    # -- one look at the server ------------------------------------------------------------------------------------

    def land(self, connection: psycopg.Connection) -> Landed:
        """Land what the server has by now, at most about `changes_at_once` changes, and move the slot past it."""
        start, asked_at = self._start(connection), time.time()
        self._joining.look(connection, start)
        upto = self._flushed(connection)
        self._publication.refuse_changes(connection, self._numbers)
        self._joining.look_for_other_values(connection, self._numbers)
        part = self.folder / _PART.format(uuid.uuid4().hex)
        try:
            with part.open("w", encoding="utf-8") as lines:
                brought = self._write(connection, start, upto, lines)
                self.has_landed = True
                lines.flush()
                os.fsync(lines.fileno())
            if not brought.transactions:
                idle = self._heartbeat(connection, start, upto)
                self._joining.look(connection, idle.end if idle else start)
                note_caught_up(self.folder, asked_at)
                return Landed(idle, 0, 0, 0)
            file = FeedFile(start, brought.end)
            if brought.changes:
                part.rename(self.folder / file.name)
            else:  # the publication has tables that are not captured, or the server tells of every transaction
                file = land_idle(self.folder, self._files(), start, brought.end)
        finally:
            part.unlink(missing_ok=True)
        sync(self.folder)
        self._advance(connection, brought.end)
        self._joining.look(connection, brought.end)
        if brought.messages < self.changes_at_once:  # the server had no more
            note_caught_up(self.folder, asked_at)
        return Landed(file, brought.transactions, brought.changes, max(upto - brought.end, 0))

    def _write(self, connection: psycopg.Connection, start: int, upto: int, lines: TextIO) -> Brought:
        """Write the transactions that have ended since, whole and in order, a few changes in memory at a time."""
        decoder, brought = Decoder(), Brought(start)
        of, numbers = Transaction(0, start, 0, 0), Counter[int]()
        reference = int(self.database.ask(connection, questions.ENDED_XID)[0][0])
        for lsn, message in self._messages(connection, upto, self.changes_at_once):
            brought.messages += 1
            match decoder.decode(message):
                case Begin(xid=xid, commit=commit, micros=micros):
                    of, numbers = Transaction(full_xid(xid, reference), brought.end, commit, micros), Counter[int]()
                case Change() | Truncate() as change:
                    for relation in tables_of(change):
                        if table := self._numbers.get(relation.oid):
                            numbers[relation.oid] += 1
                            brought.changes += 1
                            named = replace(relation, schema=table.schema, name=table.name)  # whatever it was called
                            place = from_lsn(lsn), numbers.total(), numbers[relation.oid]
                            lines.write(envelope(change, named, of, place, connection.info.dbname) + "\n")
                case Commit(end=ended):
                    brought.end, brought.transactions = ended, brought.transactions + 1
                case _:
                    continue
        return brought

    def _messages(self, connection: psycopg.Connection, upto: int, most: int | None) -> Iterator[tuple[str, bytes]]:
        with (
            self.database.failures_translated(),
            connection.transaction(),
            connection.cursor(name="changes", binary=True) as cursor,
        ):
            cursor.itersize = FETCHED_AT_ONCE
            cursor.execute(questions.PEEK, (self.slot, as_lsn(upto), most, self.slot))
            for lsn, message in cursor:
                yield lsn, bytes(message)

    def _start(self, connection: psycopg.Connection) -> int:
        """Return up to where the feed has come; move a slot past what has landed already.

        Raises:
            ChangeFeedError: The slot is lost, or is not where what has landed says; the server was put back.
        """
        slot = self._slot(connection)
        if slot is None:
            raise self._slot_is_gone("there is no such slot any more")
        confirmed, status = slot
        self._kept = note_slot(self.folder, self._kept, status or "", self.log)
        if status == "lost" or confirmed is None:
            raise self._slot_is_gone("the server has thrown away what it kept for it")
        files = follow_on(self._files(), None, f"The capture `{self.name}`")
        if not files:
            return from_lsn(confirmed)
        end = files[-1].end
        if end > self._flushed(connection):
            raise self._slot_is_gone("the server's log ends before the newest file: it is an older copy of the server")
        if end > from_lsn(confirmed):
            told = self._messages(connection, end, None)
            if is_another_past(self.folder, files, from_lsn(confirmed), told, self._numbers):
                raise self._slot_is_gone("the server tells another past than has landed: it was put back from a copy")
            self._advance(connection, end)
        elif end < from_lsn(confirmed):
            raise ChangeFeedError(
                f"The capture `{self.name}`: the slot is at `{confirmed}`, and the newest file ends at "
                f"`{as_lsn(end)}`: somebody else has taken what lies between, or files were taken away.",
                state=_NOTHING_TAKEN,
                remedy="Bring the files back. If they are gone: delete the others, drop the slot "
                f"(`SELECT pg_drop_replication_slot('{self.slot}')`), start the capture again, and launch all "
                "partitions again.",
            )
        return end

    def _slot(self, connection: psycopg.Connection) -> tuple[str | None, str | None] | None:
        """Return up to where the slot has come, and whether the server still keeps what follows."""
        found = self.database.ask(connection, questions.SLOT, (self.slot,))
        return (found[0][0], found[0][1]) if found else None

    def _slot_is_gone(self, why: str) -> ChangeFeedError:
        return ChangeFeedError(
            f"The capture `{self.name}`: {why} (`{self.slot}`), so changes since then are lost to the feed.",
            state=_NOTHING_TAKEN,
            remedy=f"Drop the slot if it is there (`SELECT pg_drop_replication_slot('{self.slot}')`), move the files "
            f"in `{self.folder}` away, start the capture again, and launch all partitions again: each is then of a "
            "snapshot that has what was lost.",
        )

    def _files(self) -> list[FeedFile]:
        return [file for name in os.listdir(self.folder) if (file := FeedFile.named(name))]  # noqa: PTH208 (names alone)

    def _flushed(self, connection: psycopg.Connection) -> int:
        return from_lsn(self.database.ask(connection, questions.FLUSHED)[0][0])

    def _advance(self, connection: psycopg.Connection, position: int) -> None:
        self.database.run(connection, questions.ADVANCE, (self.slot, as_lsn(position)))

    def _heartbeat(self, connection: psycopg.Connection, start: int, upto: int) -> FeedFile | None:
        """Say now and then that nothing has changed."""
        is_time = upto > start and time.monotonic() - self._looked_at >= self.heartbeat_seconds
        if (files := self._files()) and not is_time:
            return None
        self._looked_at = time.monotonic()
        file = land_idle(self.folder, files, start, max(upto, start))
        sync(self.folder)
        self._advance(connection, file.end)
        return file
