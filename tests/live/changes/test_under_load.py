"""History is loaded, in chunks, stopped, killed and begun again, while clients change the database in every way there is.

Every version on the way is the database as it was when the log ended somewhere; at the end it is the database as it is.
A comparison in the midst of it finds no difference where there is none, and one where there is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.live.feed import FeedFile
from backfill_assets.core.state.receipts import newest_by_partition
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.table import folded_to
from tests.live.changes.world import DAYS, Load, World, new_world
from tests.support.seeds import rounds
from tests.support.shop import published_keys

pytestmark = pytest.mark.long

Shown = tuple[int, str | None, str | None, datetime]
"""What is compared of a customer at each version: key, name, balance, when they signed up."""


class Killed(BaseException):
    """The process ended where it was."""


class KilledBeforeSaving(LakeTable):
    """A table whose launch is killed when its chunk is staged and audited, and not saved yet."""

    def overwrite(self, *_: Any, **__: Any) -> Any:
        raise Killed


@dataclass
class Prefixes:
    """The database as it was whenever the log ended somewhere, by its first rows and its feed.

    Args:
        first: Its rows before the feed began.
    """

    first: Mapping[int, Shown]
    events: list[dict[str, Any]] = field(default_factory=list)

    def read(self, folder: Path) -> None:
        files = sorted(file for path in folder.iterdir() if (file := FeedFile.named(path.name)))
        texts = [(folder / file.name).read_text(encoding="utf-8") for file in files]
        self.events = [json.loads(line) for text in texts for line in text.splitlines()]

    def at(self, position: int) -> set[Shown]:
        rows = dict(self.first)
        for event in self.events:
            if int(json.loads(event["source"]["sequence"])[0]) >= position:
                break
            if event["before"]:
                del rows[int(event["before"]["id"])]
            if after := event["after"]:
                at = datetime.fromisoformat(after["signed_up"])
                rows[int(after["id"])] = (int(after["id"]), after["name"], after["balance"], at)
        return set(rows.values())


def shown(rows: Any) -> list[Shown]:
    return [
        (row[0], row[1], None if row[2] is None else str(row[2]), row[5].astimezone(UTC)) for row in rows.elements()
    ]


def one_schedule(world: World, seed: int) -> None:
    """Launches of some days and of all, one that is killed, refreshes between them, a capture that is stopped and started."""
    prefixes = Prefixes({row[0]: row for row in shown(world.rows())})
    world.land()
    days, refresh = world.partitions, world.refresh()
    with Load(world, seed) as load:
        with world.capturing(pause_seconds=0.5):
            assert set(published_keys(world.launch_now(days[:2]))) == set(DAYS[:2])
            killed = KilledBeforeSaving(world.spark, world.spec, world.lake.path)
            with suppress(Killed):
                replace(world, lake=killed).launch_now(days[1:])
            assert set(published_keys(world.launch_now(days[2:], max_partitions_per_chunk=2))) >= set(DAYS[2:])
        refresh.once()
    assert load.transactions > 20
    world.land()
    assert not refresh.once().refused
    assert world.content() == world.rows()
    assert world.refresh().once().published == []

    prefixes.read(world.folder)
    receipts = world.lake.receipts_after(-1)
    for version in range(world.lake.version() + 1):
        published = newest_by_partition({of: receipt for of, receipt in receipts.items() if of <= version})
        position = max((folded_to(newest) or 0 for newest in published.values()), default=0)
        there = {row for row in prefixes.at(position) if f"{row[3]:%Y-%m-%d}" in published}
        found = shown(world.content(version))
        assert len(found) == len(set(found)), (seed, version)
        assert set(found) == there, (seed, version, set(found) ^ there)


@pytest.mark.prove
@pytest.mark.parametrize("seeds", rounds(range(1)), ids=lambda seeds: f"from {seeds[0]}")
def test_the_lakehouse_ends_as_the_database(spark, tmp_path, seeds):
    """Row for row; and each version on the way is a prefix of the feed: no key twice, none that was deleted is back."""
    for seed in seeds:
        one_schedule(new_world(spark, tmp_path / str(seed)), seed)


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


@pytest.mark.prove
def test_a_comparison_under_load_is_exact(spark, tmp_path):
    """Not a row differs while clients write and partitions are refreshed; one value that somebody flipped does."""
    world = new_world(spark, tmp_path, chunk={"max_partitions": 3})
    world.execute(f"INSERT INTO customers VALUES (5000, 'nobody writes it', 1, NULL, NULL, '{DAYS[2]} 05:00Z')")
    world.land()
    with world.capturing(pause_seconds=0.5), Load(world, 3):
        world.launch_now()
        assert differing(world, DAYS[:1]) == {}, "before anything was refreshed"
        with refreshing(world):
            assert differing(world, DAYS[1:4]) == {}
        world.spark.sql(f"UPDATE delta.`{world.lake.path}` SET balance = 2 WHERE id = 5000")
        (wrong,) = differing(world, DAYS[1:3]).items()
    day, (why,) = wrong
    assert day == DAYS[2]
    assert "but not the same" in why
    assert "differs in balance: id=5000" in why
