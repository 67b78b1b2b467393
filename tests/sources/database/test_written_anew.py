"""What happens to a table between the look at it and its snapshot: rows that come and go, and rows that are all written anew."""

from __future__ import annotations

import threading
import time
from datetime import UTC
from typing import Any

import psycopg
import pytest

from backfill_assets.sources.database.source import DatabaseSource
from tests.sources.database.world import DAYS, World, shop
from tests.support.shop import content, multiset, published_keys


@pytest.mark.prove
def test_rows_that_came_and_went_beside_a_launch_leave_a_stale_partition(spark, tmp_path):
    """One comes after the plan, is read, and goes: what the database has then is what it had at the plan, and the table has more."""
    world = shop(spark, tmp_path)
    source = world.source
    surveyed = source.survey(world.partitions)
    world.execute(f"INSERT INTO orders VALUES (77, 'passing', 1, '{DAYS[1]} 10:00Z')")
    late = arriving(world, surveyed)
    assert published_keys(world.launch(source=late)) == list(DAYS)
    world.execute("DELETE FROM orders WHERE order_id = 77")
    assert world.source.survey(world.partitions) == surveyed
    assert published_keys(world.launch(only="missing")) == [DAYS[1]]
    assert content(world.lake.path) == multiset(world.rows())


def arriving(world: World, surveyed: Any) -> DatabaseSource:
    """A source that was surveyed a while before it is read."""

    class Surveyed(DatabaseSource):
        def survey(self, partitions: Any) -> Any:
            return {partition.key: surveyed[partition.key] for partition in partitions}

    return Surveyed(world.spark, world.spec, world.spec.source)


@pytest.mark.prove
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN number bigserial",
        "CREATE TABLE anew AS SELECT * FROM orders; DROP TABLE orders; ALTER TABLE anew RENAME TO orders",
    ],
    ids=["written anew", "swapped"],
)
def test_a_table_that_is_written_anew_beside_a_launch_is_read_whole(spark, tmp_path, statement):
    """To a snapshot that is older it would look empty: the launch waits for whoever does it, and only then takes one."""
    world = shop(spark, tmp_path)
    before, source = multiset(world.rows()), world.source
    surveyed, scans = source.survey(world.partitions), list[Any]()
    with world.server.connected(world.name) as rewriting, rewriting.transaction():
        rewriting.execute(statement.encode())
        reading = threading.Thread(target=lambda: scans.append(source.scan(world.partitions, surveyed)))
        reading.start()
        wait_for_a_lock(world)
    reading.join()
    (scan,) = scans
    assert {key: evidence.raw_rows for key, evidence in scan.evidence.items()} == dict.fromkeys(DAYS, 3)
    rows = [row.asDict() for row in scan.rows.collect()]
    scan.release()
    assert multiset([{**row, "ordered_at": row["ordered_at"].astimezone(UTC)} for row in rows]) == before
    assert published_keys(world.launch()) == list(DAYS)


def wait_for_a_lock(world: World) -> None:
    """Wait until a session of ours waits for somebody's lock."""
    with psycopg.connect(world.server.address(), autocommit=True) as connection:
        while not connection.execute(
            "SELECT FROM pg_stat_activity WHERE datname = %s AND application_name = 'backfill_assets' "
            "AND wait_event_type = 'Lock'",
            (world.name,),
        ).fetchall():
            time.sleep(0.02)
