"""A clock that jumps: what a launch does follows from versions and receipts, never from what time it is said to be."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.core.history.world import BAD, KEYS, World, left_out, published_keys

NOON = datetime(2024, 3, 10, 12, tzinfo=UTC)
STEADY = [NOON]
JUMPS = {
    "set back": [NOON, NOON.replace(year=2023), NOON.replace(year=2022), NOON.replace(year=2021)],
    "set ahead": [NOON, NOON.replace(year=2042)],
    "to and fro": [NOON, NOON.replace(year=2042), NOON.replace(year=1999), NOON.replace(month=4)],
}


def done_by(clock: list[datetime]) -> tuple[Any, ...]:
    """Launch, correct, launch what is missing, launch by newer code in the middle of older code: what came of each."""
    world, instants = World(), itertools.cycle(clock)
    same = {"now": lambda: next(instants), "chunk": 2}
    done = [world.run(code_version="old", **same)]
    world.correct(BAD)
    done.append(world.run(run_id="B", only="missing", published=world.lake.published(), code_version="old", **same))
    world.correct(*KEYS)
    world.script.at("scan", lambda: world.run(KEYS[3:], run_id="D", code_version="new", **same))
    done.append(world.run(run_id="C", code_version="old", **same))
    found = [(published_keys(outcomes), left_out(outcomes)) for outcomes in done]
    codes = {key: (part.version, part.receipt.run.code_version) for key, part in world.lake.published().items()}
    return found, codes, world.lake.content(), world.source_content()


@pytest.mark.parametrize("clock", JUMPS)
def test_a_clock_that_jumps_decides_nothing(clock):
    """Corrections, what is missing, and newer code beside older code have the same outcome by every clock."""
    found, codes, content, source = done_by(STEADY)
    assert done_by(JUMPS[clock]) == (found, codes, content, source)
    assert content == source
    assert found[1][0] == [[BAD]]
    assert {codes[key][1] for key in KEYS[3:]} == {"new"}
