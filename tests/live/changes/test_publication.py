"""The publication of a capture, that others touch: what was not published, be it for a while, is not passed over."""

from __future__ import annotations

import psycopg
import pytest

from backfill_assets.core.postgres.questions import members
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.joining import begins_at
from backfill_assets.live.changes.landed import CaptureTable
from tests.live.changes.capturing import AT, Shop, refused


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["DROP PUBLICATION {slot}"], "is gone"),
        (["ALTER PUBLICATION {slot} DROP TABLE customers"], "is not in the publication"),
        (["ALTER PUBLICATION {slot} SET TABLE customers WHERE (id > 5)"], "leaves out"),
        (["ALTER PUBLICATION {slot} SET (publish = 'insert')"], "leaves out"),
        (
            [
                "ALTER TABLE customers RENAME TO old",
                "CREATE TABLE customers (LIKE old INCLUDING INDEXES)",
                "ALTER TABLE customers REPLICA IDENTITY FULL",
            ],
            "is not in the publication",
        ),
        (
            ["ALTER PUBLICATION {slot} DROP TABLE customers", "ALTER PUBLICATION {slot} ADD TABLE customers"],
            "has left the publication",
        ),
        (
            [
                "ALTER PUBLICATION {slot} SET (publish = 'insert')",
                "ALTER PUBLICATION {slot} SET (publish = 'insert, update, delete, truncate')",
            ],
            "may have left out operations for a while",
        ),
        (
            [
                "CREATE TABLE anew (LIKE customers INCLUDING INDEXES)",
                "DROP TABLE customers",
                "ALTER TABLE anew RENAME TO customers",
                "ALTER TABLE customers REPLICA IDENTITY FULL",
                "ALTER PUBLICATION {slot} ADD TABLE customers",
            ],
            "or was made again",
        ),
    ],
    ids=[
        "dropped",
        "without the table",
        "some rows",
        "some operations",
        "another table",
        "for a while",
        "less for a while",
        "made again",
    ],
)
def test_a_publication_that_others_touched_is_not_mended_in_silence(shop, statements, what):
    """Whatever was changed meanwhile is in no file: the message says what to do to be sure."""
    shop.execute(*(statement.format(slot=shop.capture.slot) for statement in statements))
    said = refused(shop)
    assert what in said
    assert "launch all partitions again" in said


@pytest.mark.parametrize("is_back", [False, True])
def test_a_table_that_leaves_the_publication_stops_a_capture_that_runs(shop, is_back):
    """What it changes from then on is not published: the feed would say that nothing changes."""
    running = shop.new_capture()
    with running.database.connected() as connection:
        running._prepare(connection)
        running.land(connection)
        shop.execute(f"ALTER PUBLICATION {shop.capture.slot} DROP TABLE customers")
        shop.execute(f"INSERT INTO customers VALUES (1, 'unseen', 1, NULL, true, '{AT}')")
        if is_back:
            shop.execute(f"ALTER PUBLICATION {shop.capture.slot} ADD TABLE customers")
        before = shop.files
        with pytest.raises(ChangeFeedError, match="has left the publication"):
            running.land(connection)
    assert shop.files == before


def test_a_table_that_is_published_with_its_schema(tmp_path):
    """It may be published by itself too, or all the time in one of both ways; taken out in between, it is not whole."""
    shop = Shop(tmp_path)
    publication = f"ALTER PUBLICATION {shop.capture.slot}"
    shop.execute(f"CREATE PUBLICATION {shop.capture.slot} FOR TABLES IN SCHEMA public")
    shop.land()
    ways = (
        "ADD TABLE customers",
        "DROP TABLES IN SCHEMA public",
        "ADD TABLES IN SCHEMA public",
        "DROP TABLE customers",
    )
    running = shop.new_capture()
    with running.database.connected() as connection:
        running._prepare(connection)
        for key, change in enumerate(2 * ways):
            shop.execute(f"{publication} {change}", f"INSERT INTO customers VALUES ({key}, 'a', 1, NULL, true, '{AT}')")
            running.land(connection) if key < len(ways) else shop.land()
    assert len(shop.events) == 2 * len(ways)
    shop.execute(f"{publication} DROP TABLES IN SCHEMA public", f"{publication} ADD TABLES IN SCHEMA public")
    assert "has left the publication" in refused(shop)


