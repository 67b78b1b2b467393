"""The protocol of a publish, explored: 20,000 schedules keep every promise, and each step that is left out breaks one."""

from __future__ import annotations

import pytest

from tests.table.protocol import STEPS, Broken, run


def test_no_schedule_breaks_a_promise():
    """Launches, appends, OPTIMIZE, RESTORE, ALTER, fence moves, VACUUM and kills, between any two steps."""
    for seed in range(20_000):
        run(seed)


@pytest.mark.prove
def test_no_schedule_of_many_breaks_a_promise():
    """As above, with 100,000 other schedules."""
    for seed in range(20_000, 120_000):
        run(seed)


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_needed(step):
    """Without it a schedule breaks a promise soon."""
    assert any(is_broken(seed, step) for seed in range(20_000))


def is_broken(seed, step):
    try:
        run(seed, without=[step])
    except Broken:
        return True
    return False
