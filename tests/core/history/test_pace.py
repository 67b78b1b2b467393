"""Chunks beside a live writer: cut so that it waits no longer for a save than it may."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backfill_assets.core.history.pace import PublishPace
from tests.core.calendar.grids import DAILY
from tests.core.history.world import KEYS, World, published_keys


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [(None, [3, 3]), (60.0, [3, 3]), (20.0, [3, 2, 1]), (10.0, [3, 1, 1, 1]), (0.02, [1, 1, 1, 1, 1, 1])],
)
def test_chunks_are_cut_by_how_long_the_last_one_took(seconds, sizes):
    """A first save that takes ten seconds for each partition: `max_publish_seconds` says how many may be saved at once."""
    world, clock = World(), [0.0]
    world.script.always("during_save", lambda: clock.__setitem__(0, clock[0] + 30.0))
    outcomes = world.run(KEYS, chunk=3, max_publish_seconds=seconds, clock=lambda: clock[0])
    assert [len(keys) for keys in published_keys(outcomes)] == sizes


def test_what_is_not_saved_keeps_nobody_waiting():
    """A range that was launched before goes through in whole chunks; where it has to be written after all, in parts."""
    world, clock = World(), [0.0]
    world.run(KEYS)
    same = {"published": world.lake.published(), "max_publish_seconds": 20.0, "clock": lambda: clock[0], "chunk": 6}
    assert [len(outcome.partitions) for outcome in world.run(KEYS, run_id="again", **same)] == [6]

    world.correct(KEYS[0])
    world.script.at("during_save", lambda: clock.__setitem__(0, clock[0] + 30.0))
    assert published_keys(world.run(KEYS, run_id="corrected", **same)) == [[KEYS[0]]]

    world.lake.commit_as_somebody_else({key: world.source.files[key] for key in KEYS})
    world.script.always("during_save", lambda: clock.__setitem__(0, clock[0] + 30.0))
    same |= {"published": world.lake.published(), "max_publish_seconds": 0.02}
    pace = {**same, "chunk": 3}
    assert [len(keys) for keys in published_keys(world.run(KEYS, run_id="touched", **pace))] == [1, 1, 1, 1, 1, 1]
    assert world.lake.content() == world.source_content()


@pytest.mark.parametrize(("size", "most"), [(0, 1100), (1 << 20, 128), (1 << 30, 1)])
def test_the_first_save_is_bounded_by_partitions_and_by_bytes(size, most):
    """Before anything was measured: as many as about half of twenty seconds would do on two cores, and 128 MB."""
    days = [DAILY.partition(str(DAILY.start + timedelta(days=n))) for n in range(1_464)]
    assert PublishPace(20.0).most_saved(days, {day.key: size for day in days}) == most
