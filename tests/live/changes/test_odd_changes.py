"""Changes that are easily folded wrong: keys that are swapped, columns that join, times that nobody can read, empty files."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backfill_assets.errors import ChangeFeedError
from backfill_assets.lake.evolution import evolve
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.database.source import DatabaseSource
from tests.live.changes.world import COLUMNS, CUSTOMERS, DAYS, World, customers_spec, new_world
from tests.sources.database.world import shop
from tests.support import postgres
from tests.support.shop import content, multiset, opened, published_keys, refusals


@pytest.fixture
def world(spark, tmp_path) -> World:
    """One day is launched, and its customers' keys may be swapped within a transaction."""
    world = new_world(spark, tmp_path)
    world.execute(
        "DELETE FROM customers WHERE signed_up >= '2024-01-02Z'",
        "ALTER TABLE customers DROP CONSTRAINT customers_pkey, ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED",
        "ALTER TABLE customers REPLICA IDENTITY FULL",
    )
    world.land()
    assert published_keys(world.launch(world.partitions[:1])) == [DAYS[0]]
    return world


@pytest.mark.prove
def test_keys_that_are_swapped_or_counted_up_at_once(world):
    """For a moment a key has two rows: the one that goes is not the one that came."""
    world.execute(
        "UPDATE customers SET id = 3 - id WHERE id IN (1, 2)",
        "DELETE FROM customers WHERE id = 20",
        "UPDATE customers SET id = id + 1 WHERE id < 20",
        "BEGIN; UPDATE customers SET id = 9 - id WHERE id IN (4, 5); DELETE FROM customers WHERE id = 4; COMMIT",
    )
    assert not world.bring_up().refused
    assert world.content() == world.rows()


@pytest.mark.prove
def test_a_change_without_a_time_that_can_be_read_stops_the_feed(world):
    """Nobody knows which partition it touches; it is named, and nothing is folded past it."""
    before = world.content()
    world.execute("ALTER TABLE customers RENAME signed_up TO joined", "DELETE FROM customers WHERE id = 1")
    world.execute("ALTER TABLE customers RENAME joined TO signed_up")
    with pytest.raises(ChangeFeedError, match="has no `signed_up` that can be read"):
        world.bring_up()
    assert world.content() == before


@pytest.mark.prove
def test_a_column_that_is_dropped_is_no_column_of_null(world):
    """A row that is written from then on lacks it: its partition is refused, and keeps what it had.

    One that is called so later is another column: what the other rows have in it, no change tells.
    """
    before = world.content()
    world.execute("ALTER TABLE customers DROP COLUMN note", "UPDATE customers SET balance = 5 WHERE id = 1")
    (refused,) = world.bring_up().refused
    assert refused.verdict.partition.key == DAYS[0]
    assert world.content() == before
    world.execute("ALTER TABLE customers ADD note text DEFAULT 'n'", "UPDATE customers SET balance = 6 WHERE id = 1")
    world.land()  # the table joins anew behind what the server has written by then: with this file, or the next
    with pytest.raises(ChangeFeedError, match="have a hole"):
        world.bring_up()
    assert world.content() == before


@pytest.mark.prove
def test_what_other_rows_have_in_a_new_column_is_read(world, spark):
    """A change tells of one row: its partition does not count as made by the new spec because of that, but is read again."""
    world.execute("ALTER TABLE customers ADD COLUMN city text", "UPDATE customers SET city = 'Rome'")
    world.bring_up()
    columns = {**COLUMNS, "city": "string"}
    spec = customers_spec(world.spec.source.connection, world.name, columns=columns)
    grown = replace(world, spec=spec, lake=LakeTable(spark, spec, world.lake.path, world.log.append))
    evolve(grown.lake)
    world.execute("UPDATE customers SET balance = 1 WHERE id = 1")
    with grown.capturing():
        grown.capture_has_landed()
        done = grown.refresh().once()
    assert (published_keys(done.outcomes), done.launched) == ([DAYS[0]], 1)
    rows = opened(world.lake.path).to_pyarrow_table(columns=["dt", "city"]).to_pylist()
    assert [(str(row["dt"]), row["city"]) for row in rows] == [(DAYS[0], "Rome")] * len(rows)
    assert grown.bring_up().launched == 0


