"""Commits that wait for a standby: the feed has them already, and no session sees them yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.live.changes.world import DAYS, World, new_world
from tests.support import postgres
from tests.support.shop import published_keys

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def commits_waiting(server: postgres.Server) -> Iterator[None]:
    """Let commits wait for a standby that is not there."""
    with server.connected() as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")


def until(server: postgres.Server, is_so: Callable[[int], bool]) -> None:
    """Return when so many commits wait as are asked for; fail after half a minute."""
    last = time.monotonic() + 30
    with server.connected() as connection:
        while not is_so(connection.execute(WAITING).fetchone()[0]):
            assert time.monotonic() < last
            time.sleep(0.05)


def change(world: World, day: int) -> None:
    world.execute(f"UPDATE customers SET balance = balance + {day} WHERE signed_up::date = '{DAYS[day]}'")


@pytest.mark.drawn
def test_what_waits_for_a_standby_is_folded_in_by_a_launch_that_does_not_see_it(spark, tmp_path):
    """Its id is greater than of all that anybody sees to have ended, and is no id of long ago."""
    world = new_world(spark, tmp_path)
    world.land()
    with ThreadPoolExecutor(3) as pool:
        with commits_waiting(world.server):
            waiting = [pool.submit(change, world, day) for day in (1, 2, 3)]
            until(world.server, lambda count: count == len(waiting))
            before = world.rows()
            world.land()
            assert published_keys(world.launch()) == list(DAYS)
            seen = world.content()
        for one in waiting:
            one.result(timeout=30)
    assert seen == world.rows() != before
    world.bring_up()
    assert world.content() == world.rows()
    ids = {row["xid"] for row in world.source.reader.table.rows().select("xid").distinct().collect()}
    assert min(ids) > 0
