"""What a random schedule is about: events, how they come and are exported, who does what, and what must come out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from backfill_assets.core.calendar.partitions import Partition
from tests.support.fake_live import LIVE_ORDERS, order
from tests.support.fakes import PROBLEM, Row

SPEC = LIVE_ORDERS
DAYS = ("2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03")
ALWAYS_HISTORY, ALWAYS_LIVE = 2, 1
"""So many days at the start lie before the first fence, and so many at the end are never sealed."""

Action = Literal["go", "kill", "conflict"]
Step = tuple[str, Action]


@dataclass(frozen=True)
class Range:
    """One launch: its partitions, how it is cut, and what it leaves out."""

    keys: tuple[str, ...]
    chunk: int
    only: Literal["all", "missing"]


@dataclass(frozen=True)
class Plan:
    """Everything that a schedule is about but its order.

    Args:
        batches: What the stream brings; rows with a problem, and from the future, among them.
        files: The export as it is at first, by partition key.
        exports: How its files change, in order; the last one of a key has every event of its day that came live.
        launches: Of each history actor.
        moves: Of each mover, the days to which it moves the fence.
        writers: Live writers, each with its stream.
        last: The launch after everything has come to its end.
    """

    batches: tuple[tuple[Row, ...], ...]
    files: Mapping[str, tuple[Row, ...]]
    exports: tuple[tuple[str, tuple[Row, ...]], ...]
    launches: Mapping[str, tuple[Range, ...]]
    moves: Mapping[str, tuple[str, ...]]
    writers: Mapping[str, str]
    last: Range

    @property
    def delivered(self) -> list[Row]:
        """Every event of the stream."""
        return [row for batch in self.batches for row in batch if PROBLEM not in row and row["created_at"].year < 2030]

    def expected(self, day: str) -> list[tuple[int, int]]:
        """Return what a day's partition holds in the end, as (order id, version)."""
        exported = [dict(self.exports).get(day, self.files.get(day, ()))] if day in sealed_days() else []
        rows = [row for rows in exported for row in rows] + [row for row in self.delivered if day_of(row) == day]
        newest: dict[int, int] = {}
        for order_id, version in map(identity, rows):
            newest[order_id] = max(version, newest.get(order_id, 0))
        return sorted(newest.items())


def sealed_days() -> tuple[str, ...]:
    """Return the days that are history in the end."""
    return DAYS[:-ALWAYS_LIVE]


def day_of(row: Row) -> str:
    return row["created_at"].date().isoformat()


def identity(row: Row) -> tuple[int, int]:
    """Return which version of which order a row is; nothing else is in it."""
    return row["order_id"], row["amount"] - 10 * row["order_id"]


@dataclass(frozen=True)
class Schedule:
    """A plan and the order of its steps."""

    seed: int
    plan: Plan
    steps: tuple[Step, ...]


def schedule_of(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    dice = random.Random(seed)
    plan = _plan(dice)
    names = [*plan.writers, *plan.launches, *plan.moves, "export"]
    weights = [1 if name == "export" else dice.choice((2, 4, 8)) for name in names]
    steps: list[Step] = []
    for _ in range(dice.randint(12, 48)):
        (name,) = dice.choices(names, weights)
        steps.extend((name, "go") for _ in range(dice.choice((0, 0, 1, 2, 4, 8))))
        action: Action = dice.choices(("go", "kill", "conflict"), (5, 1, 1))[0]
        steps.append((name, action))
    return Schedule(seed, plan, tuple(steps))


def _plan(dice: random.Random) -> Plan:
    """Make events, how they come, how they are exported, and who does what."""
    delivered: list[Row] = []
    files: dict[str, tuple[Row, ...]] = {}
    exports: list[tuple[str, tuple[Row, ...]]] = []
    for number, day in enumerate(DAYS):
        orders = [
            (100 * number + n, f"{day}T{dice.choice((0, 0, 6, 12, 23)):02d}:00") for n in range(dice.randint(1, 3))
        ]
        if number < ALWAYS_HISTORY:
            files[day] = tuple(order(*o, version=dice.randint(1, 2)) for o in orders)
            only_live = [(100 * number + 50 + n, f"{day}T23:59:59.999999") for n in range(dice.randint(0, 1))]
            again = [(o, dice.randint(1, 3)) for o in orders + only_live if dice.random() < 0.4]
            delivered += [order(*o, version=version) for o, version in again]
            if dice.random() < 0.3:
                exports.append((day, tuple(order(*o, version=2) for o in orders)))
        elif day in sealed_days():
            versions = {o: [1, *dice.choices((1, 2), k=dice.choice((0, 0, 1)))] for o in orders}
            delivered += [order(*o, version=version) for o, seen in versions.items() for version in seen]
            if dice.random() < 0.6:
                files[day] = tuple(order(*o, version=1) for o in orders[:-1])
            exports.append(
                (day, tuple(order(*o, version=max(seen) + dice.randint(0, 1)) for o, seen in versions.items()))
            )
        else:
            delivered += [order(*o) for o in orders]
    dice.shuffle(delivered)
    wrong = [{**order(9_000 + n, "2024-03-01T10:00"), PROBLEM: "no event"} for n in range(dice.randint(0, 1))]
    wrong += [order(9_100 + n, "2030-01-01T00:00") for n in range(dice.randint(0, 1))]
    batches: list[list[Row]] = [[] for _ in range(dice.randint(2, 4))]
    for row in delivered + wrong:
        dice.choice(batches).append(row)

    def launches(count: int) -> tuple[Range, ...]:
        made: list[Range] = []
        for _ in range(count):
            first = dice.randrange(len(DAYS))
            keys = DAYS[first : first + dice.randint(1, len(DAYS))]
            made.append(Range(keys, dice.randint(1, 3), dice.choice(("all", "missing"))))
        return tuple(made)

    def targets(count: int) -> tuple[str, ...]:
        return tuple(dice.choice(DAYS[ALWAYS_HISTORY:]) for _ in range(count))

    writers = {"writer": "a1"}
    if dice.random() < 0.3:
        writers["twin"] = "a1"
    if dice.random() < 0.3:
        writers["successor"] = "b2"
    ranges = {"launch 1": launches(dice.randint(2, 3))}
    if dice.random() < 0.5:
        ranges["launch 2"] = launches(1)
    movers = {"mover": targets(dice.randint(1, 3))}
    if dice.random() < 0.3:
        movers["other mover"] = targets(dice.randint(1, 2))
    last = Range(sealed_days(), dice.randint(1, 5), dice.choice(("all", "missing")))
    return Plan(tuple(map(tuple, batches)), files, tuple(exports), ranges, movers, writers, last)


def partitions_of(keys: Iterable[str]) -> list[Partition]:
    return [SPEC.grid.partition(key) for key in keys]


def instant(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)
