"""Random schedules: writers, launches and movers over one table, stepped one at a time, and the plain model of what must come out.

Each actor is a process in a thread of its own, which runs only while it is stepped: from one point of the fakes to the
next. A schedule is a list of steps, each of which names an actor and what it meets at the point where it stands: nothing,
a crash, or a conflict. A step of an actor that has ended is skipped. What has not ended when the steps are used up goes on in turns
to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.support.schedule_plans import ALWAYS_HISTORY, DAYS, Plan, Step, day_of, schedule_of
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
        AssertionError: One failed. It is told with its seed, its plan and what was done.
    """
    met = Counter[str]()
    for seed in seeds:
        schedule = schedule_of(seed)
        world = World(schedule.plan)
        try:
            world.run(schedule.steps)
        except AssertionError as error:
            raise AssertionError("\n".join([f"seed {seed}: {error}", repr(schedule), *world.trace])) from error
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