@pytest.mark.prove
def test_times_of_no_day_are_in_no_partition(world):
    """Infinity, before the first year, before the table begins: such a row is not in the table, and one that comes back is."""
    world.execute(
        "UPDATE customers SET signed_up = 'infinity' WHERE id = 1",
        "UPDATE customers SET signed_up = '0044-03-15 BC' WHERE id = 2",
        "UPDATE customers SET signed_up = '1999-01-01' WHERE id = 3",
    )
    world.bring_up()
    assert not {1, 2, 3} & {row[0] for row in world.content()}
    world.execute(f"UPDATE customers SET signed_up = '{DAYS[0]} 05:00Z' WHERE id < 4")
    world.bring_up()
    assert world.content() == world.rows()


@pytest.mark.prove
def test_a_reader_behind_a_waiting_lock_gives_up(spark, tmp_path, monkeypatch):
    """An ALTER that waits for the snapshot's session would hold up its readers for ever: they give up, and it gets its turn."""
    monkeypatch.setattr("backfill_assets.core.postgres.questions.LOCK_TIMEOUT_MS", 500)
    world = shop(spark, tmp_path)
    altered = threading.Event()

    def alter() -> None:
        with psycopg.connect(world.server.address(world.name), autocommit=True) as connection:
            connection.execute("ALTER TABLE orders ADD extra int")
            altered.set()

    threads: list[threading.Thread] = []

    class Altered(DatabaseSource):
        def scan(self, partitions: Any, surveys: Any) -> Any:
            scan = super().scan(partitions, surveys)
            if not threads:
                threads.append(threading.Thread(target=alter))
                threads[0].start()
                waits_for_its_lock(world.name)
            return scan

    source = Altered(world.spark, world.spec, world.spec.source)
    outcomes = world.launch(source=source)
    threads[0].join(30)
    assert altered.is_set()
    assert len(published_keys(outcomes)) == 4
    assert content(world.lake.path) == multiset(world.rows())


def waits_for_its_lock(database: str) -> None:
    """Return when a session of the database waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    with postgres.shared_server().connected() as connection:
        while connection.execute(waiting, (database,)).fetchone() is None:
            pass


@pytest.mark.prove
def test_a_database_of_another_encoding(spark, tmp_path):
    """Texts arrive as the letters that they are, by a snapshot and by the feed."""
    server = postgres.shared_server()
    world = new_world(spark, tmp_path)
    with server.connected() as connection:
        connection.execute(f"DROP DATABASE {world.name} WITH (FORCE)".encode())
        connection.execute(
            f"CREATE DATABASE {world.name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
        )
    world.execute(
        CUSTOMERS,
        f"INSERT INTO customers VALUES (1, chr(233) || chr(195) || chr(169), 1, NULL, NULL, '{DAYS[0]} 05:00Z')",
    )
    world.land()
    assert published_keys(world.launch(world.partitions[:1])) == [DAYS[0]]
    assert next(iter(world.content()))[1] == "é\u00c3\u00a9"
    world.execute(
        f"INSERT INTO customers VALUES (2, chr(233) || chr(195) || chr(169), 1, NULL, NULL, '{DAYS[0]} 06:00Z')"
    )
    world.bring_up()
    assert {row[1] for row in world.content()} == {"é\u00c3\u00a9"}


def launched_and_moved(spark: Any, root: Path) -> tuple[World, Any]:
    """A row has moved into the second day, of which another row cannot be read; and what the table has."""
    world = new_world(spark, root)
    world.land()
    world.launch()
    before = world.content()
    world.execute(
        f"UPDATE customers SET signed_up = '{DAYS[1]} 05:00Z' WHERE id = 1",
        "ALTER TABLE customers ALTER balance TYPE numeric",
        "UPDATE customers SET balance = 'NaN' WHERE id = 30",
    )
    return world, before


@pytest.mark.prove
def test_a_row_stays_where_it_was_while_its_new_day_is_refused(spark, tmp_path):
    """Else readers would find it nowhere, until somebody mends another row of that day."""
    world, before = launched_and_moved(spark, tmp_path)
    refused = refusals(world.bring_up().outcomes)
    assert refused.keys() == {DAYS[0], DAYS[1]}
    assert "have keys that the source has in refused partitions" in refused[DAYS[0]]
    assert world.content() == before
    for named in (world.partitions[1:2], world.partitions[:2]):  # the first brings the other one along
        assert refusals(world.launch(named)).keys() == {DAYS[0], DAYS[1]}
        assert world.content() == before
    world.execute("UPDATE customers SET balance = 5 WHERE balance = 'NaN'")
    assert sorted(published_keys(world.bring_up().outcomes)) == [DAYS[0], DAYS[1]]
    assert world.content() == world.rows()
