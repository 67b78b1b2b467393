"""A version built, compared, cut over and taken back by its commands, each killed anywhere and repeated, beside two streams."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.version_world import (
    COUNTS,
    COUNTS_V2,
    DEFINITIONS,
    FENCES,
    ORDERS,
    V2,
    Commands,
    Producer,
    Reader,
    as_it_should_be,
    newest_rows,
    orders_by_hour,
)
from tests.support.live_shop import Shop, event
from tests.support.seeds import rounds

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

JANUARY = {ORDERS: "2024-01-01...2024-01-31", COUNTS: "2024-01-02...2024-01-31"}
BOUNDARY = "2024-02-01"
"""In Berlin: the hour before it in UTC is history of the first version alone, and its orders are not counted by the second."""
HISTORY = ("2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-31")
"""Days of January on which orders were placed; the others have no export, and no rows."""


@pytest.mark.parametrize("seeds", rounds(range(1)), ids=lambda seeds: f"from {seeds[0]}")
def test_a_version_under_fire(tmp_path: Path, seeds: list[int]):
    """Both versions end as what landed; readers see both tables of one version; back loses nothing that came since."""
    for seed in seeds:
        under_fire(tmp_path / str(seed), random.Random(seed))


def under_fire(place: Path, dice: random.Random) -> None:
    root = place / "lakehouse"
    (place / "home").mkdir(parents=True)
    (place / "versions_project.py").write_text(DEFINITIONS)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{place}{os.pathsep}{Path(__file__).parents[2]}",
        "LAKEHOUSE_ROOT": str(root),
        "DAGSTER_HOME": str(place / "home"),
    }
    shop = Shop(None, root)
    (root / "landing/events_v2").mkdir()
    exported = [event(n, f"2024-01-{day}T01:00:00") for n, day in enumerate(("02", "03", "03", "04", "05", "31"))]
    for day in HISTORY:
        shop.export(day, *(one for one in exported if one["ordered_at"].startswith(day)))
    producer, commands = Producer(shop, dice), Commands(environment, place, dice)
    try:
        launch(commands, ORDERS)
        producer.land(10)
        commands.run("live", ORDERS, "--once")
        launch(commands, COUNTS)
        commands.run("version", "make", ORDERS, kills=2, before_the_boundary=True)
        with streams(commands), producer.running():
            for step in ("copy", "compare", "copy"):
                commands.run("version", step, ORDERS, kills=1, codes=(0, 1))
        in_step(commands)
        both_are_as_they_should_be(root, [*exported, *producer.sent.values()])

        reader = Reader(root)
        with reader.running():
            commands.run("version", "cutover", ORDERS, "--before", BOUNDARY, kills=3)
            assert reader.current() == {ORDERS: V2, COUNTS: COUNTS_V2}
            both_are_as_they_should_be(root, [*exported, *producer.sent.values()])
            reader.is_quiet = False
            with streams(commands), producer.running():
                time.sleep(15)
            in_step(commands)
            reader.is_quiet = True
            commands.run("version", "rollback", ORDERS, kills=3)
            assert reader.current() == {ORDERS: ORDERS, COUNTS: COUNTS}
        assert not reader.failures, reader.failures[0]
        assert reader.seen == {(ORDERS, COUNTS), (V2, COUNTS_V2)}
        both_are_as_they_should_be(root, [*exported, *producer.sent.values()])
        assert commands.killed >= 4
    finally:
        commands.kill_streams()


def both_are_as_they_should_be(root: Path, events: list[dict[str, Any]]) -> None:
    """Old and new, orders and what is made of those before the fence, are what landed: the newest of each, none twice."""
    newest, by_hour = as_it_should_be(events)
    assert newest_rows(root, ORDERS, "amount") == newest_rows(root, V2, "total") == newest
    for key, fence in FENCES.items():
        assert orders_by_hour(root, key) == {hour: orders for hour, orders in by_hour.items() if hour < fence}, key


@contextlib.contextmanager
def streams(commands: Commands) -> Iterator[None]:
    """Let both streams be written until the end of the block, where they are killed."""
    for key in (ORDERS, V2):
        commands.stream(key)
    yield
    commands.kill_streams()


def launch(commands: Commands, key: str) -> None:
    """Launch what is missing of January."""
    plan = str(commands.root / "plan.json")
    commands.run("plan", key, "--partition-range", JANUARY[key], "--only", "missing", "-o", plan)
    commands.run("apply", plan)


def in_step(commands: Commands) -> None:
    """Let both streams take all that has landed; late orders are folded in, and what is made of them is made again."""
    for key in (ORDERS, V2):
        commands.run("live", key, "--once")
    for key in (ORDERS, COUNTS):
        launch(commands, key)
    commands.run("version", "copy", ORDERS)
