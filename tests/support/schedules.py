"""Random schedules: writers, launches and movers over one table, stepped one at a time, and the plain model of what must come out.

Each actor is a process in a thread of its own, which runs only while it is stepped: from one point of the fakes to the
next. A schedule is a list of steps, each of which names an actor and what it meets at the point where it stands: nothing,
a crash, or a conflict. A step of an actor that has ended is skipped, so any part of a schedule is a schedule too, and one
that fails can be shrunk by leaving steps out. What has not ended when the steps are used up goes on in turns to its end.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.plan import Launch, LeftOut
from backfill_assets.core.history.ports import Effects
from backfill_assets.core.history.publish import Published, Refused, materialize
from backfill_assets.core.live import batches as live
from backfill_assets.core.live import fence_moves as moves
from backfill_assets.errors import (
    CommitConflictError,
    FenceError,
    FenceMoveInterruptedError,
    LivePartitionsError,
    SourceChangedError,
    SourceIncompleteError,
    StreamMismatchError,
)
from tests.support.fake_lake import FakeLake, Version
from tests.support.fake_live import LIVE_ORDERS, Clock, FakeBatch, FakeLiveLake, conflict, order
from tests.support.fakes import PROBLEM, FakeSource, Row, Script, tally_of

SPEC = LIVE_ORDERS
DAYS = ("2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03")
ALWAYS_HISTORY, ALWAYS_LIVE = 2, 1
"""So many days at the start lie before the first fence, and so many at the end are never sealed."""

Action = Literal["go", "kill", "conflict"]
Step = tuple[str, Action]
CONFLICTS_AT = (
    *(
        "before_save",
        "during_save",
        "after_commit",
        "before_append",
        "during_append",
        "after_append",
        "before_late",
        "after_late",
    ),
    *("before_quarantine", "after_quarantine", "before_close", "during_close", "after_close"),
    *("before_store", "during_store", "after_store"),
)
"""Points at which a conflict can come up; after a commit it is a lost answer. Elsewhere the step is a plain one."""


class Killed(BaseException):
    """What a crash is to the code: nothing that it could catch."""


class Abandoned(BaseException):
    """The schedule is over; the thread ends."""


# -- what happens ------------------------------------------------------------------------------------------------------


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
        action: Action = dice.choices(("go", "kill", "conflict"), (5, 1, 1))[0]  # type: ignore[assignment]
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


# -- actors ------------------------------------------------------------------------------------------------------------


class Actor:
    """A process in a thread of its own, which runs only while it is stepped. After a crash it starts again.

    Args:
        process: Returns whether it has nothing more to do; if not, it starts again too.
    """

    def __init__(self, name: str, process: Callable[[], bool]) -> None:
        self.name, self.stands_at, self.ended = name, "start", False
        self.failure: BaseException | None = None
        self._process = process
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._meets: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def step(self, meets: BaseException | None = None) -> None:
        """Let it run to its next point, after it met what is at this one."""
        self._meets = meets
        self._go.release()
        self._back.acquire()

    def pause(self, point: str) -> None:
        """Stand at a point until stepped; called in its own thread."""
        self.stands_at = point
        self._back.release()
        self._go.acquire()
        if self._meets is not None:
            raise self._meets

    def _run(self) -> None:
        self._go.acquire()
        try:
            if isinstance(self._meets, Abandoned):
                return
            while not self._start():
                self.pause("start")
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001 (told by whoever steps)
            self.failure = error
        finally:
            self.stands_at, self.ended = "end", True
            self._back.release()

    def _start(self) -> bool:
        try:
            return self._process()
        except Killed:
            return False


class Steps(Script):
    """A script at whose points the actor that runs stands still."""

    actor: Actor | None = None

    def reach(self, point: str) -> None:
        if self.actor is not None:
            self.actor.pause(point)


@dataclass
class World:
    """The table, its source and its actors, over one schedule."""

    plan: Plan
    script: Steps = field(default_factory=Steps)
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = FakeLake(SPEC, self.script)
        self.lake.sees_conflicts = True
        self.live = FakeLiveLake(self.lake, self.script)
        self.source = FakeSource(SPEC, self.plan.files, self.script)
        self.source.complete_until_utc = SPEC.grid.partition(sealed_days()[-1]).window.end_utc
        self.clock = Clock()
        self.effects = replace(self.clock.effects(wait_seconds=4), sleep=self._sleep)
        self.met = Counter[str]()
        self.done = Counter[str]()
        self.attempts = Counter[str]()
        plan = self.plan
        self.actors = {
            name: Actor(name, lambda n=name, s=stream: self._write(n, s)) for name, stream in plan.writers.items()
        }
        self.actors |= {
            name: Actor(name, lambda n=name, r=ranges: self._launch(n, r)) for name, ranges in plan.launches.items()
        }
        self.actors |= {name: Actor(name, lambda n=name, d=days: self._move(n, d)) for name, days in plan.moves.items()}
        self.actors["export"] = Actor("export", self._export)

    # -- what each does ------------------------------------------------------------------------------------------------

    def _write(self, name: str, stream: str) -> bool:
        try:
            moves.claim(SPEC, self.live, stream, self.effects, is_new=name == "successor")
            is_first = True
            while (number := self.done[name]) < len(self.plan.batches):
                batch = FakeBatch(SPEC, number, self.plan.batches[number])
                live.write_batch(SPEC, batch, self.live, stream, self.effects, is_first=is_first)
                is_first = False
                self.script.reach("checkpoint")
                self.done[name] = number + 1
        except StreamMismatchError:
            return True
        except FenceMoveInterruptedError:
            return False
        return True

    def _launch(self, name: str, ranges: Sequence[Range]) -> bool:
        while (number := self.done[name]) < len(ranges):
            wanted, run = ranges[number], f"{name}: {number}"
            self.attempts[run] += 1
            launch = Launch(
                f"{run}: {self.attempts[run]}",
                run,
                only=wanted.only,
                is_reexecution=self.attempts[run] > 1,
                max_partitions_per_chunk=wanted.chunk,
            )
            effects = Effects(sleep=self._sleep)
            with suppress(LivePartitionsError, SourceIncompleteError, CommitConflictError, SourceChangedError):
                deque(
                    materialize(SPEC, partitions_of(wanted.keys), self.source, self.lake, launch, effects=effects),
                    maxlen=0,
                )
            self.done[name] = number + 1
        return True

    def _move(self, name: str, days: Sequence[str]) -> bool:
        while (number := self.done[name]) < len(days):
            with suppress(FenceError):
                moves.move_fence(SPEC, self.live, instant(days[number]), self.effects)
            self.done[name] = number + 1
        return True

    def _export(self) -> bool:
        while (number := self.done["export"]) < len(self.plan.exports):
            self.script.reach("export")
            key, rows = self.plan.exports[number]
            self.source.files[key] = list(rows)
            self.done["export"] = number + 1
        return True

    def _sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.script.reach("wait")

    # -- how it goes on ------------------------------------------------------------------------------------------------

    def step(self, name: str, action: Action) -> None:
        """Step one actor, unless it has ended."""
        actor = self.actors.get(name)
        if actor is None or actor.ended:
            return
        meets: BaseException | None = None
        if action == "kill" and actor.stands_at != "start":
            meets = Killed()
        elif action == "conflict" and actor.stands_at in CONFLICTS_AT:
            meets = conflict()
        stood_at = actor.stands_at
        self.met[stood_at if meets is None else f"{type(meets).__name__} {stood_at}"] += 1
        self.script.actor = actor
        actor.step(meets)
        self.script.actor = None
        how = f" met {type(meets).__name__}," if meets else ""
        self.trace.append(f"{name}: {stood_at},{how} then {actor.stands_at}; version {self.lake.version()}")
        if actor.failure is not None:
            raise AssertionError(f"`{name}` failed at `{stood_at}`: {actor.failure!r}") from actor.failure

    def run(self, steps: Iterable[Step]) -> None:
        """Follow a schedule, then let everybody come to an end, and hold the table against the model."""
        try:
            for name, action in steps:
                self.step(name, action)
            for _ in range(3_000):
                going_on = [name for name, actor in self.actors.items() if not actor.ended]
                if not going_on:
                    break
                for name in going_on:
                    self.step(name, "go")
            else:
                raise AssertionError("it does not come to an end")
            self._seal_and_launch()
            check_log(self.plan, self.live)
            self._check_content()
        finally:
            for actor in self.actors.values():
                while not actor.ended:
                    actor.step(Abandoned())

    def _seal_and_launch(self) -> None:
        self.effects = self.clock.effects()
        moves.move_fence(SPEC, self.live, instant(DAYS[-ALWAYS_LIVE]), self.effects)
        last = self.plan.last
        launch = Launch("last", "last", only=last.only, max_partitions_per_chunk=last.chunk)
        effects = Effects(sleep=self.clock.sleep)
        outcomes = list(materialize(SPEC, partitions_of(last.keys), self.source, self.lake, launch, effects=effects))
        refused = [str(o.verdict) for o in outcomes if isinstance(o, Refused)]
        assert not refused, f"the last launch refused {refused}"
        reached = [p.key for o in outcomes if isinstance(o, Published | LeftOut) for p in o.partitions]
        assert sorted(reached) == sorted(last.keys)

    def _check_content(self) -> None:
        rows = self.lake.versions[-1].rows
        for day in DAYS:
            found = sorted(map(identity, rows.get(day, ())))
            assert found == self.plan.expected(day), f"{day} holds {found} and should hold {self.plan.expected(day)}"
        fence = self.live.fence()
        assert fence is not None
        receipts = [r for r in self.live.receipts().values() if r.kind == "batch" and r.stream == fence.stream]
        assert sorted(r.batch for r in receipts) == list(range(len(self.plan.batches))), (
            "not every batch was written once"
        )
        for commits, kind in ((self.live.late_commits, "late"), (self.live.quarantine_commits, "quarantine")):
            written = Counter(transaction for transaction, _ in commits)
            assert set(written.values()) <= {1}, f"the same {kind} rows were written twice"
            rows_of = {number: len(rows) for (name, number), rows in commits if name == f"{kind}:{fence.stream}"}
            counted = {r.batch: n for r in receipts if (n := r.late_rows if kind == "late" else r.quarantined_rows)}
            assert rows_of == counted, f"{kind} rows by batch: {rows_of}, and by the receipts {counted}"


def check_log(plan: Plan, table: FakeLiveLake) -> None:
    """Hold every version against the one before it: what a reader could have seen at any time."""
    lake, receipts, live_receipts = table.lake, table.lake.receipts(), table.receipts()
    delivered = Counter(map(identity, plan.delivered))
    parted_at = {(f"late:{r.stream}", r.batch): r.fence for r in live_receipts.values()}
    for transaction, rows in table.late_commits:
        assert all(row["created_at"] < parted_at[transaction] for row in rows), (
            f"{transaction}: rows that are not late are in the late table"
        )
    published: set[str] = set()
    batches = Counter((r.stream, r.batch) for r in live_receipts.values() if r.kind == "batch")
    assert set(batches.values()) <= {1}, f"a batch was committed twice: {batches}"
    epochs = {version.fence.epoch: version.fence for version in lake.versions if version.fence}
    for number, (old, new) in enumerate(pairwise(lake.versions), start=1):
        assert old.fence is not None
        assert new.fence is not None
        at = f"version {number}"
        assert new.fence.at_utc >= old.fence.at_utc, f"{at}: the fence went back"
        assert new.fence == old.fence or new.fence.epoch > old.fence.epoch, f"{at}: another fence in the same epoch"
        assert epochs[new.fence.epoch] == new.fence, f"{at}: epoch {new.fence.epoch} comes twice"
        changed = {key for key in new.rows if new.rows[key] is not old.rows.get(key)}
        assert changed <= new.touched, f"{at}: rows changed outside of what was written"
        if number in receipts:
            assert new.touched == receipts[number].partitions.keys()
            for key, receipt in receipts[number].partitions.items():
                _check_overwrite(f"{at}: {key}", old, new, key)
                assert receipt.matches(tally_of(SPEC, key, new.rows[key])), f"{at}: {key} is not what was audited"
            published |= new.touched
        if number in live_receipts:
            receipt = live_receipts[number]
            in_force = (old.fence.stream, old.fence.epoch)
            assert (receipt.stream, receipt.epoch) == in_force, (
                f"{at}: written in epoch {receipt.epoch} of {receipt.stream}, not {in_force}"
            )
            assert receipt.kind == "close" or receipt.fence == old.fence.at_utc, (
                f"{at}: parted at {receipt.fence}, not at the fence"
            )
            added = 0
            for key in new.touched:
                before, after = old.rows.get(key, ()), new.rows[key]
                assert instant(key) >= old.fence.at_utc, f"{at}: live rows in {key}, before the fence"
                assert after[: len(before)] == before
                added += len(after) - len(before)
            assert added == receipt.rows
        for key in new.touched - published:
            surplus = Counter(map(identity, new.rows[key])) - delivered
            assert not surplus, f"{at}: {key} has rows more often than they came: {surplus}"


def _check_overwrite(at: str, old: Version, new: Version, key: str) -> None:
    """A partition that history wrote lies before the fence, has each key once, and no key has gone or gone back."""
    assert old.fence is not None
    assert SPEC.grid.partition(key).window.end_utc <= old.fence.at_utc, f"{at} was overwritten behind the fence"
    rows = dict(map(identity, new.rows[key]))
    assert len(rows) == len(new.rows[key]), f"{at} has a key twice"
    for order_id, version in map(identity, old.rows.get(key, ())):
        assert rows.get(order_id, -1) >= version, f"{at} lost version {version} of order {order_id}"


def partitions_of(keys: Iterable[str]) -> list[Partition]:
    return [SPEC.grid.partition(key) for key in keys]


def instant(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


# -- running and shrinking ---------------------------------------------------------------------------------------------


def failure_of(plan: Plan, steps: Sequence[Step]) -> tuple[AssertionError, list[str]] | None:
    """Run a schedule; return how it failed and what was done, or None."""
    world = World(plan)
    try:
        world.run(steps)
    except AssertionError as error:
        return error, world.trace
    return None


def check(seeds: Iterable[int]) -> Counter[str]:
    """Run the schedules of some seeds.

    Returns:
        How often each point was met, how often with a crash or a conflict, and what there was among the live commits.

    Raises:
        AssertionError: One failed. It is told with its seed and the fewest steps that fail.
    """
    met = Counter[str]()
    for seed in seeds:
        schedule = schedule_of(seed)
        world = World(schedule.plan)
        try:
            world.run(schedule.steps)
        except AssertionError as error:
            raise AssertionError(_told(schedule, shrunk(schedule))) from error
        met += world.met + _kinds(world)
    return met


def _kinds(world: World) -> Counter[str]:
    """Count what there was among the commits of a schedule."""
    kinds = Counter[str]()
    stream = ""
    for receipt in world.live.receipts().values():
        kinds[f"a {receipt.kind}"] += 1
        kinds["late rows"] += receipt.late_rows
        kinds["wrong rows"] += receipt.quarantined_rows
        kinds["takeovers"] += stream not in ("", receipt.stream)
        stream = receipt.stream
    kinds["late rows of sealed partitions"] += sum(day_of(row) >= DAYS[ALWAYS_HISTORY] for row in world.lake.late_rows)
    kinds["joined late rows"] += sum(
        p.late_rows for receipt in world.lake.receipts().values() for p in receipt.partitions.values()
    )
    return +kinds


def shrunk(schedule: Schedule) -> tuple[Step, ...]:
    """Leave out steps, many at once and then one by one, as long as the schedule still fails."""
    steps, size = list(schedule.steps), max(1, len(schedule.steps) // 2)
    while True:
        start, smaller = 0, False
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if failure_of(schedule.plan, fewer) is not None:
                steps, smaller = fewer, True
            else:
                start += size
        if size == 1 and not smaller:
            return tuple(steps)
        size = max(1, size // 2)


def _told(schedule: Schedule, steps: Sequence[Step]) -> str:
    failed = failure_of(schedule.plan, steps)
    assert failed is not None, "it failed once and does not fail again: something is not decided by the seed"
    error, trace = failed
    plan = schedule.plan
    lines = [
        f"seed {schedule.seed}: {error}",
        f"the fewest steps that fail are {len(steps)} of {len(schedule.steps)}: {list(steps)}",
        *(f"batch {n}: {[(day_of(row), *identity(row)) for row in batch]}" for n, batch in enumerate(plan.batches)),
        f"files: { {key: list(map(identity, rows)) for key, rows in plan.files.items()} }",
        f"exports: {[(key, list(map(identity, rows))) for key, rows in plan.exports]}",
        f"launches: {dict(plan.launches)}; last: {plan.last}",
        f"moves: {dict(plan.moves)}; writers: {dict(plan.writers)}",
        "what was done, with everybody's way to the end after it:",
        *(f"  {line}" for line in trace),
    ]
    return "\n".join(lines)
