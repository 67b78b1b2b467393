"""A capture lands each transaction exactly once and in order, whoever is killed when; what it cannot land it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backfill_assets.core.live.feed import FeedFile
from backfill_assets.errors import ChangeFeedError, SourceRefusedError
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.sources.database.connection import Database
from tests.live.changes.world import CUSTOMERS
from tests.support import postgres

REPOSITORY = Path(__file__).parents[3]


class Shop:
    """A database with one customer's table, and its capture."""

    def __init__(self, folder: Path, server: postgres.Server | None = None, make: str = CUSTOMERS) -> None:
        self.server = server or postgres.shared_server()
        self.name, self.variable = postgres.new_database()
        os.environ[self.variable] = self.server.new_database(self.name)
        self.folder = folder / self.name
        self.execute(make)
        self.capture = self.new_capture()

    def new_capture(self, **how: Any) -> Capture:
        tables = [CaptureTable("public", "customers")]
        database = Database(self.variable, f"capture {self.name}")
        return Capture(self.name, database, tables, self.folder, heartbeat_seconds=0.0, **how)

    def execute(self, *statements: str) -> None:
        with self.server.connected(self.name) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def land(self, **how: Any) -> None:
        self.new_capture(**how).run(once=True, pause_seconds=0.02, stop=threading.Event())

    @property
    def files(self) -> list[FeedFile]:
        found = [FeedFile.named(path.name) for path in self.folder.iterdir()]
        return sorted(file for file in found if file)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Every event that has landed, in the order of the files and lines."""
        texts = [(self.folder / file.name).read_text(encoding="utf-8") for file in self.files]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def said(self) -> list[tuple[str, str | None, str | None]]:
        """Operation, and the name of the customer before and after."""
        return [(e["op"], e["before"] and e["before"]["name"], e["after"] and e["after"]["name"]) for e in self.events]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.land()
    return shop


AT = "2024-01-01 00:00Z"


def test_what_lands_is_what_was_committed_in_that_order(shop):
    """Rolled back transactions and savepoints are not there; one that ends later comes later, whole; large values are whole."""
    with psycopg.connect(os.environ[shop.variable]) as slow:
        slow.execute("INSERT INTO customers VALUES (1, 'slow', 1, NULL, true, %s)", (AT,))
        shop.execute(
            f"INSERT INTO customers VALUES (2, 'quick', 1, repeat('x', 20000), true, '{AT}')",
            f"BEGIN; INSERT INTO customers VALUES (3, 'never', 1, NULL, true, '{AT}'); ROLLBACK",
            f"BEGIN; INSERT INTO customers VALUES (4, 'outer', 1, NULL, true, '{AT}'); SAVEPOINT s; "
            "UPDATE customers SET name = 'inner' WHERE id = 4; ROLLBACK TO s; COMMIT",
        )
        shop.land()
        slow.execute("UPDATE customers SET name = 'slower' WHERE id = 1")
        slow.commit()
    shop.execute("UPDATE customers SET balance = 2 WHERE id = 2", "UPDATE customers SET id = 5 WHERE id = 4")
    shop.execute("DELETE FROM customers WHERE id = 5", "TRUNCATE customers")
    shop.land()
    assert shop.said() == [
        ("c", None, "quick"), ("c", None, "outer"), ("c", None, "slow"), ("u", "slow", "slower"), ("u", "quick", "quick"),
        ("u", "outer", "outer"), ("d", "outer", None), ("t", None, None),
    ]  # fmt: skip
    changed = shop.events[4]
    assert changed["before"]["note"] == changed["after"]["note"] == "x" * 20_000
    assert (shop.events[5]["before"]["id"], shop.events[5]["after"]["id"]) == ("4", "5")
    orders = [(json.loads(e["source"]["sequence"])[0], e["transaction"]["total_order"]) for e in shop.events]
    assert [(int(a), b) for a, b in orders] == sorted((int(a), b) for a, b in orders)
    assert len(set(orders)) == len(orders)
    assert [file.start for file in shop.files][1:] == [file.end for file in shop.files][:-1]


def test_a_transaction_is_never_cut(shop):
    """One of more changes than are asked for at once lies in one file, beside which memory stays small."""
    shop.execute(
        f"INSERT INTO customers SELECT n, 'n', n, repeat('y', 500), true, '{AT}' FROM generate_series(1, 30000) n",
        f"INSERT INTO customers VALUES (99999, 'after', 1, NULL, true, '{AT}')",
    )
    shop.land(changes_at_once=10)
    sizes = [len((shop.folder / file.name).read_text().splitlines()) for file in shop.files]
    assert [size for size in sizes if size] == [30_000, 1]


def test_a_heartbeat_gets_the_feed_ahead_without_filling_the_folder(shop):
    """Where nothing of ours changes, one empty file is renamed, and the server may clean up."""
    before = len(shop.files)
    for number in range(3):
        shop.execute(f"CREATE TABLE other_{number} (id int)")
        shop.land()
    assert len(shop.files) == max(before, 1)
    with shop.server.connected(shop.name) as connection:
        row = connection.execute(
            "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
            (f"{shop.files[-1].end >> 32:X}/{shop.files[-1].end & 0xFFFFFFFF:X}", shop.capture.slot),
        ).fetchone()
    assert row == (True,)


KILLED = """
import os, sys, threading
from backfill_assets.live.changes import capture as module
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.sources.database.connection import Database
from pathlib import Path

