"""The fold, and which transactions a snapshot has seen: against a database in memory, in every order and any number of times."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.core.history.changes import HALF, DatabaseSnapshot, fold, full_xid
from tests.support.changing import DAYS, Changing, Customer
from tests.support.docstring_tables import table_of

dice = st.integers(0, 1 << 32).map(random.Random)


def identity(row: Customer) -> tuple[int, int]:
    return row.day, row.id


@dataclass
class Lakehouse:
    """Partitions that are launched and refreshed as `ChangedSource` says, by `fold` alone.

    Args:
        rows: Of all partitions that were launched.
        folded: Up to where each of those has every change.
        halves: Whether only the lower half of a transaction's id is known.
    """

    database: Changing
    halves: bool
    rows: list[Customer] = field(default_factory=list)
    folded: dict[int, int] = field(default_factory=dict)

    def launch(self, days: Collection[int], dice: random.Random) -> None:
        """Read days in a snapshot, wait for the feed, fold in what the snapshot did not see, and bring up the others."""
        snapshot, log = self.database.snapshot(), self.database.log
        read = [row for row in self.database.seen_by(snapshot).values() if row.day in days]
        for _ in range(dice.randrange(5)):
            self.database.step()
        reach = self.database.position
        unseen = [c for c in log if c.at[0] < reach and not self._is_seen(snapshot, c.xid)]
        launched = [row for row in fold(read, unseen, identity) if row.day in days]
        self.refresh(apart_from=days)
        self.rows = launched + [row for row in self.rows if row.day not in days]
        self.folded |= dict.fromkeys(days, reach)

    def _is_seen(self, snapshot: DatabaseSnapshot, xid: int) -> bool:
        return snapshot.sees(snapshot.whole_xid(xid % HALF) if self.halves else xid)

    def refresh(self, apart_from: Collection[int] = ()) -> None:
        """Fold into what was launched all that has happened since."""
        reach = self.database.position
        changes = [change for change in self.database.log if change.at[0] < reach]
        folded = fold(self.rows, changes, identity, since=lambda row: self.folded.get(row.day, reach))
        self.rows = [row for row in folded if row.day in self.folded]
        self.folded |= dict.fromkeys(set(self.folded) - set(apart_from), reach)

    def is_right(self) -> bool:
        """Say whether the partitions are the database's, as of the end of the log."""
        there = self.database.at(self.database.position).values()
        return sorted(self.rows) == sorted(row for row in there if row.day in self.folded)


@settings(max_examples=300)
@given(dice, st.booleans())
def test_whatever_happens_the_partitions_are_the_databases(dice, halves):
    """Launches and refreshes in any order, beside transactions that are open, that wait to be seen, that swap keys, that empty all."""
    database = Changing(dice, xid=HALF - 3 if halves else 100)
    lakehouse = Lakehouse(database, halves)
    for _ in range(dice.randrange(12)):
        for _ in range(dice.randrange(8)):
            database.step()
        if dice.random() < 0.5:
            lakehouse.launch(dice.sample(range(DAYS), dice.randint(1, DAYS)), dice)
        else:
            lakehouse.refresh()
        assert lakehouse.is_right()


@settings(max_examples=200)
@given(dice)
def test_folding_twice_in_steps_or_in_another_order_is_the_same(dice):
    """The whole, the whole again, a part of it again, two halves, and told in disorder."""
    database = Changing(dice)
    for _ in range(40):
        database.step()
    log, positions = database.log, sorted({0, *(change.at[0] for change in database.log)})
    begin, half = dice.choice(positions), dice.choice(positions)
    rows = list(database.at(begin).values())
    changes = [change for change in log if change.at[0] >= begin]
    once = sorted(fold(rows, changes, identity))
    assert once == sorted(database.rows.values())
    assert sorted(fold(once, changes, identity)) == once
    assert sorted(fold(once, [change for change in changes if change.at[0] >= half], identity)) == once
    first = fold(rows, [change for change in changes if change.at[0] < half], identity)
    assert sorted(fold(first, [change for change in changes if change.at[0] >= half], identity)) == once
    assert sorted(fold(first, changes, identity)) == once
    assert sorted(fold(rows, dice.sample(changes, len(changes)), identity)) == once


@pytest.mark.parametrize("case", table_of(full_xid), ids=str)
def test_a_transactions_id_is_made_whole(case):
    """As the docstring's table says: of 2³² there are the ids themselves."""
    assert full_xid(number(case["xid"]), number(case["reference"])) == number(case["is"])


@pytest.mark.parametrize("case", table_of(DatabaseSnapshot.whole_xid), ids=str)
def test_half_an_id_is_the_nearest_to_a_snapshot(case):
    """As the docstring's table says: before the snapshot or after it, on either side of where ids come round."""
    snapshot = DatabaseSnapshot.parse(f"5:{case['next one']}:")
    assert snapshot.whole_xid(int(case["half"])) == int(case["is"])


def number(text: str) -> int:
    """Read `7`, `2³²` and `2³² + 7`."""
    return sum(HALF if part == "2³²" else int(part) for part in text.split(" + "))
