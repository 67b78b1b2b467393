"""What state a partition is in: the one answer that launches, checks, schedules and commands all read. Pure.

Whoever asks says what is known. What was not looked at plays no part, so a question that reads no rows costs nothing;
where two answers would be right the strictest is given, and the others are kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.state.fence import Fence, is_history
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import written_out

LOST = "published, and its source has it no more"
"""Why a partition is incomplete at its source that was published from it."""


class State(StrEnum):
    """The states of a partition, the strictest first."""

    LIVE = "live"
    """It belongs to the live stream."""
    SOURCE_INCOMPLETE = "source incomplete"
    """The source has not all of it yet, so it can neither be launched nor compared."""
    MISSING = "missing"
    """It was never published, and the table has no rows of it."""
    UNREADABLE = "unreadable"
    """A file of it is gone or damaged, so its rows cannot be read; a launch writes it anew."""
    FOREIGN = "foreign rows"
    """The table has rows of it that no publish put there, or lacks some that one did, or was written since."""
    RESTORED = "restored"
    """Its newest publish was taken back, so it has the rows from before."""
    DIFFERS = "differs"
    """Its newest comparison found a difference."""
    STALE_SOURCE = "stale source"
    """The source has changed since it was published."""
    STALE_LATE_ROWS = "stale late rows"
    """Late rows came that it was published without."""
    STALE_CODE = "stale code"
    """It was published by another spec, or another transform."""
    PUBLISHED = "published"
    """It is in the table as the source, the late rows and the code would make it now."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a table's partitions. None means that it was not looked at.

    Args:
        published: The newest receipt of each partition, by key; a partition that it lacks was never published. A value
            of None: it is published, and its receipt is not at hand.
        fence: Where history ends; None for a table without a live stream.
        complete_until: The instant up to which the source is complete; only with `is_source_known`.
        is_source_known: Whether `complete_until` was asked for; a source that has nothing at all answers None.
        surveys: What the source has of each partition now, by key.
        late_rows: Late rows there are now, by key; a partition that it lacks has none.
        rows_now: Rows that the table has now, by key; a partition that it lacks has none; None: nobody can count them.
        written_since: The newest version by which somebody else wrote a partition after its receipt, by key.
        differing: Keys of partitions whose newest comparison failed.
        unreadable: Why partitions cannot be read, by key; their rows are not counted.
        refused: When and why the newest launch of a partition refused it, in words, by key.
        code_version: Of the code that would make the rows now; empty if that is not asked.
    """

    published: Mapping[str, PublishedPartition | None] = field(default_factory=dict[str, "PublishedPartition | None"])
    fence: Fence | None = None
    complete_until: datetime | None = None
    is_source_known: bool = False
    surveys: Mapping[str, Survey] | None = None
    late_rows: Mapping[str, int] | None = None
    rows_now: Mapping[str, int | None] | None = None
    written_since: Mapping[str, int] = field(default_factory=dict[str, int])
    differing: Set[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    code_version: str = ""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The state of one partition.

    Args:
        states: All that apply, the strictest first; at least one.
        why: One clause for each of them.
        published: Its newest receipt, if it has one that is at hand.
    """

    partition: Partition
    states: tuple[State, ...]
    why: tuple[str, ...]
    published: PublishedPartition | None = None

    @property
    def state(self) -> State:
        """The strictest."""
        return self.states[0]

    @property
    def reason(self) -> str:
        """Why it is in that state, in words."""
        return self.why[0]

    @property
    def may_have_foreign_rows(self) -> bool:
        """Whether the table may have rows of it that no publish put there."""
        was_restored = State.RESTORED in self.states and not (self.published and self.published.has_published_rows)
        return State.FOREIGN in self.states or was_restored

    @property
    def can_be_compared(self) -> bool:
        """Whether there is a whole source to hold it against."""
        return self.state not in (State.LIVE, State.SOURCE_INCOMPLETE)


