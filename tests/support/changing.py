"""A database in memory whose customers change in every way there is, with its log: for tests of the fold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from backfill_assets.core.history.changes import DatabaseSnapshot, RowChange

KEYS, DAYS = 8, 3


class Customer(NamedTuple):
    """A row: its key, the partition that it lies in, and anything else."""

    id: int
    day: int
    name: str


Change = RowChange[Customer]


@dataclass
class Changing:
    """A database.

    Args:
        xid: Id of the next transaction.
        rows: By key, as they are for whoever sees everything.
        log: Every change, in the order of the log; a transaction's after all that ended before it.
        position: End of the log.
    """

    dice: random.Random
    xid: int = 100
    may_empty: bool = True
    rows: dict[int, Customer] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    position: int = 10
    _open: list[int] = field(default_factory=list)
    _waiting: set[int] = field(default_factory=set)
    _touched: set[int] = field(default_factory=set)
    _names: int = 0

    def step(self) -> None:
        """Let a transaction begin or end, or one that has ended in the log be seen, as after a standby's answer."""
        if self._waiting and self.dice.random() < 0.4:
            self._waiting.clear()
            self._touched.clear()
        elif not self._open or self.dice.random() < 0.4:
            self._open.append(self.xid)
            self.xid += 1
        else:
            self._end(self._open.pop(self.dice.randrange(len(self._open))))

    def snapshot(self) -> DatabaseSnapshot:
        """Return what is seen now."""
        pending = frozenset({*self._open, *self._waiting})
        return DatabaseSnapshot(min(pending, default=self.xid), self.xid, pending)

    def seen_by(self, snapshot: DatabaseSnapshot) -> dict[int, Customer]:
        """Return the rows that a snapshot sees."""
        return replayed(change for change in self.log if snapshot.sees(change.xid))

    def at(self, position: int) -> dict[int, Customer]:
        """Return the rows as they were when the log ended there."""
        return replayed(change for change in self.log if change.at[0] < position)

    def _end(self, xid: int) -> None:
        if self.dice.random() < 0.15:
            return  # rolled back
        changes = [change for _ in range(self.dice.randint(1, 4)) for change in self._statement()]
        self.log += [replace(change, at=(self.position, n), xid=xid) for n, change in enumerate(changes, start=1)]
        self.position += 10
        if not self._waiting and all(change.op != "t" for change in changes) and self.dice.random() < 0.2:
            self._waiting.add(xid)
            self._touched = {row.id for change in changes for row in (change.before, change.after) if row}

    def _statement(self) -> list[Change]:
        """Change some rows that nobody has locked; return how."""
        free = [key for key in range(KEYS) if key not in self.rows and key not in self._touched]
        there = [key for key in self.rows if key not in self._touched]
        ways: list[Callable[[], list[Change]]] = []
        row = self.rows[self.dice.choice(there)] if there else Customer(0, 0, "")
        if free:
            ways.append(lambda: [self._put("c", None, self._new(self.dice.choice(free)))])
        if there:
            ways.append(lambda: [self._put("u", row, row)])  # it is as it was
            ways += [lambda: [self._put("u", row, self._new(row.id, row.day))]] * 2
            ways.append(lambda: [self._put("u", row, self._new(row.id))])
            ways.append(lambda: [self._gone(row)])
            ways.append(lambda: [self._gone(row), self._put("c", None, self._new(row.id))])
        if there and free:
            ways.append(lambda: [self._put("u", row, row._replace(id=free[0]))])
            ways.append(lambda: [self._gone(row), self._put("c", None, row._replace(id=free[0]))])  # as Debezium has it
        if len(there) > 1:
            one, other = (self.rows[key] for key in self.dice.sample(there, 2))
            ways.append(lambda: self._renumbered([(one, other.id), (other, one.id)]))
            ways.append(lambda: self._renumbered([(one, other.id), (other, one.id), (one._replace(id=other.id), one.id),
                                                  (other._replace(id=one.id), other.id)]))  # fmt: skip
        if there and not self._touched and len(self.rows) < KEYS:
            ways.append(lambda: self._renumbered([(each, (each.id + 1) % (KEYS + 3)) for each in self.rows.values()]))
        if self.may_empty and not self._touched and self.dice.random() < 0.1:
            return self._emptied()
        return self.dice.choice(ways)() if ways else []

    def _new(self, key: int, day: int | None = None) -> Customer:
        self._names += 1
        return Customer(key, self.dice.randrange(DAYS) if day is None else day, f"name {self._names % 3}")

    def _put(self, op: str, before: Customer | None, after: Customer) -> Change:
        if before:
            del self.rows[before.id]
        self.rows[after.id] = after
        return RowChange(op, (0, 0), before, after)

    def _gone(self, row: Customer) -> Change:
        del self.rows[row.id]
        return RowChange("d", (0, 0), row)

    def _renumbered(self, each: Sequence[tuple[Customer, int]]) -> list[Change]:
        """Give rows other keys, one after the other; a key may have two rows until all are through."""
        changes = [RowChange("u", (0, 0), row, row._replace(id=key)) for row, key in each]
        self.rows = replayed(changes, self.rows.values())
        return changes

    def _emptied(self) -> list[Change]:
        self.rows.clear()
        return [RowChange("t", (0, 0))]


def replayed(changes: Iterable[Change], rows: Iterable[Customer] = ()) -> dict[int, Customer]:
    """Return the rows after changes, one after the other; each takes away exactly the row that it says."""
    there = list(rows)
    for change in changes:
        if change.op == "t":
            there.clear()
        if change.before:
            there.remove(change.before)
        if change.after:
            there.append(change.after)
    found = {row.id: row for row in there}
    assert len(found) == len(there), "the database in memory is wrong: it has a key twice"
    return found
