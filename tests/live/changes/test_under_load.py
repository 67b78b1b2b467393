"""History is loaded, in chunks, stopped and begun again, while clients change the database in every way there is.

At the end the lakehouse is the database, row for row; and at no version on the way was a key in the table twice.
"""

from __future__ import annotations

import os

import pytest

from tests.live.changes.world import DAYS, Load, new_world
from tests.support.shop import published_keys

SEEDS = int(os.environ.get("SCHEDULES", "1"))
"""How many schedules; `make prove` runs fifty."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_lakehouse_ends_as_the_database(spark, tmp_path, seed):
    """Launches of one day, of some and of all, refreshes between them, a capture that is stopped and started again."""
    world = new_world(spark, tmp_path)
    world.land()
    days = world.partitions
    refresh = world.refresh()
    with Load(world, seed) as load:
        with world.capturing():
            assert set(published_keys(world.launch_now(days[:2]))) == set(DAYS[:2])
            refresh.once()
            assert set(published_keys(world.launch_now(days[2:]))) >= set(DAYS[2:])
            refresh.once()
        refresh.once()
        with world.capturing():
            world.launch_now(days[1:4], max_partitions_per_chunk=1)
            world.refresh().once()
    assert load.transactions > 50
    world.land()
    done = refresh.once()
    assert not done.refused
    assert world.content() == world.rows()
    twice = {version: [key for key, n in keys.items() if n > 1] for version, keys in world.keys_by_version().items()}
    assert not any(twice.values()), twice
    assert world.refresh().once().published == []
