"""Commits that wait for a standby: the feed has them already, and no session sees them yet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from backfill_assets.core.live.feed import from_lsn
from backfill_assets.core.postgres import questions
from backfill_assets.live.changes.joining import Joining, begins_at
from backfill_assets.live.changes.landed import CaptureTable
from tests.live.changes.capturing import AT, Shop
from tests.live.changes.world import CUSTOMERS, DAYS, World, new_world
from tests.support import postgres
from tests.support.shop import published_keys

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name {} 'probe'"
PROBE = ("SET application_name = 'probe'", "SELECT pg_logical_emit_message(true, 'probe', '')")


@contextmanager
def commits_waiting(server: postgres.Server) -> Iterator[None]:
    """Let commits wait for a standby that is not there: from when a first one does, for the server takes its time."""

    def probe() -> None:
        with server.connected() as connection:
            for statement in PROBE:
                connection.execute(statement.encode())

    with ThreadPoolExecutor(1) as pool, server.connected() as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            probing, last = pool.submit(probe), time.monotonic() + 30
            while not connection.execute(WAITING.format("=")).fetchone()[0]:
                assert time.monotonic() < last
                if probing.done():
                    probing = pool.submit(probe)
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")


def until(server: postgres.Server, is_so: Callable[[int], bool]) -> None:
    """Return when so many commits wait as are asked for; fail after half a minute."""
    last = time.monotonic() + 30
    with server.connected() as connection:
        while not is_so(connection.execute(WAITING.format("<>")).fetchone()[0]):
            assert time.monotonic() < last
            time.sleep(0.05)


def change(world: World, day: int) -> None:
    world.execute(f"UPDATE customers SET balance = balance + {day} WHERE signed_up::date = '{DAYS[day]}'")


@pytest.mark.prove
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


@pytest.mark.prove
def test_a_table_joins_when_sessions_see_all_that_lies_before(tmp_path):
    """A commit that waits for a standby is in the log already: behind it a table would lack what no snapshot has yet."""
    shop = Shop(tmp_path)
    shop.land()
    shop.execute(CUSTOMERS.replace("customers", "visits"))
    both = [CaptureTable("public", "customers"), CaptureTable("public", "visits")]
    joining = Joining(shop.folder, shop.new_capture().database, both, print)
    with psycopg.connect(os.environ[shop.variable], autocommit=True) as connection, ThreadPoolExecutor(1) as pool:
        joining.prepare(connection, has_begun=True)
        with commits_waiting(shop.server):
            waiting = pool.submit(shop.execute, f"INSERT INTO visits VALUES (1, 'n', 1, NULL, true, '{AT}')")
            until(shop.server, lambda count: count == 1)
            for _ in range(3):
                flushed = from_lsn(connection.execute(questions.FLUSHED).fetchone()[0])
                joining.look(connection, flushed)
                assert begins_at(shop.folder, both[1]) is None
        waiting.result(timeout=30)
        joining.look(connection, flushed)
    begins = begins_at(shop.folder, both[1])
    assert begins is not None
    assert begins <= flushed
