"""One moment for all that is read of a chunk, whatever is written meanwhile and whoever ends the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from backfill_assets.core.history.staging import stage_chunk
from backfill_assets.errors import SourceUnavailableError
from backfill_assets.sources.database.source import DatabaseSource
from tests.sources.database.world import DAYS, World, new_world, shop
from tests.support import postgres
from tests.support.shop import content, launch, left_out, multiset, orders, published_keys


def test_a_change_beside_a_launch_is_no_reason_to_read_again(spark, tmp_path):
    """What was read in one snapshot is published, and the partition is stale afterwards: the next launch publishes the change."""
    world = shop(spark, tmp_path, latest_wins_by=["amount"])
    log: list[str] = []
    source = changing(world, lambda: world.execute("UPDATE orders SET amount = 99 WHERE customer = 'customer 1'"))
    before = multiset(world.rows())
    assert published_keys(world.launch(source=source, log=log.append)) == list(DAYS)
    assert not [line for line in log if "Attempt" in line]
    assert content(world.lake.path) == before
    for published in world.lake.published().values():
        assert {"snapshot", "position", "taken_at"} <= published.receipt.source.keys()

    assert published_keys(world.launch(only="missing")) == list(DAYS)
    assert content(world.lake.path) == multiset(world.rows())
    assert list(left_out(world.launch(only="missing"))) == list(DAYS)


def changing(world: World, change: Callable[[], object]) -> DatabaseSource:
    """A source beside which something happens once, after its snapshot was taken."""

    class Changing(DatabaseSource):
        def scan(self, partitions: Any, surveys: Any) -> Any:
            scan = super().scan(partitions, surveys)
            if pending:
                pending.pop()()
            return scan

    pending = [change]
    return Changing(world.spark, world.spec, world.spec.source)


CHANGES = {
    "insert": (f"INSERT INTO orders VALUES (1, 'new', 1, '{DAYS[1]} 23:00Z')", {DAYS[1]}),
    "delete": (f"DELETE FROM orders WHERE customer = 'customer 2' AND ordered_at >= '{DAYS[3]}Z'", {DAYS[3]}),
    "moved": (
        f"UPDATE orders SET ordered_at = '{DAYS[0]} 12:00Z' WHERE ordered_at >= '{DAYS[3]}Z'",
        {DAYS[0], DAYS[3]},
    ),
    "rolled back": ("BEGIN; UPDATE orders SET customer = 'x'; ROLLBACK", set()),
    "another column": (
        "ALTER TABLE orders RENAME customer TO old; ALTER TABLE orders ADD customer text DEFAULT 'x'",
        set(DAYS),
    ),
    "one more column": ("ALTER TABLE orders ADD note text DEFAULT 'x'", set()),
    "vacuum": ("VACUUM (FREEZE, ANALYZE) orders", set()),
}
IN_THE_GATE = ("delete", "moved", "vacuum")


@pytest.mark.parametrize(
    ("statement", "changed"),
    [pytest.param(*case, marks=[] if name in IN_THE_GATE else pytest.mark.prove) for name, case in CHANGES.items()],
    ids=CHANGES,
)
def test_fingerprints_tell_which_partitions_changed(spark, tmp_path, statement, changed):
    """An insert, a delete, and a row that moves from one partition to another; nothing else."""
    world = shop(spark, tmp_path)
    before = world.source.survey(world.partitions)
    world.execute(statement)
    after = world.source.survey(world.partitions)
    assert {day for day in DAYS if before[day].fingerprint != after[day].fingerprint} == changed


@pytest.mark.prove
def test_a_launch_beside_writers_publishes_one_moment(spark, tmp_path):
    """Money is moved between orders of all days while they are read: each chunk's sum is the sum, in every launch."""
    world = shop(spark, tmp_path, latest_wins_by=["amount"])
    total = sum(row["amount"] for row in world.rows())
    with moving_money(world):
        for _ in range(2):
            assert published_keys(world.launch()) == list(DAYS)
            assert sum(row[2] for row in content(world.lake.path).elements()) == total


