"""What a capture cannot continue: each ends in words, and nothing lands that would not be whole."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.core.live.feed import FeedFile
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.joining import TABLES, table_state
from backfill_assets.live.changes.landed import CaptureTable, feed_state
from backfill_assets.live.changes.published import MEMBERS
from backfill_assets.live.changes.rewritten import STORED
from tests.live.changes.capturing import AT, Shop, refused
from tests.live.changes.world import CUSTOMERS


def test_a_table_without_whole_rows_is_refused(tmp_path):
    """The statement that mends it is in the message; no slot is made that would fill the server's disk."""
    shop = Shop(tmp_path, make=CUSTOMERS.replace("ALTER TABLE customers REPLICA IDENTITY FULL;", ""))
    assert "ALTER TABLE public.customers REPLICA IDENTITY FULL" in refused(shop)
    with shop.server.connected(shop.name) as connection:
        found = connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (shop.capture.slot,))
        assert found.fetchone() is None


def test_a_key_that_is_not_unique_is_refused(tmp_path):
    """Two rows with one key would be one in the table, and nobody would be told which: an index has to keep them apart."""
    shop = Shop(tmp_path)
    shop.keys = frozenset({("name", "signed_up")})
    said = refused(shop)
    assert "no unique index of it has all of its columns among `key_columns` (name, signed_up)" in said
    assert "`CREATE UNIQUE INDEX ON public.customers (name, signed_up);`, unless there is one" in said
    assert "`ALTER TABLE public.customers ALTER name SET NOT NULL, ALTER signed_up SET NOT NULL;`" in said
    assert "Or name in `key_columns` the columns of one that there is: (id)." in said
    for less in ("(name) WHERE active", "(lower(name))", "(name, balance)"):
        shop.execute(f"CREATE UNIQUE INDEX ON customers {less}")
        assert "no unique index" in refused(shop)
    shop.execute("CREATE UNIQUE INDEX by_name ON customers (name) INCLUDE (balance)")
    assert "none that may be NULL" in refused(shop)
    shop.execute("ALTER TABLE customers ALTER name SET NOT NULL")
    shop.land()
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')", "DROP INDEX by_name")
    assert "no unique index" in refused(shop)
    assert shop.said() == []
    shop.keys = frozenset({("id",)})
    shop.land()
    assert shop.said() == [("c", None, "a")]


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


@pytest.mark.parametrize("name", [TABLES, MEMBERS, STORED])
def test_damaged_notes_are_not_taken_for_none(shop, name):
    """What a capture noted beside its files is a file that a disk may damage: it is named, and nothing lands until it is back."""
    shop.execute(f"INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '{AT}')")
    noted = shop.folder / name
    whole = noted.read_text(encoding="utf-8")
    noted.write_text('{"public.customers": ', encoding="utf-8")
    said = refused(shop)
    assert f"`{noted}`, in which a capture notes what its files have, cannot be read" in said
    assert "Put it back as it was, from a backup" in said
    if name == TABLES:
        with pytest.raises(ChangeFeedError, match="cannot be read"):
            table_state(shop.folder, CaptureTable("public", "customers"))
    noted.write_text(whole, encoding="utf-8")
    shop.land()
    assert shop.said() == [("c", None, "a")]


def test_why_a_capture_ended_is_kept_beside_its_files(shop):
    """Until one begins again; a second one that is refused says nothing of the first. The database is not asked."""
    shop.land()
    assert feed_state(shop.folder).in_words("shop", datetime.now(UTC)).startswith("feed ")
    later = datetime.now(UTC) + timedelta(minutes=5)
    assert (
        feed_state(shop.folder).in_words("shop", later) == "feed 5 min ago: is `backfill-assets capture shop` running?"
    )
    shop.execute("ALTER TABLE customers RENAME TO clients")
    with pytest.raises(ChangeFeedError):
        shop.land()
    assert (
        feed_state(shop.folder).in_words("shop", later).startswith("the capture shop has stopped: `public.customers`: ")
    )
    shop.execute("ALTER TABLE clients RENAME TO customers")
    shop.land()
    assert feed_state(shop.folder).stopped == ""
    assert feed_state(shop.folder / "nowhere").in_words("shop", later).startswith("no feed yet")


def test_a_capture_that_is_behind_does_not_look_caught_up(shop):
    """Landing something is not enough: the table is as late as the last look after which nothing was left to land."""

    def caught_up() -> datetime:
        at = feed_state(shop.folder).landed_at
        assert at is not None
        return at

    first = caught_up()
    shop.execute(*(f"INSERT INTO customers VALUES ({key}, 'a', 1, NULL, true, '{AT}')" for key in range(3)))
    behind = shop.new_capture()
    behind.changes_at_once = 1
    with behind.database.connected() as connection:
        behind._prepare(connection)
        for number in (1, 2, 3):
            assert behind.land(connection).transactions == 1
            assert (len(shop.events), caught_up()) == (number, first)
        assert behind.land(connection).transactions == 0
    assert caught_up() > first


def test_a_second_capture_of_the_same_name_is_refused(shop):
    """Whichever machine it runs on: the lock is the database's. One that ends soon is waited for."""
    stop = threading.Event()
    first = threading.Thread(target=lambda: shop.new_capture().run(once=False, pause_seconds=0.05, stop=stop))
    first.start()
    try:
        while not is_locked(shop):
            assert first.is_alive()
        second = shop.new_capture()
        second.lock_wait_seconds = 0.3
        with pytest.raises(ChangeFeedError, match="is running already"):
            second.run(once=True, pause_seconds=0.05, stop=threading.Event())
        threading.Timer(1, stop.set).start()
        shop.land()
    finally:
        stop.set()
        first.join()


def is_locked(shop: Shop) -> bool:
    """Say whether a capture has its lock in this database."""
    with shop.server.connected(shop.name) as connection:
        held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = %s)"
        return connection.execute(held, (shop.name,)).fetchone() is not None


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


def test_what_cannot_come_whole_is_refused_before_it_is_published(tmp_path):
    """Generated columns, for which PostgreSQL would refuse updates; a table in parts: nothing at the server is changed."""
    generated = Shop(
        tmp_path, make=CUSTOMERS.replace("note text", "note text GENERATED ALWAYS AS (name || 'x') STORED")
    )
    assert "generated columns" in refused(generated)
    generated.execute("UPDATE customers SET balance = 1")
    parts = "CREATE TABLE customers (id bigint, name text, at date) PARTITION BY RANGE (at); ALTER TABLE customers REPLICA IDENTITY FULL"
    assert "in parts" in refused(Shop(tmp_path, make=parts))


def test_an_older_copy_of_the_server_is_noticed(shop):
    """Its log ends before the newest file: what it does from there on would be skipped."""
    newest = shop.files[-1]
    (shop.folder / newest.name).rename(shop.folder / FeedFile(newest.start, newest.end + (1 << 40), is_idle=True).name)
    assert "older copy" in refused(shop)
