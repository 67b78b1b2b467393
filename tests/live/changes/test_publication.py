"""The publication of a capture, that others touch: what was not published, be it for a while, is not passed over."""

from __future__ import annotations

import pytest

from backfill_assets.errors import ChangeFeedError
from tests.live.changes.capturing import AT, Shop, refused


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["DROP PUBLICATION {slot}"], "is gone"),
        (["ALTER PUBLICATION {slot} SET TABLE customers WHERE (id > 5)"], "leaves out"),
        (
            ["ALTER PUBLICATION {slot} DROP TABLE customers", "ALTER PUBLICATION {slot} ADD TABLE customers"],
            "has left the publication",
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
    ids=["dropped", "some rows", "for a while", "made again"],
)
def test_a_publication_that_others_touched_is_not_mended_in_silence(shop, statements, what):
    """Whatever was changed meanwhile is in no file: the message says what to do to be sure."""
    shop.execute(*(statement.format(slot=shop.capture.slot) for statement in statements))
    said = refused(shop)
    assert what in said
    assert "launch all partitions again" in said


def test_a_table_that_leaves_the_publication_stops_a_capture_that_runs(shop):
    """What it changes from then on is not published: the feed would say that nothing changes."""
    running = shop.new_capture()
    with running.database.connected() as connection:
        running._prepare(connection)
        running.land(connection)
        shop.execute(f"ALTER PUBLICATION {shop.capture.slot} DROP TABLE customers")
        shop.execute(f"INSERT INTO customers VALUES (1, 'unseen', 1, NULL, true, '{AT}')")
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


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE customers REPLICA IDENTITY DEFAULT", "its changes would come without the row from before them"),
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
