"""A launch that is killed at any point leaves every partition old or new, and the next one finishes it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.history.world import KEYS, POINTS_OF_A_CHUNK, World, published_keys
from tests.support.actors import Killed
from tests.support.fakes import Script, raising


@pytest.mark.parametrize("chunk_number", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS_OF_A_CHUNK)
def test_a_crash_leaves_every_partition_old_or_new(filled, point, chunk_number):
    """Killed at any point of any chunk: chunks before are new, later ones old, this one whole; the same launch then completes it."""
    old, new = filled.lake.content(), filled.source_content()
    filled.script.at(point, raising(Killed()), visit=chunk_number)
    with pytest.raises(Killed):
        filled.run(chunk=2, run_id="run 1")
    made = chunk_number if point == "after_commit" else chunk_number - 1
    assert filled.lake.version() == 1 + made
    assert filled.lake.content() == {key: (new if n < 2 * made else old)[key] for n, key in enumerate(KEYS)}
    assert set(filled.lake.receipts()) == set(range(1, 2 + made))

    outcomes = filled.run(chunk=2, run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert sum(map(len, published_keys(outcomes))) == len(KEYS) - 2 * made
    assert filled.lake.content() == new


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(POINTS_OF_A_CHUNK), st.integers(1, 4)), max_size=6), st.integers(1, 6))
def test_launches_that_are_killed_again_and_again_end_right(kills, chunk):
    """However often it is killed and repeated, no partition is ever a mixture, and the end is the source's content."""
    world = World()
    world.run(run_id="before")
    world.correct(*KEYS)
    old, new = world.lake.content(), world.source_content()
    for number, (point, visit) in enumerate(kills, start=1):
        script = Script()
        script.at(point, raising(Killed()), visit=visit)
        world.source.script = world.lake.script = script
        with suppress(Killed):
            world.run(chunk=chunk, run_id=f"run {number}", root_run_id="run 1", is_reexecution=number > 1)
        content = world.lake.content()
        assert all(content[key] in (old[key], new[key]) for key in KEYS)
    world.source.script = world.lake.script = Script()
    world.run(run_id="last", root_run_id="run 1", is_reexecution=True)
    assert world.lake.content() == new