def status_of(partitions: Sequence[Partition], known: Known) -> list[PartitionStatus]:
    """Say of each partition what state it is in.

    `fence`: the partition lies before or after it. `source`: complete for the partition or not, and whether its
    fingerprint is the receipt's. `rows`, `late` and `code`: as in the receipt, or not. `compared`: how its newest
    comparison ended. `-` means that it was not looked at.

    | fence  | source     | receipt   | rows  | late | compared | code  | state             |
    |--------|------------|-----------|-------|------|----------|-------|-------------------|
    | after  | -          | none      | -     | -    | -        | -     | live              |
    | after  | complete   | same      | same  | same | passed   | same  | live              |
    | before | incomplete | none      | none  | -    | -        | -     | source incomplete |
    | before | incomplete | same      | same  | same | passed   | same  | source incomplete |
    | none   | nothing    | none      | -     | -    | -        | -     | source incomplete |
    | none   | nothing    | same      | -     | -    | -        | -     | source incomplete |
    | none   | -          | none      | -     | -    | -        | -     | missing           |
    | before | complete   | none      | none  | none | -        | same  | missing           |
    | before | complete   | none      | some  | none | -        | same  | foreign rows      |
    | before | complete   | same      | other | same | -        | same  | foreign rows      |
    | none   | complete   | same      | none  | same | passed   | same  | foreign rows      |
    | none   | complete   | same      | after | same | passed   | same  | foreign rows      |
    | none   | complete   | same      | newer | -    | -        | -     | foreign rows      |
    | none   | complete   | restored  | after | -    | -        | -     | foreign rows      |
    | none   | complete   | same      | gone  | same | passed   | same  | unreadable        |
    | before | complete   | other     | gone  | more | failed   | other | unreadable        |
    | none   | complete   | none      | gone  | -    | -        | -     | unreadable        |
    | after  | complete   | same      | gone  | -    | -        | -     | live              |
    | none   | nothing    | same      | gone  | -    | -        | -     | source incomplete |
    | none   | complete   | restored  | same  | -    | -        | same  | restored          |
    | none   | complete   | restored  | other | -    | -        | same  | foreign rows      |
    | none   | complete   | restored0 | none  | -    | -        | same  | restored          |
    | before | complete   | same      | other | same | failed   | same  | foreign rows      |
    | before | complete   | same      | same  | same | failed   | same  | differs           |
    | none   | complete   | other     | same  | more | failed   | other | differs           |
    | none   | complete   | none      | -     | -    | failed   | -     | missing           |
    | none   | complete   | other     | same  | same | passed   | same  | stale source      |
    | before | complete   | other     | -     | more | passed   | other | stale source      |
    | before | complete   | same      | same  | more | passed   | same  | stale late rows   |
    | before | complete   | same      | same  | less | passed   | same  | stale late rows   |
    | before | complete   | same      | same  | more | -        | other | stale late rows   |
    | none   | complete   | same      | same  | same | passed   | other | stale code        |
    | none   | complete   | same      | same  | same | passed   | older | stale code        |
    | none   | -          | at hand   | -     | -    | failed   | -     | differs           |
    | none   | -          | unread    | -     | -    | passed   | same  | published         |
    | none   | -          | unread    | -     | -    | failed   | same  | differs           |
    | none   | complete   | same      | -     | -    | -        | -     | published         |
    | before | complete   | same      | same  | same | passed   | same  | published         |

    `restored`: the newest commit put back what was there before it; `restored0` put back nothing. `older`: a receipt
    of a format that did not name its code yet. `unread`: published, and the receipt is not at hand. `after`: as many
    rows, and somebody else wrote the partition after the receipt; `newer`: only that is known. `gone`: a file is.

    Args:
        known: What was looked at.
    """
    found: list[PartitionStatus] = []
    for partition in partitions:
        pairs = list(_states(partition, known)) or [(State.PUBLISHED, "published, as the source has it now")]
        states, why = zip(*pairs, strict=True)
        found.append(PartitionStatus(partition, states, why, known.published.get(partition.key)))
    return found


