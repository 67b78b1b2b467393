"""Random schedules of everything that writes one table, held against a plain model: at the end, and at every version."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import pytest

from tests.support.schedule_world import CONFLICTS_AT
from tests.support.schedules import check

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
