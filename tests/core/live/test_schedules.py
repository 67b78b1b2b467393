"""Random schedules of everything that writes one table, held against a plain model: at the end, and at every version."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import pytest

from tests.support.schedule_plans import schedule_of
from tests.support.schedule_world import CONFLICTS_AT, World
from tests.support.schedules import check, failure_of, shrunk

COUNT = max(500, int(os.environ.get("SCHEDULES", "500")))
"""How many schedules are run; `SCHEDULES=100000` for a night."""

FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
"""Seed of the first one; a failure names the seed to begin with."""


@cache
def met() -> Counter[str]:
    """Run all schedules once, and return what they met."""
    return check(range(FIRST_SEED, FIRST_SEED + COUNT))


def test_any_schedule_ends_as_the_model_says():
    """Whoever is stepped, killed or refused when: each key once, its newest version, nothing lost, every version old or new."""
    assert met()


@pytest.mark.prove
def test_the_schedules_meet_what_they_are_for():
    """Crashes at every point, conflicts wherever there can be any, late rows of every kind, takeovers: all of it comes up."""
    wanted = [f"Killed {point}" for point in (*CONFLICTS_AT, "scan", "stage", "find", "checkpoint", "wait", "export")]
    wanted += [f"CommitConflictError {point}" for point in CONFLICTS_AT]
    wanted += [
        "a batch",
        "a close",
        "late rows",
        "wrong rows",
        "takeovers",
        "late rows of sealed partitions",
        "joined late rows",
        "count",
    ]
    assert [what for what in wanted if not met()[what]] == []


def test_a_schedule_is_decided_by_its_seed():
    """The same seed gives the same steps and the same versions: what failed once can be looked at again."""
    first, second = schedule_of(7), schedule_of(7)
    assert first == second
    traces = []
    for schedule in (first, second):
        world = World(schedule.plan)
        world.run(schedule.steps)
        traces.append(world.trace)
    assert traces[0] == traces[1]


def test_a_failing_schedule_is_shrunk(monkeypatch):
    """Steps that the failure does not need are left out, and what is left is told with the seed."""
    monkeypatch.setattr("tests.support.schedule_world.World._check_content", _no_batch_was_killed)
    with pytest.raises(AssertionError) as caught:
        check(range(50))
    told = str(caught.value)
    seed = int(told.split(":", maxsplit=1)[0].removeprefix("seed "))
    schedule = schedule_of(seed)
    fewest = shrunk(schedule)
    assert f"the fewest steps that fail are {len(fewest)} of {len(schedule.steps)}: {list(fewest)}" in told
    assert fewest[-1] == ("writer", "kill")
    assert failure_of(schedule.plan, schedule.steps) is not None
    for n in range(len(fewest)):
        assert failure_of(schedule.plan, fewest[:n] + fewest[n + 1 :]) is None


def _no_batch_was_killed(world):
    """A false claim, which fails for schedules that need two steps or more."""
    assert not world.met["Killed before_append"], "a batch was killed"