def _states(partition: Partition, known: Known) -> Iterator[tuple[State, str]]:
    """Yield every state but `published` that applies, the strictest first, each with why."""
    key = partition.key
    if known.fence is not None and not is_history(partition, known.fence):
        yield State.LIVE, f"it is live: the fence is at {known.fence.at_utc.isoformat()}"
        return
    until = known.complete_until
    if known.is_source_known and (until is None or partition.window.end_utc > until):
        yield State.SOURCE_INCOMPLETE, LOST if key in known.published else "its source is not complete for it yet"
        return
    newest = known.published.get(key)
    rows = None if known.rows_now is None or key in known.unreadable else known.rows_now.get(key, 0)
    if key in known.unreadable:
        yield State.UNREADABLE, f"its rows cannot be read: {known.unreadable[key]}"
        if newest is None:
            return
    if newest is None:
        if key not in known.published:
            is_there = known.rows_now is not None and key in known.rows_now
            there = "rows of it that nobody can count" if rows is None else f"{rows:,} rows of it"
            yield (
                (State.FOREIGN, f"never published, and the table has {there}")
                if is_there and rows != 0
                else (State.MISSING, known.refused.get(key, "never published"))
            )
        elif key in known.differing:
            yield State.DIFFERS, "differs from its source"
        return
    yield from _of_published(newest, rows, key, known)


def _of_published(newest: PublishedPartition, rows: int | None, key: str, known: Known) -> Iterator[tuple[State, str]]:
    """Yield every state that applies to a partition whose receipt is at hand."""
    part, receipt, is_publish = newest.partition, newest.receipt, newest.receipt.kind == "publish"
    if rows is not None and rows != part.rows:
        yield State.FOREIGN, f"published with {part.rows:,} rows, and has {rows:,}: somebody else wrote it"
    elif key in known.written_since:
        version = known.written_since[key]
        yield State.FOREIGN, f"published in version {newest.version}, and somebody else wrote it in version {version}"
    if not is_publish:
        yield State.RESTORED, "its newest publish was taken back, and it has the rows from before"
    if key in known.differing:
        refused = f", and was {known.refused[key]}" if key in known.refused else ""
        yield State.DIFFERS, f"differs from its source{refused}"
    if is_publish and known.surveys is not None and part.fingerprint != known.surveys[key].fingerprint:
        yield State.STALE_SOURCE, "its source changed after it was published"
    late = None if known.late_rows is None else known.late_rows.get(key, 0) - part.late_rows
    if late:
        what = f"{late:,} late rows wait to be folded in" if late > 0 else f"{-late:,} late rows are gone"
        yield State.STALE_LATE_ROWS, f"stale: {what}"
    if is_publish and known.code_version and receipt.run.code_version != known.code_version:
        yield State.STALE_CODE, "it was published before the spec, or the transform, was changed"


def lost_at_source(partitions: Sequence[Partition], known: Known) -> list[PartitionStatus]:
    """Return the states of those partitions of history that are published, and that the source has no more.

    Args:
        known: Receipts, the fence, and how far the source is complete.
    """
    found = status_of([partition for partition in partitions if partition.key in known.published], known)
    return [status for status in found if status.state is State.SOURCE_INCOMPLETE]


def outside_in_words(table: str, outside: Mapping[str, int]) -> str:
    """Say which values of the partition column are no partition of a table; empty if there are none.

    Args:
        outside: Rows by value.
    """
    if not outside:
        return ""
    named = ", ".join(f"`{written_out(value)}` ({rows:,})" for value, rows in list(outside.items())[:5])
    return (
        f"{sum(outside.values()):,} rows of `{table}` lie in values that are no partition of it: {named}"
        f"{', ...' if len(outside) > 5 else ''}. No launch replaces them, and no check covers them. Delete them; if "
        "they are history, let `start` in the spec be where they begin."
    )


def partitions_with_foreign_rows(
    partitions: Sequence[Partition],
    rows_now: Mapping[str, int | None],
    published: Mapping[str, PublishedPartition],
    written_since: Mapping[str, int],
) -> list[Partition]:
    """Return the partitions with rows that no publish put there: a live stream did, or somebody else."""
    found = status_of(partitions, Known(published=published, rows_now=rows_now, written_since=written_since))
    return [status.partition for status in found if status.may_have_foreign_rows]
