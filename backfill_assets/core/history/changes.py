"""What changes of a database do to rows: which of them a snapshot has seen, which one counts, what then is there. Pure.

`fold` says it for rows in memory. Spark's `Fold` does the same with as many as there are; tests hold the two against
each other, and `fold` against a database.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

LEAVES: Final = ("u", "d")
"""Operations after which the row from before is not there any more."""

COMES: Final = ("c", "u")
"""Operations after which a row is there; one that leaves and comes by the same change is there."""

EMPTIES: Final = "t"
"""The operation after which no row is there."""

HALF: Final = 1 << 32
"""So many ids of transactions the lower half of one tells apart."""

Row = TypeVar("Row")

Order = tuple[int, int]
"""What changes are ordered by: after which position their transaction ended, and their number in it."""


def full_xid(xid: int, reference: int) -> int:
    """Return the 64-bit id of a transaction of which the log has the lower half.

    Args:
        reference: The 64-bit id of a transaction of that time, older or newer: PostgreSQL lets no two of one time be
            further apart than 2³¹. A transaction may be in the log, and newer than each that anybody sees to have
            ended: whoever commits may have to wait for a standby.

    | xid | reference | is |
    |-----|-----------|----|
    | 7 | 9 | 7 |
    | 12 | 9 | 12 |
    | 7 | 2³² + 9 | 2³² + 7 |
    | 12 | 2³² + 9 | 2³² + 12 |
    | 4294967290 | 2³² + 9 | 4294967290 |
    | 7 | 4294967290 | 2³² + 7 |
    """
    return reference + (xid - reference + HALF // 2) % HALF - HALF // 2


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """Which transactions a snapshot of a database has seen.

    Args:
        first_open: Every one with a smaller id had ended.
        next_one: None had this id, or a greater one.
        still_open: Those between the two that had not ended.
    """

    first_open: int
    next_one: int
    still_open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> DatabaseSnapshot:
        """Read it as PostgreSQL writes it: `xmin:xmax:open,open`, of 64-bit ids."""
        first_open, next_one, still_open = text.split(":")
        return cls(int(first_open), int(next_one), frozenset(int(each) for each in still_open.split(",") if each))

    def sees(self, xid: int) -> bool:
        """Say whether it has seen what a transaction did, as PostgreSQL's `pg_visible_in_snapshot` does."""
        return xid < self.first_open or (xid < self.next_one and xid not in self.still_open)

    def whole_xid(self, half: int) -> int:
        """Return the 64-bit id of a transaction of which only the lower half is known: the nearest to the snapshot.

        PostgreSQL lets no two transactions of one time be further apart.

        | next one | half | is |
        |----------|------|----|
        | 9 | 7 | 7 |
        | 9 | 12 | 12 |
        | 4294967305 | 7 | 4294967303 |
        | 4294967305 | 12 | 4294967308 |
        | 4294967305 | 4294967290 | 4294967290 |
        | 4294967290 | 7 | 4294967303 |
        """
        return full_xid(half, self.next_one)


@dataclass(frozen=True, slots=True)
class RowChange(Generic[Row]):
    """A change of one row, or of all.

    Args:
        op: As Debezium calls it: `c`, `u`, `d`, `t`.
        xid: Of its transaction.
    """

    op: str
    at: Order
    before: Row | None = None
    after: Row | None = None
    xid: int = 0


def fold(
    rows: Iterable[Row],
    changes: Iterable[RowChange[Row]],
    identity: Callable[[Row], Hashable],
    *,
    since: Callable[[Row], int] = lambda _: 0,
) -> list[Row]:
    """Return what is there after changes have happened to rows, in whatever order they are told.

    Of each row, told by its identity, the newest transaction counts that did anything to it: what came with it and did
    not leave again is there. A transaction may swap two keys, or count all of them up: for a moment a key then has two
    rows, and which of them leaves is told by what is in it. What has come as often as it has left was there before if
    it left first; if it came first, nothing is known. So folding the same changes twice gives the same.

    Args:
        rows: Hashable, and equal if all that is in them is.
        identity: What tells a row; a partition's row, by partition and key.
        since: Position up to which what lies where a row lies has every change; earlier changes are left out.
    """
    told = list(changes)
    emptied = max((change.at for change in told if change.op == EMPTIES), default=None)
    effects: dict[Hashable, dict[int, list[tuple[int, int, Row]]]] = defaultdict(lambda: defaultdict(list))
    for change in told:
        position, number = change.at
        if emptied is not None and change.at <= emptied:
            continue
        if change.op in LEAVES and change.before is not None and position >= since(change.before):
            effects[identity(change.before)][position].append((number, -1, change.before))
        if change.op in COMES and change.after is not None and position >= since(change.after):
            effects[identity(change.after)][position].append((number, +1, change.after))
    newest = {told_by: _left(by_position) for told_by, by_position in effects.items()}
    kept = [row for row in rows if emptied is None or emptied[0] < since(row)]
    untouched = [row for row in kept if newest.get(identity(row)) is None]
    return untouched + [row for left in newest.values() if left for row in left]


def _left(by_position: Mapping[int, Sequence[tuple[int, int, Row]]]) -> list[Row] | None:
    """Return what the newest transaction that did anything has left of a row; None if there is none."""
    for _, effects in sorted(by_position.items(), reverse=True):
        counts: Counter[Row] = Counter()
        for _, count, row in effects:
            counts[row] += count
        if any(counts.values()):
            return [row for row, count in counts.items() if count > 0]
        _, count, row = min(effects, key=lambda effect: effect[:2])
        if count < 0:
            return [row]
    return None
