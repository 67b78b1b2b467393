"""What a capture cannot continue: each ends in words, and nothing lands that would not be whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from backfill_assets.errors import ChangeFeedError, SourceRefusedError
from backfill_assets.live.changes.landed import CaptureTable
from tests.live.changes.capturing import AT, Shop
from tests.live.changes.world import CUSTOMERS


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.land()
    return shop


def refused(shop: Shop, kind: type[Exception] = ChangeFeedError) -> str:
    with pytest.raises(kind) as error:
        shop.land()
    return str(error.value)


def test_a_table_without_whole_rows_is_refused(tmp_path):
    """The statement that mends it is in the message; no slot is made that would fill the server's disk."""
    shop = Shop(tmp_path, make=CUSTOMERS.replace("ALTER TABLE customers REPLICA IDENTITY FULL;", ""))
    assert "ALTER TABLE public.customers REPLICA IDENTITY FULL" in refused(shop)
    with shop.server.connected(shop.name) as connection:
        found = connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (shop.capture.slot,))
        assert found.fetchone() is None


def test_whole_rows_that_stop_coming_stop_the_capture(shop):
    """What has landed stays; the transaction waits at the server."""
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    shop.land()
    shop.execute("ALTER TABLE customers REPLICA IDENTITY DEFAULT", "UPDATE customers SET name = 'b'")
    shop.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
    assert "come without the row from before them" in refused(shop)
    assert shop.said() == [("c", None, "a")]
    assert not list(shop.folder.glob("*.tmp"))


def test_a_slot_that_is_gone_is_not_made_again_in_silence(shop):
    """Whatever changed since is lost to the feed, and every partition has to be read again: the message says so."""
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    shop.land()
    shop.execute(f"SELECT pg_drop_replication_slot('{shop.capture.slot}')")
    said = refused(shop)
    assert "launch all partitions again" in said
    assert len(shop.events) == 1


def test_somebody_elses_hand_on_the_slot_is_noticed(shop):
    """Changes that another consumer took are in no file: nothing is landed after them."""
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    shop.land()
    shop.execute(f"INSERT INTO customers VALUES (2, 'b', 1, NULL, true, '{AT}')")
    shop.execute(f"SELECT pg_replication_slot_advance('{shop.capture.slot}', pg_current_wal_lsn())")
    assert "somebody else has taken what lies between" in refused(shop)


def test_a_second_capture_of_the_same_name_is_refused(shop):
    """Whichever machine it runs on: the lock is the database's."""
    stop = threading.Event()
    first = threading.Thread(target=lambda: shop.new_capture().run(once=False, pause_seconds=0.05, stop=stop))
    first.start()
    try:
        while not is_locked(shop):
            assert first.is_alive()
        with pytest.raises(ChangeFeedError, match="is running already"):
            shop.land()
    finally:
        stop.set()
        first.join()


def is_locked(shop: Shop) -> bool:
    """Say whether a capture has its lock in this database."""
    with shop.server.connected(shop.name) as connection:
        held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = %s)"
        return connection.execute(held, (shop.name,)).fetchone() is not None


def test_a_user_without_the_rights_is_told_which(shop):
    """REPLICATION for the slot; the owner's right for the publication."""
    shop.execute("DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN")
    os.environ[shop.variable] = shop.server.address(shop.name, "plain")
    assert "permission denied" in refused(shop, SourceRefusedError)


def test_the_rights_of_the_page_are_enough(tmp_path):
    """REPLICATION and SELECT, with a publication that the owner has made: nothing else is asked for."""
    shop = Shop(tmp_path)
    shop.execute(
        "DROP ROLE IF EXISTS replicator", "CREATE ROLE replicator LOGIN REPLICATION",
        "REVOKE ALL ON SCHEMA public FROM public", "GRANT USAGE ON SCHEMA public TO replicator",
        "GRANT SELECT ON customers TO replicator", f"CREATE PUBLICATION {shop.capture.slot} FOR TABLE customers",
    )  # fmt: skip
    os.environ[shop.variable] = shop.server.address(shop.name, "replicator")
    shop.land()
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    shop.land()
    assert shop.said() == [("c", None, "a")]


def test_a_table_that_joins_later_is_published(shop):
    """The capture of two tables, of which one was there before: from then on both."""
    shop.execute("CREATE TABLE visits (id bigint PRIMARY KEY, name text)", "ALTER TABLE visits REPLICA IDENTITY FULL")
    both = shop.new_capture()
    both.tables = [*both.tables, CaptureTable("public", "visits")]
    both.run(once=True, pause_seconds=0.02, stop=threading.Event())
    shop.execute("INSERT INTO visits VALUES (1, 'seen')")
    both.run(once=True, pause_seconds=0.02, stop=threading.Event())
    assert shop.said()[-1] == ("c", None, "seen")
