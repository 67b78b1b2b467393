"""A table that Debezium's own engine keeps up to date, with the settings and the code of docs/databases.md. `make test-debezium` runs it."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from backfill_assets.core.history.changes import HALF
from backfill_assets.core.live.feed import UNAVAILABLE
from tests.live.changes.test_all_types import new_world as new_table
from tests.live.changes.test_all_types import rows as rows_of
from tests.live.changes.world import DAYS, Load, World, new_world
from tests.places.debezium import Debezium
from tests.sources.database.test_database_values import ALL_TYPES, CASES, COLUMNS, same
from tests.support import postgres
from tests.support.seeds import rounds
from tests.support.shop import published_keys, refusals, rows_in

pytestmark = [pytest.mark.prove, pytest.mark.long]

REQUIRED = os.environ.get("BACKFILL_ASSETS_DEBEZIUM_TESTS") == "required"


@pytest.fixture(autouse=True)
def engine() -> None:
    """Whoever asks for it has it: it is no dependency of the project."""
    if not REQUIRED:
        pytest.skip(
            "`make test-debezium` installs Debezium's engine (200 MB) and runs it; so does `make prove`, in a part of its own"
        )


LARGE = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 300) n)"
STORY: list[tuple[str, str]] = [
    ("NULLs, quotes and letters of all kinds", "INSERT INTO customers VALUES (1001, 'é 漢字 😀 \t '' \" \\ ', NULL, NULL, NULL, '2024-01-01 23:59:59.999999Z'), (1002, '', 9999999999999999.99, '', false, '2024-01-02Z')"),
    ("updates", "UPDATE customers SET balance = -balance, name = NULL WHERE id % 3 = 0"),
    ("another key", "UPDATE customers SET id = id + 2000 WHERE id < 20"),
    ("two keys that are swapped", "BEGIN; UPDATE customers SET id = -1 WHERE id = 21; UPDATE customers SET id = 21 WHERE id = 22; UPDATE customers SET id = 22 WHERE id = -1; COMMIT"),
    ("another partition", "UPDATE customers SET signed_up = signed_up + interval '1 day' WHERE id BETWEEN 30 AND 90 AND signed_up < '2024-01-05Z'"),
    ("another partition and another key", "UPDATE customers SET signed_up = signed_up - interval '1 day', id = id + 5000 WHERE id BETWEEN 91 AND 99 AND signed_up >= '2024-01-02Z'"),
    ("deletes", "DELETE FROM customers WHERE id % 7 = 0"),
    ("one key, much in one transaction", "BEGIN; INSERT INTO customers VALUES (3000, 'a', 1, NULL, true, '2024-01-03Z'); UPDATE customers SET balance = 2 WHERE id = 3000; UPDATE customers SET id = 3001 WHERE id = 3000; DELETE FROM customers WHERE id = 3001; INSERT INTO customers VALUES (3000, 'b', 3, NULL, true, '2024-01-04Z'); UPDATE customers SET name = 'a' WHERE id = 3000; UPDATE customers SET name = 'b' WHERE id = 3000; COMMIT"),
    ("a rollback", "BEGIN; DELETE FROM customers; INSERT INTO customers VALUES (3002, 'never', 1, NULL, true, '2024-01-03Z'); ROLLBACK"),
    ("savepoints", "BEGIN; INSERT INTO customers VALUES (3003, 'kept', 1, NULL, true, '2024-01-03Z'); SAVEPOINT a; DELETE FROM customers WHERE id > 100; ROLLBACK TO a; SAVEPOINT b; UPDATE customers SET balance = 7 WHERE id = 3003; RELEASE b; COMMIT"),
    ("a large value", f"UPDATE customers SET note = {LARGE} WHERE id BETWEEN 100 AND 110"),
    ("a large value that does not change", "UPDATE customers SET balance = 5 WHERE id BETWEEN 100 AND 105; UPDATE customers SET id = id + 7000, signed_up = '2024-01-05Z' WHERE id BETWEEN 106 AND 110"),
    ("emptied, and filled in the same transaction", "BEGIN; UPDATE customers SET balance = 8; TRUNCATE customers; INSERT INTO customers SELECT n, 'new', n, NULL, true, timestamptz '2024-01-01Z' + n * interval '1 hour' FROM generate_series(1, 100) n; COMMIT"),
    ("emptied, and filled afterwards", "TRUNCATE customers; INSERT INTO customers SELECT n, 'newer', n, NULL, true, timestamptz '2024-01-01Z' + n * interval '1 hour' FROM generate_series(50, 110) n"),
    ("emptied", "TRUNCATE customers"),
]  # fmt: skip
"""What happens to the customers, and the statements that do it; one after the other."""


def brought_up(world: World, debezium: Debezium) -> None:
    debezium.has_landed()
    assert world.refresh().once().refused == []


def test_debezium_brings_what_happened_in_the_database(spark, tmp_path):
    """Whatever clients do, row for row; each event has landed once, in the order of the log."""
    world = new_world(spark, tmp_path)
    with Debezium(world) as debezium:
        debezium.has_landed()
        assert published_keys(world.launch_now()) == list(DAYS)
        assert world.content() == world.rows()
        for what, statements in STORY:
            world.execute(statements)
            brought_up(world, debezium)
            assert world.content() == world.rows(), what
        copy(world, 0)
        message = "SELECT pg_logical_emit_message(true, 'shop', 'in'), pg_logical_emit_message(false, 'shop', 'out')"
        world.execute(message)
        brought_up(world, debezium)
        assert world.content() == world.rows()

        for time, key in (("infinity", 1), ("0044-03-15 BC", 2), ("10000-01-01", 3)):
            world.execute(f"UPDATE customers SET signed_up = '{time}' WHERE id = {key}")
        brought_up(world, debezium)
        assert not {1, 2, 3} & {row[0] for row in world.content()}, "they lie in no partition"
        world.execute(f"UPDATE customers SET signed_up = '{DAYS[0]} 05:00Z' WHERE id < 4")
        brought_up(world, debezium)
        assert world.content() == world.rows()
        each_once_in_order(debezium)
        whole = [event for event in debezium.events() if event["source"]["table"] == "customers" and event["before"]]
        assert not any(value in UNAVAILABLE for event in whole for value in event["before"].values())


def copy(world: World, first: int) -> None:
    """Copy a thousand customers, whose rows have one place in the log, page by page."""
    with (
        world.server.connected(world.name) as connection,
        connection.cursor().copy("COPY customers FROM STDIN") as rows,
    ):
        for number in range(first, first + 1000):
            rows.write_row((number, f"copied {number}", number, None, True, f"{DAYS[number % 5]} 12:00Z"))


def each_once_in_order(debezium: Debezium) -> None:
    """Each event has a place of its own in all that has landed, and stands behind those of smaller places."""
    places = [(json.loads(e["source"]["sequence"]), e["transaction"]["total_order"]) for e in debezium.events()]
    found = [(int(sequence[0] or 0), number) for sequence, number in places]
    assert max(Counter(found).values()) == 1
    assert found == sorted(found)


def test_debezium_brings_every_type(spark, tmp_path):
    """Each case of each type is through Debezium's events what it is through a snapshot, and in the database."""
    make = f"{ALL_TYPES} ALTER TABLE orders ADD local timestamp, ADD PRIMARY KEY (order_id); ALTER TABLE orders REPLICA IDENTITY FULL;"
    world = new_table(
        spark, tmp_path, make, "orders", columns={**COLUMNS, "local": "timestamp"}, key_columns=["order_id"],
        event_time="at", grain="monthly", of={"timestamps_without_zone": "Europe/Berlin"},
    )  # fmt: skip
    local = [
        {"local": "2024-07-01 12:00:00.123456"},
        {"local": "2024-10-27 02:30:00"},
        {"clock": "00:00:00"},
        {"at": "2024-01-01 12:00:00.000001Z"},
    ]
    with world.server.connected(world.name) as connection:
        for number, case in enumerate([*CASES, *local]):
            postgres.insert(connection, [{"order_id": number, "at": "2024-01-01 12:00Z", **case}])
    month = [world.spec.grid.partition("2024-01-01")]
    with Debezium(world) as debezium:
        debezium.has_landed()
        assert published_keys(world.launch_now(month)) == ["2024-01-01"]
        through_snapshot = rows_of(world)
        assert len(through_snapshot) == len(CASES) + len(local)
        world.execute("UPDATE orders SET at = at")
        debezium.has_landed()
        assert published_keys(world.refresh().once().outcomes) == ["2024-01-01"]
        assert set(rows_of(world)) ^ set(through_snapshot) == set()
        found = sorted(rows_in(world.lake.path), key=lambda row: row["order_id"])
        with world.server.connected(world.name) as connection:
            there = sorted(postgres.rows_of(connection), key=lambda row: row["order_id"])
        wrong = [
            (name, mine[name], theirs[name])
            for mine, theirs in zip(found, there, strict=True)
            for name in COLUMNS
            if not same(name, mine[name], theirs[name])
        ]
        assert wrong == []

        for column, value in (("price", "'NaN'"), ("day", "'infinity'"), ("day", "'0044-03-15 BC'")):
            world.execute(f"UPDATE orders SET {column} = {value} WHERE order_id = 0")
            debezium.has_landed()
            assert [refused.verdict.partition.key for refused in world.refresh().once().refused] == ["2024-01-01"], (
                value
            )
            assert list(refusals(world.launch_now(month))) == ["2024-01-01"]
            assert rows_of(world) == through_snapshot
            world.execute(f"UPDATE orders SET {column} = NULL WHERE order_id = 0")
        brought_up(world, debezium)
        assert rows_of(world) == through_snapshot