@contextmanager
def moving_money(world: World) -> Iterator[None]:
    """Let three clients take from one order and give to another, as fast as they can."""
    ended = threading.Event()
    keys = [row["order_id"] for row in world.rows()]

    def move(number: int) -> None:
        with psycopg.connect(world.server.address(world.name), autocommit=True) as connection:
            turn = number
            while not ended.is_set():
                taken, given = keys[turn % len(keys)], keys[(3 * turn + number) % len(keys)]
                turn += 1
                with connection.transaction():
                    for key, amount in sorted([(taken, Decimal(-1)), (given, Decimal(1))]):
                        connection.execute("UPDATE orders SET amount = amount + %s WHERE order_id = %s", (amount, key))

    clients = [threading.Thread(target=move, args=(number,)) for number in range(3)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()
        for client in clients:
            client.join()


# -- ends in the middle ------------------------------------------------------------------------------------------------


def end_sessions(world: World) -> None:
    """Have the server end every session that reads, as an administrator does."""
    with psycopg.connect(world.server.address(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (world.name,)
        ).fetchall()


@pytest.mark.prove
def test_a_snapshot_that_ends_too_early_is_taken_again(spark, tmp_path):
    """Its holder is ended before the readers begin: everything is read again in a new one, and published once."""
    world = shop(spark, tmp_path)
    log: list[str] = []
    source = changing(world, lambda: end_sessions(world))
    assert published_keys(world.launch(source=source, log=log.append)) == list(DAYS)
    assert len([line for line in log if "Attempt 1 of 5 failed" in line]) == 1
    assert content(world.lake.path) == multiset(world.rows())
    assert len(world.lake.published()) == len(DAYS)


@pytest.mark.prove
def test_a_server_that_stays_away_ends_the_launch(spark, tmp_path):
    """After five attempts, in words, without the address; what was published before stays."""
    with postgres.serving() as server:
        world = shop_on(server, spark, tmp_path)
        assert published_keys(world.launch(world.partitions[:1])) == [DAYS[0]]
        source = changing(world, lambda: server.stop("immediate"))
        slept: list[float] = []
        with pytest.raises(SourceUnavailableError) as ended:
            launch(world.lake, source, world.partitions, sleep=slept.append)
        server.start()
    assert len(slept) == 4
    assert ended.value.retry_helps
    assert "did not answer" in str(ended.value)
    assert list(world.lake.published()) == [DAYS[0]]


def shop_on(server: postgres.Server, spark: Any, root: Any) -> World:
    """The shop on a server of its own, which may be stopped."""
    import os
    from dataclasses import replace

    world = new_world(spark, root)
    os.environ[world.variable] = server.new_database(world.name)
    world = replace(world, server=server)
    world.execute(postgres.ORDERS)
    world.insert([row for day in DAYS for row in orders(day)])
    return world


@pytest.mark.prove
def test_a_query_that_takes_too_long_ends_with_what_to_do(spark, tmp_path):
    """`statement_timeout_seconds` holds for what we ask; the message says so."""
    world = shop(spark, tmp_path)
    slow = new_world(spark, tmp_path / "slow", of={"statement_timeout_seconds": 0.05})
    slow.execute("INSERT INTO orders SELECT n, '', 1, '2024-01-01Z' FROM generate_series(1, 300000) n")
    with pytest.raises(
        SourceUnavailableError, match=r"connection that counts rows [^.]*`source.statement_timeout_seconds"
    ):
        slow.launch()
    assert published_keys(world.launch()) == list(DAYS)


@pytest.mark.prove
def test_a_scan_holds_no_connection_once_it_is_released(spark, tmp_path):
    """Neither after a launch nor after a read that failed."""
    world = shop(spark, tmp_path)
    world.launch()
    assert are_gone(world)
    source = world.source
    staged = stage_chunk(world.partitions, source.survey(world.partitions), source, world.lake)
    assert sessions(world) == 1
    staged.staged.release()
    assert are_gone(world)


def are_gone(world: World, seconds: float = 10) -> bool:
    """The server ends a session a moment after its client has gone."""
    until = time.monotonic() + seconds
    while sessions(world):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def sessions(world: World) -> int:
    """How many of ours the database has."""
    with psycopg.connect(world.server.address(), autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'backfill_assets' "
            "AND state = 'idle in transaction'",
            (world.name,),
        ).fetchone()
    assert found is not None
    return found[0]
