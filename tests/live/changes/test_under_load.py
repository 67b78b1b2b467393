"""History is loaded, in chunks, stopped and begun again, while clients change the database in every way there is.

At the end the lakehouse is the database, row for row; and at no version on the way was a key in the table twice. A
comparison in the midst of it finds no difference where there is none, and one where there is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from backfill_assets.core.history.reconcile import reconcile
from tests.live.changes.world import DAYS, Load, World, new_world
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


def differing(world: World, days: Sequence[str]) -> dict[str, list[str]]:
    """Hold days against the database as it is now; return what is wrong, and why."""
    chosen = [world.spec.grid.partition(day) for day in days]
    found = list(reconcile(world.spec, chosen, world.source, world.lake))
    assert [comparison.partition.key for comparison in found] == list(days)
    assert all("of the database's log" in comparison.as_of for comparison in found)
    return {c.partition.key: list(map(str, c.failures)) for c in found if not c.passed}


@contextmanager
def refreshing(world: World) -> Iterator[None]:
    """Fold in what comes, in the background."""
    ended, refresh = threading.Event(), world.refresh()

    def go_on() -> None:
        while not ended.is_set():
            refresh.once()

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(go_on)
        try:
            yield
        finally:
            ended.set()
            going.result()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_comparison_under_load_is_exact(spark, tmp_path, seed):
    """Not a row differs while clients write and partitions are refreshed; one value that somebody flipped does."""
    world = new_world(spark, tmp_path, chunk={"max_partitions": 3})
    world.execute(f"INSERT INTO customers VALUES (5000, 'nobody writes it', 1, NULL, NULL, '{DAYS[2]} 05:00Z')")
    world.land()
    with world.capturing(), Load(world, seed):
        world.launch_now()
        assert differing(world, DAYS) == {}, "before anything was refreshed"
        with refreshing(world):
            assert differing(world, DAYS) == {}
        world.spark.sql(f"UPDATE delta.`{world.lake.path}` SET balance = 2 WHERE id = 5000")
        (wrong,) = differing(world, DAYS[1:4]).items()
    day, (why,) = wrong
    assert day == DAYS[2]
    assert "but not the same" in why
    assert "differs in balance: id=5000" in why