def test_debezium_is_killed_before_it_has_stored_anything(tmp_path):
    """In the midst of its slot's first transaction, which has no position: it begins again where the slot does."""
    world = new_world(None, tmp_path)
    rare = {"max.batch.size": "4", "max.queue.size": "16", "heartbeat.interval.ms": "60000"}
    with Debezium(world, rare, pause_seconds=1) as debezium:
        for day in DAYS:
            world.execute(
                f"INSERT INTO customers SELECT n, '', 1, NULL, true, '{day}Z' FROM generate_series((SELECT max(id) + 1 FROM customers), (SELECT max(id) + 10 FROM customers)) n"
            )
        for _ in range(2):
            debezium.delivers()
            debezium.kill()
            assert debezium.files == []
            assert not (debezium.scratch / "offsets").exists()
            debezium.start()
        debezium.kill()
        debezium.more["heartbeat.interval.ms"], debezium.pause_seconds = "200", 0
        debezium.start()
        debezium.has_landed()
        assert max(debezium.deliveries().values()) == 3
        landed = [event["after"]["id"] for event in debezium.events() if event["source"]["table"] == "customers"]
        assert landed == list(range(241, 291))
        each_once_in_order(debezium)


@pytest.mark.parametrize("seeds", rounds(range(1)), ids=lambda seeds: f"from {seeds[0]}")
def test_debezium_is_killed_beside_launches_and_clients(spark, tmp_path, seeds):
    """It delivers again what it had delivered; nothing is lost or doubled, and what a snapshot saw is told by half an id of 2³² and more."""
    for seed in seeds:
        with postgres.serving_later_ids() as server:
            one_schedule(new_world(spark, tmp_path / str(seed), server=server, changes={"wait_seconds": 120}), seed)


def one_schedule(world: World, seed: int) -> None:
    small = {"max.batch.size": "64", "max.queue.size": "128"}
    with Debezium(world, small, pause_seconds=0.05) as debezium:
        debezium.has_landed()
        with Load(world, seed), debezium.killed_now_and_then(seed, 4):
            launched = world.launch_now(world.partitions[:2])
            copy(world, 10_000)
            world.execute("UPDATE customers SET id = id + 5000 WHERE id BETWEEN 10000 AND 20000")
            launched += world.launch_now()
            copy(world, 10_000)
        assert set(published_keys(launched)) == set(DAYS)
        assert all(
            int(outcome.receipt.source["snapshot"].split(":")[1]) > HALF
            for outcome in launched
            if hasattr(outcome, "receipt")
        )
        brought_up(world, debezium)
        assert world.content() == world.rows(), seed
        assert all(times == 1 for keys in world.keys_by_version().values() for times in keys.values())
        assert max(debezium.deliveries().values()) > 1, "nothing was delivered again"
        each_once_in_order(debezium)
        assert {event["source"]["txId"] < HALF for event in debezium.events()} == {True}
