"""What a capture lands, and where."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from backfill_assets.core.live.feed import FeedFile, as_lsn
from backfill_assets.core.live.pgoutput import Change, Relation, Truncate
from backfill_assets.core.postgres_names import as_typed
from backfill_assets.core.words import seconds_in_words
from backfill_assets.errors import LANDED_STAYS, BackfillAssetsError, ChangeFeedError, StorageError

Noted = TypeVar("Noted")

SILENT_SECONDS = 60.0
"""A capture that runs gives a sign of life far more often."""


@dataclass(frozen=True, slots=True)
class CaptureTable:
    """A table whose changes are captured.

    Args:
        optional: Columns that a table of the lakehouse has whether or not the database has them.
        keys: By which columns each table of the lakehouse that follows it tells rows apart.
    """

    schema: str
    name: str
    optional: frozenset[str] = field(default=frozenset(), compare=False)
    keys: frozenset[tuple[str, ...]] = field(default=frozenset(), compare=False)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def typed(self) -> str:
        """As a person types it in a statement."""
        return as_typed(self.schema, self.name)


@dataclass(slots=True)
class Brought:
    """What the server has sent so far in one look at it.

    Args:
        end: Position behind the last transaction.
        messages: Of all kinds, and of all tables.
        changes: Of the captured tables.
    """

    end: int
    messages: int = 0
    transactions: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Landed:
    """What one look at the server has brought.

    Args:
        behind_bytes: How much of the log the server has by now that was not looked at.
    """

    file: FeedFile | None
    transactions: int
    changes: int
    behind_bytes: int

    def __str__(self) -> str:
        where = f"up to {as_lsn(self.file.end)}" if self.file else "nothing new"
        return f"{self.changes:,} changes of {self.transactions:,} transactions, {where}"


STOPPED = "stopped.txt"
"""File beside a feed's in which a capture says why it ended, until one has landed what there is."""

CAUGHT_UP = "caught_up"
"""File beside a feed's that was changed when the server was last asked and had nothing that has not landed."""


SLOT = "slot.txt"
"""File beside a feed's in which is the slot's `wal_status`, as the server says it, while that is not `reserved`."""

