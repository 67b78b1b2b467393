"""Random schedules: writers, launches and movers over one table, stepped one at a time, and the plain model of what must come out.

Each actor is a process in a thread of its own, which runs only while it is stepped: from one point of the fakes to the
next. A schedule is a list of steps, each of which names an actor and what it meets at the point where it stands: nothing,
a crash, or a conflict. A step of an actor that has ended is skipped, so any part of a schedule is a schedule too, and one
that fails can be shrunk by leaving steps out. What has not ended when the steps are used up goes on in turns to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.support.schedule_plans import ALWAYS_HISTORY, DAYS, Plan, Schedule, Step, day_of, identity, schedule_of
from tests.support.schedule_world import World


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
