"""History is read while changes are captured: the feed begins first, neither side waits for the other, and both go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from backfill_assets.core.live.feed import FeedFile, from_lsn
from backfill_assets.errors import FeedBehindError
from backfill_assets.live.changes.table import FOLDED_TO
from backfill_assets.sources.database.connection import Database
from backfill_assets.sources.database.source import DatabaseSource
from tests.live.changes.world import DAYS, World, new_world
from tests.support.shop import published_keys


def while_it_reads(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let something happen in each launch between its snapshot and the read of its rows."""
    scan = DatabaseSource.scan

    def scanned(*arguments: Any) -> Any:
        found = scan(*arguments)
        act()
        return found

    monkeypatch.setattr(DatabaseSource, "scan", scanned)


def landed(world: World) -> list[FeedFile]:
    return sorted(file for path in world.folder.iterdir() if (file := FeedFile.named(path.name)))


def test_capture_and_launch_run_at_once(spark, tmp_path, monkeypatch):
    """While a launch holds its snapshot, a client writes without waiting, and its change lands."""
    world, acted = new_world(spark, tmp_path), list[float]()
    world.land()

    def write_and_land() -> None:
        began = time.monotonic()
        with psycopg.connect(world.server.address(world.name), options="-c lock_timeout=5s") as client:
            client.execute("UPDATE customers SET balance = balance + 1 WHERE id % 2 = 0")
        world.capture_has_landed()
        acted.append(time.monotonic() - began)

    while_it_reads(monkeypatch, write_and_land)
    assert published_keys(world.launch()) == list(DAYS)
    assert len(acted) == 1
    world.bring_up()
    assert world.content() == world.rows()


def test_feed_begins_before_history_and_goes_on(spark, tmp_path, monkeypatch):
    """A feed that begins during a read is too late. Afterwards its files have no hole, and later changes are folded in."""
    world = new_world(spark, tmp_path, changes={"wait_seconds": 0.2})
    while_it_reads(monkeypatch, world.land)
    with pytest.raises(FeedBehindError, match="backfill-assets capture"):
        world.launch_now()
    assert not world.lake.exists() or not world.lake.published()
    monkeypatch.undo()
    world.land()
    began = landed(world)[0].start
    with world.capturing():
        while not published_keys(launched := attempted(world)):
            time.sleep(0.1)
    for outcome in launched:
        assert began <= from_lsn(outcome.receipt.source["position"]) <= outcome.receipt.source[FOLDED_TO]
    world.execute("UPDATE customers SET balance = 2 WHERE id = 1")
    assert published_keys(world.bring_up().outcomes) == [DAYS[0]]
    assert world.content() == world.rows()
    assert all(before.end == after.start for before, after in pairwise(landed(world)))


def attempted(world: World) -> list[Any]:
    """Launch; return nothing if the feed was not there in time."""
    try:
        return world.launch_now()
    except FeedBehindError:
        return []


def automatic(spark: Any, tmp_path: Any) -> World:
    """Customers of five days, whose past is loaded by itself; the feed has begun."""
    world = new_world(spark, tmp_path, changes={"backfill": "automatic"})
    world.land()
    return world


def test_a_change_waits_for_one_piece_of_history(spark, tmp_path):
    """With the past of four days still to be read, a change of the first is in the table before the next one is read."""
    world = automatic(spark, tmp_path)
    refresh = world.refresh()
    refresh.now = refresh.source.now = lambda: world.spec.grid.partition(DAYS[-1]).window.end_utc
    refresh._launched_at_once = 1
    with world.capturing():
        assert published_keys(refresh.once().outcomes) == [DAYS[0]]
        world.execute("UPDATE customers SET balance = 77 WHERE id = 1")
        committed = datetime.now(UTC)
        world.capture_has_landed()
        refresh._launched_at_once = 1
        assert published_keys(refresh.once().outcomes) == [DAYS[0], DAYS[1]]
    first, *_ = sorted(world.lake.published().values(), key=lambda one: one.version)
    assert [row[2] for row in world.content(first.version) if row[0] == 1] == [77]
    assert datetime.now(UTC) - committed < timedelta(seconds=world.spec.changes.max_lag_seconds)


def test_a_table_waits_for_its_turn(spark, tmp_path):
    """While another session loads a table of the same database, this one folds changes in, and begins no load."""
    world = automatic(spark, tmp_path)
    refresh = world.refresh()
    refresh.now = refresh.source.now = lambda: world.spec.grid.partition(DAYS[0]).window.end_utc
    with world.capturing():
        with Database(world.spec.source.connection, "another").turn() as is_theirs:
            assert is_theirs
            assert refresh.once().launched == 0
            assert not world.lake.exists() or not world.lake.published()
        assert published_keys(refresh.once().outcomes) == [DAYS[0]]
