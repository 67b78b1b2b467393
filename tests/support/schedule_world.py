"""The table, its source and its actors over one schedule, stepped to its end and held against its plan."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Published, Refused
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.publish import materialize
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
from tests.support.actors import Abandoned, Actor, Killed, Steps
from tests.support.fake_lake import FakeLake
from tests.support.fake_live import Clock, FakeBatch, FakeLiveLake, conflict
from tests.support.fakes import BATCH_POINTS, MOVE_POINTS, POINTS, FakeSource, launch_with
from tests.support.schedule_log import check_log
from tests.support.schedule_plans import (
    ALWAYS_LIVE,
    DAYS,
    SPEC,
    Action,
    Plan,
    Range,
    Step,
    identity,
    instant,
    partitions_of,
    sealed_days,
)

CONFLICTS_AT = (*POINTS[2:5], *BATCH_POINTS[1:], *MOVE_POINTS[1:])
"""Points at which a conflict can come up; after a commit it is a lost answer. Elsewhere the step is a plain one."""


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
            launch = launch_with(
                run_id=f"{run}: {self.attempts[run]}",
                root_run_id=run,
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
        launch = launch_with(run_id="last", only=last.only, max_partitions_per_chunk=last.chunk)
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