name, variable, folder, step = sys.argv[1:]
real_rename, real_advance, real_sync, real_write = Path.rename, Capture._advance, module.sync, module.envelope
count = 0

def at(place):
    if step == place:
        os._exit(9)

def envelope(*args):
    global count
    count += 1
    if count == 3:
        at("in the file")
    return real_write(*args)

def rename(self, target):
    at("before the rename")
    found = real_rename(self, target)
    at("after the rename")
    return found

def advance(self, connection, position):
    at("before the slot moves")
    real_advance(self, connection, position)
    at("after the slot moved")

module.envelope, Path.rename, Capture._advance = envelope, rename, advance
tables = [CaptureTable("public", "customers")]
Capture(name, Database(variable, name), tables, Path(folder), heartbeat_seconds=0.0).run(
    once=True, pause_seconds=0.02, stop=threading.Event()
)
"""
STEPS = ["in the file", "before the rename", "after the rename", "before the slot moves", "after the slot moved"]


def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(shop):
    """Each step once, and the server itself once: every change lands once, in the order of a second slot's account."""
    witness = shop.new_capture()
    witness.name, witness.folder = f"{shop.name}_witness", shop.folder.parent / "witness"
    witness.run(once=True, pause_seconds=0.02, stop=threading.Event())
    for number, step in enumerate(STEPS):
        for each in range(5):
            key = 10 * number + each
            shop.execute(
                f"BEGIN; INSERT INTO customers VALUES ({key}, 'n{key}', 1, NULL, true, '{AT}'); "
                f"UPDATE customers SET balance = {each} WHERE id = {key}; COMMIT"
            )
        arguments = [sys.executable, "-c", KILLED, shop.name, shop.variable, str(shop.folder), step]
        ended = subprocess.run(arguments, check=False, cwd=REPOSITORY, timeout=60, capture_output=True, text=True)
        assert ended.returncode == 9, (step, ended.stderr[-500:])
    shop.land()
    witness.run(once=True, pause_seconds=0.02, stop=threading.Event())
    told = sorted(path for path in witness.folder.iterdir() if path.stat().st_size)
    seen = [json.loads(line) for path in told for line in path.read_text().splitlines()]
    assert [(e["op"], e["source"]["lsn"]) for e in shop.events] == [(e["op"], e["source"]["lsn"]) for e in seen]
    assert len(seen) == 2 * 5 * len(STEPS)
    assert not list(shop.folder.glob("*.tmp"))


def test_a_server_that_is_killed_moves_its_slot_back_and_nothing_lands_twice(tmp_path):
    """What a slot had confirmed may be forgotten with the server's memory; the files know."""
    with postgres.serving() as server:
        shop = Shop(tmp_path, server)
        shop.land()
        for number in range(5):
            shop.execute(f"INSERT INTO customers VALUES ({number}, 'n{number}', 1, NULL, true, '{AT}')")
            shop.land()
            server.stop("immediate")
            server.start()
        shop.land()
        assert [after for _, _, after in shop.said()] == [f"n{number}" for number in range(5)]


# -- what cannot be captured -------------------------------------------------------------------------------------------


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


def test_a_table_that_joins_later_is_published(shop):
    """The capture of two tables, of which one was there before: from then on both."""
    shop.execute("CREATE TABLE visits (id bigint PRIMARY KEY, name text)", "ALTER TABLE visits REPLICA IDENTITY FULL")
    both = shop.new_capture()
    both.tables = [*both.tables, CaptureTable("public", "visits")]
    both.run(once=True, pause_seconds=0.02, stop=threading.Event())
    shop.execute("INSERT INTO visits VALUES (1, 'seen')")
    both.run(once=True, pause_seconds=0.02, stop=threading.Event())
    assert shop.said()[-1] == ("c", None, "seen")