SLOT_WARNINGS = {
    "extended": "the server keeps more of its log for the slot than `max_wal_size`, since the capture is behind",
    "unreserved": "the server keeps its log for the slot no longer: at its next checkpoint the slot is lost, and every "
    "partition has to be launched again, unless the capture catches up before or `max_slot_wal_keep_size` is raised",
}
"""What it means, by `wal_status`."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """How a feed stands, as its folder says: nobody asks the database.

    Args:
        landed_at: When all that the database had had landed; None: never, or nobody knows. Of a feed that others land,
            who do not say that, when it got its newest file.
        stopped: Why its capture ended, in words; empty if it did not say so.
        slot: How the server keeps its log for the slot, in its own word; empty if as it should.
        has_table: Whether its capture has the table that was asked for.
    """

    landed_at: datetime | None
    stopped: str = ""
    slot: str = ""
    has_table: bool = True

    @property
    def comes_no_more(self) -> bool:
        """Whether changes of the table come no more, or not yet."""
        return bool(self.stopped) or not self.has_table

    def in_words(self, capture: str, now: datetime) -> str:
        """Say it; a feed is silent after a minute without even a sign of life."""
        if self.stopped:
            so_far = f" Every partition is as of {self.landed_at:%Y-%m-%d %H:%M:%S} UTC." if self.landed_at else ""
            return f"the capture {capture} has stopped: {self.stopped}{so_far}"
        if not self.has_table:
            return (
                f"the capture {capture} does not have this table: it joins once all that was open when it came has "
                "ended; if the project has had it for less long than the capture runs, start that again"
            )
        if self.landed_at is None:
            return f"no feed yet: start `backfill-assets capture {capture}`"
        seconds = max(0.0, (now - self.landed_at).total_seconds())
        ago = f"feed {seconds_in_words(seconds)} ago"
        said = ago if seconds < SILENT_SECONDS else f"{ago}: is `backfill-assets capture {capture}` running?"
        return "; ".join(filter(None, [said, SLOT_WARNINGS.get(self.slot, "")]))


def feed_state(folder: Path) -> FeedState:
    """Return how the feed in a folder stands; one that was never begun has landed nothing."""
    if not folder.is_dir():
        return FeedState(None)
    newest = max((file for path in folder.iterdir() if (file := FeedFile.named(path.name))), default=None)
    stopped, slot = (_text(folder / name) for name in (STOPPED, SLOT))
    if newest is None:
        return FeedState(None, stopped, slot)
    with suppress(FileNotFoundError):
        return FeedState(datetime.fromtimestamp((folder / CAUGHT_UP).stat().st_mtime, UTC), stopped, slot)
    with suppress(FileNotFoundError):  # an idle file has just got a new name
        changed = (folder / newest.name).stat().st_ctime  # a new name changes this, and not when it was written
        return FeedState(datetime.fromtimestamp(changed, UTC), stopped, slot)
    return FeedState(datetime.now(UTC), stopped, slot)


def _text(note: Path) -> str:
    """Return what a note says; empty if there is none, be it since a moment ago."""
    with suppress(FileNotFoundError):
        return note.read_text(encoding="utf-8")
    return ""


def note_why_it_stopped(folder: Path, why: str) -> None:
    """Keep why a capture ended, where `status` finds it; nothing if the folder cannot be written."""
    with suppress(OSError):
        (folder / STOPPED).write_text(why, encoding="utf-8")


@contextmanager
def end_noted(folder: Path, *, but_for: tuple[type[BackfillAssetsError], ...] = ()) -> Iterator[None]:
    """Make a feed's folder, and leave in it why its capture could not continue, until one has landed what there is.

    Args:
        but_for: What may pass by itself, and is not an end yet.

    Raises:
        StorageError: For an `OSError`: its folder is full, or may not be written.
    """
    try:
        with _storage_in_words(folder):
            folder.mkdir(parents=True, exist_ok=True)
            yield
    except BackfillAssetsError as error:
        if not isinstance(error, but_for):
            note_why_it_stopped(folder, error.what)
        raise


@contextmanager
def _storage_in_words(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"The changes cannot land in `{folder}`: {error.strerror or error}.",
            state=LANDED_STAYS,
            remedy="Make room there, or give this user the right to write, and start the capture again.",
        ) from error


def note_caught_up(folder: Path, at: float) -> None:
    """Note that all which the database had at an instant, in seconds since 1970, has landed; nothing if that fails."""
    note = folder / CAUGHT_UP
    with suppress(OSError):
        if not note.exists():
            note.touch()
        os.utime(note, (at, at))


def note_slot(folder: Path, before: str, status: str, log: Callable[[str], None]) -> str:
    """Note how the server keeps its log for a slot where that has changed, and warn if it may stop; return it."""
    if status != before:
        with suppress(OSError):
            (folder / SLOT).unlink(missing_ok=True)
            if status != "reserved":
                (folder / SLOT).write_text(status, encoding="utf-8")
        if warning := SLOT_WARNINGS.get(status):
            log(f"Warning: {warning}.")
    return status


def land_idle(folder: Path, files: Collection[FeedFile], start: int, upto: int) -> FeedFile:
    """Say that nothing has changed, by an empty file, or by a new name for the newest one if that is empty.

    Args:
        files: Those in the folder.
    """
    newest = max(files, default=None)
    if newest and newest.is_idle:
        file = FeedFile(newest.start, upto, is_idle=True)
        (folder / newest.name).rename(folder / file.name)
    else:
        file = FeedFile(start, upto, is_idle=True)
        (folder / file.name).touch(exist_ok=False)
    return file


def tables_of(change: Change | Truncate) -> Sequence[Relation]:
    """Return the tables that a change is of."""
    return change.relations if isinstance(change, Truncate) else (change.relation,)


def note_as_a_whole(folder: Path, name: str, text: str) -> None:
    """Keep a file beside a feed's: whenever the process or the machine ends, it is as it was or as it is to be."""
    part = folder / f"{name}.tmp"
    with part.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.rename(folder / name)
    sync(folder)


def noted_beside(folder: Path, name: str, kind: TypeAdapter[Noted]) -> Noted | None:
    """Return what a file beside a feed's says; None if it is not there.

    Raises:
        ChangeFeedError: It cannot be read, so nobody knows which changes the feed has.
    """
    try:
        return kind.validate_json((folder / name).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ChangeFeedError(
            f"`{folder / name}`, in which a capture notes what its files have, cannot be read: "
            f"{error.errors(include_url=False)[0]['msg']}.",
            state=LANDED_STAYS,
            remedy="Put it back as it was, from a backup. If there is none: drop the slot and the publication, move "
            "the files in that folder away, start the capture again, and launch all partitions again.",
        ) from None


def sync(folder: Path) -> None:
    """Have the disk keep the folder's names."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
