"""Every type, an odd table, hours of a zone: what comes through the feed is what comes through a snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.sources.database.connection import Database
from tests.live.changes.world import World
from tests.sources.database.test_database_values import ALL_TYPES, CASES, COLUMNS
from tests.support import postgres
from tests.support.shop import published_keys, refusals, rows_in

ODD = 'Ünlü "orders" 100%'


def new_world(spark: Any, root: Any, make: str, table: str, **facts: Any) -> World:
    """A table of any kind, with its capture."""
    name, variable = postgres.new_database()
    server = postgres.shared_server()
    with server.connected(name) as connection:
        connection.execute(make.encode())
    source = {"kind": "jdbc", "connection": variable, "table": table, **facts.pop("of", {})}
    feed = {"capture": name, "backfill": "manual", "wait_seconds": 30}
    spec = TableSpec(key="bronze/all", source=source, changes=feed, start="2024-01-01", **facts)
    capture = Capture(
        name,
        Database.of_a_capture(variable, name),
        [CaptureTable("public", table)],
        root / "landing",
        heartbeat_seconds=0.1,
    )
    lake = LakeTable(spark, spec, f"{root}/tables/bronze/all")
    return World(spark, server, name, spec, capture, lake, root / "landing")


def rows(world: World) -> list[str]:
    """The table's rows as text, in order; the partition column is one of them."""
    return sorted(repr(row) for row in rows_in(world.lake.path))


@pytest.mark.prove
def test_every_type_comes_through_the_feed_as_through_a_snapshot(spark, tmp_path):
    """Each case of each type, inserted before the launch and touched after it; what cannot be read is refused by both."""
    make = ALL_TYPES + "ALTER TABLE orders REPLICA IDENTITY FULL;"
    world = new_world(
        spark, tmp_path, make, "orders", columns=COLUMNS, key_columns=["order_id"], event_time="at", grain="monthly"
    )
    world.land()
    with world.server.connected(world.name) as connection:
        for number, case in enumerate(CASES):
            postgres.insert(connection, [{"order_id": number, "at": "2024-01-01 12:00Z", **case}])
    month = [world.spec.grid.partition("2024-01-01")]
    assert published_keys(world.launch(month)) == ["2024-01-01"]
    through_snapshot = rows(world)
    assert len(through_snapshot) == len(CASES)
    world.execute("UPDATE orders SET at = at")
    assert published_keys(world.bring_up().outcomes) == ["2024-01-01"]
    assert rows(world) == through_snapshot

    before = rows(world)
    for column, value in (("price", "'NaN'"), ("day", "'infinity'")):
        world.execute(f"UPDATE orders SET {column} = {value} WHERE order_id = 0")
        assert [refused.verdict.partition.key for refused in world.bring_up().refused] == ["2024-01-01"]
        assert list(refusals(world.launch(month))) == ["2024-01-01"]
        assert rows(world) == before
        world.execute(f"UPDATE orders SET {column} = NULL WHERE order_id = 0")
    world.bring_up()
    assert rows(world) == before


@pytest.mark.prove
def test_an_odd_table_with_hours_of_a_zone(spark, tmp_path):
    """A name with quotes and letters of all kinds, a key of two columns, local times in the night in which clocks change."""
    quoted = '"' + ODD.replace('"', '""') + '"'
    make = (
        f'CREATE TABLE {quoted} ("Größe %s" text NOT NULL, id int NOT NULL, "it\'s" numeric, at timestamp NOT NULL); '
        f"ALTER TABLE {quoted} REPLICA IDENTITY FULL"
    )
    columns = {"id": "int not null", "it's": "decimal(10,3)", "at": "timestamp not null"}
    world = new_world(
        spark,
        tmp_path,
        make,
        ODD,
        columns={**columns, "Größe": {"type": "string", "optional": True}},
        key_columns=["id", "at"],
        event_time="at",
        grain="hourly",
        time_zone="Europe/Berlin",
        of={"timestamps_without_zone": "Europe/Berlin"},
    )
    world.land()
    times = ["2024-03-31 01:59:59.999999", "2024-03-31 03:00", "2024-03-31 03:30", "2024-03-31 00:00"]
    insert = f"INSERT INTO {quoted} VALUES ('é', %s, 1.125, %s)"
    with world.server.connected(world.name) as connection:
        for number, at in enumerate(times):
            connection.execute(insert.encode().replace(b"100%", b"100%%"), (number, at))
    grid = world.spec.grid
    hours = [p for p in grid.until(grid.partition("2024-03-31-05:00").window.end_utc) if p.key >= "2024-03-31"]
    assert published_keys(world.launch(hours)) == [p.key for p in hours]
    through_snapshot = rows(world)
    assert len(through_snapshot) == len(times)
    world.execute(f"UPDATE {quoted} SET id = id")
    assert len(published_keys(world.bring_up().outcomes)) == 3
    assert rows(world) == through_snapshot
    world.execute(
        f"UPDATE {quoted} SET at = at - interval '10 years' WHERE id = 0", f"DELETE FROM {quoted} WHERE id = 1"
    )
    world.bring_up()
    assert len(rows(world)) == 2
