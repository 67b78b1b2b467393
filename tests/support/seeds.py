"""Which random schedules a run tries: a few within a time, or as many as `SCHEDULES` says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))
"""Seed of the first one; a failure names the seed to begin with."""


def rounds(gate: Sequence[int]) -> list[list[int]]:
    """Return the seeds of each test: one test for all of the gate's, or with `SCHEDULES` a test for each of so many."""
    if "SCHEDULES" in os.environ:
        return [[seed] for seed in range(FIRST_SEED, FIRST_SEED + int(os.environ["SCHEDULES"]))]
    return [list(gate)]


def within(seconds: float, seeds: Sequence[int]) -> Iterator[int]:
    """Give one seed after another until the time is over; the first one is always given."""
    until = time.monotonic() + seconds
    for number, seed in enumerate(seeds):
        if number and time.monotonic() > until:
            return
        yield seed