@pytest.mark.parametrize("publishes", ["TABLES IN SCHEMA public", "ALL TABLES"])
def test_a_table_that_was_kept_from_the_log_for_a_while_joins_anew(tmp_path, publishes):
    """The server refuses that of a table that is published by its own name only; what it had meanwhile is in no file."""
    shop = Shop(tmp_path)
    shop.execute(f"CREATE PUBLICATION {shop.capture.slot} FOR {publishes}")
    shop.land()
    begins = begins_at(shop.folder, CaptureTable("public", "customers"))
    said: list[str] = []
    for statement in ("TRUNCATE customers", "VACUUM FULL customers", "CLUSTER customers USING customers_pkey"):
        shop.execute(statement)
        shop.land(log=said.append)
    assert not any("joins anew" in line for line in said), "all of that is in the log, or changes no row"
    shop.execute(
        "BEGIN; ALTER TABLE customers SET UNLOGGED; "
        f"INSERT INTO customers VALUES (1, 'unseen', 1, NULL, true, '{AT}'); ALTER TABLE customers SET LOGGED; COMMIT"
    )
    shop.land(log=said.append)
    assert any("it joins anew, and every partition has to be launched again" in line for line in said), said
    assert begins_at(shop.folder, CaptureTable("public", "customers")) != begins


def test_a_table_that_is_published_by_its_name_stays_in_the_log(shop):
    """As a capture publishes its tables: and then another file of its rows says nothing."""
    with pytest.raises(psycopg.Error, match="cannot change table .* to unlogged"):
        shop.execute("ALTER TABLE customers SET UNLOGGED")
    said: list[str] = []
    shop.execute("VACUUM FULL customers")
    shop.land(log=said.append)
    assert not any("joins anew" in line for line in said)


def test_a_table_that_is_not_captured_is_nobodys_concern(shop):
    """Its owner publishes some of its rows, in the same publication: no captured table lacks any."""
    shop.execute(
        "CREATE TABLE others (id bigint PRIMARY KEY)",
        f"ALTER PUBLICATION {shop.capture.slot} ADD TABLE others WHERE (id > 5)",
        f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')",
    )
    shop.land()
    assert len(shop.events) == 1


@pytest.mark.parametrize("server_version", [140_000, 150_000])
def test_members_of_a_publication_are_asked_for_as_the_server_keeps_them(shop, server_version):
    """Before version 15 there is no catalog of published schemas; a table by itself is found all the same."""
    shop.land()
    with shop.server.connected(shop.name) as connection:
        query = members(server_version)
        assert ("pg_publication_namespace" in query) is (server_version >= 150_000)
        ((schema, table, _),) = connection.execute(query.encode(), (shop.capture.slot,)).fetchall()
    assert (schema, table) == ("public", "customers")


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE TABLE vips () INHERITS (customers)", "it is in parts, or a part of another one"),
        ("ALTER TABLE customers REPLICA IDENTITY DEFAULT", "its changes would come without the row from before them"),
        ("ALTER PUBLICATION {slot} SET (publish_via_partition_root = true)", "was altered"),
    ],
)
def test_what_could_not_be_captured_stops_a_capture_that_runs(shop, statement, what):
    """A launch reads the rows of a part too, and the feed would never have their changes."""
    running = shop.new_capture()
    with running.database.connected() as connection:
        running._prepare(connection)
        running.land(connection)
        shop.execute(statement.format(slot=shop.capture.slot))
        with pytest.raises(ChangeFeedError, match=what) as error:
            running.land(connection)
    assert "launch all partitions again" in str(error.value)
