"""A capture lands each transaction exactly once and in order, whoever is killed when; what it cannot land it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from tests.live.changes.capturing import AT, Shop
from tests.support import postgres

REPOSITORY = Path(__file__).parents[3]


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
        f"INSERT INTO customers SELECT n, 'n', n, repeat('y', 500), true, '{AT}' FROM generate_series(1, 3000) n",
        f"INSERT INTO customers VALUES (99999, 'after', 1, NULL, true, '{AT}')",
    )
    shop.land(changes_at_once=10)
    sizes = [len((shop.folder / file.name).read_text().splitlines()) for file in shop.files]
    assert [size for size in sizes if size] == [3_000, 1]


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
real_rename, real_advance, real_write = Path.rename, Capture._advance, module.envelope
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
    return real_rename(self, target)

def advance(self, connection, position):
    at("before the slot moves")
    real_advance(self, connection, position)

module.envelope, Path.rename, Capture._advance = envelope, rename, advance
tables = [CaptureTable("public", "customers")]
Capture(name, Database.of_a_capture(variable, name), tables, Path(folder), heartbeat_seconds=0.0).run(
    once=True, pause_seconds=0.02, stop=threading.Event()
)
"""
STEPS = ["in the file", "before the rename", "before the slot moves"]


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
    told = sorted(witness.folder.glob("*.jsonl"))
    seen = [json.loads(line) for path in told for line in path.read_text().splitlines()]
    assert [(e["op"], e["source"]["lsn"]) for e in shop.events] == [(e["op"], e["source"]["lsn"]) for e in seen]
    assert len(seen) == 2 * 5 * len(STEPS)
    assert not list(shop.folder.glob("*.tmp"))


@pytest.mark.prove
def test_a_server_that_is_killed_moves_its_slot_back_and_nothing_lands_twice(tmp_path):
    """What a slot had confirmed may be forgotten with the server's memory; the files know."""
    with postgres.serving() as server:
        shop = Shop(tmp_path, server)
        shop.land()
        for number in range(2):
            shop.execute(f"INSERT INTO customers VALUES ({number}, 'n{number}', 1, NULL, true, '{AT}')")
            shop.land()
            server.stop("immediate")
            server.start()
        shop.land()
        assert [after for _, _, after in shop.said()] == ["n0", "n1"]


MEASURED = """
import re, sys, threading
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.sources.database.connection import Database
from pathlib import Path

name, variable, folder = sys.argv[1:]
tables = [CaptureTable("public", "customers")]
Capture(name, Database.of_a_capture(variable, name), tables, Path(folder)).run(once=True, pause_seconds=0.02, stop=threading.Event())
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.prove
def test_a_transaction_of_a_million_rows_needs_little_memory(shop):
    """It lands whole in one file, and the process that lands it has a few changes in memory at a time."""
    shop.execute(
        f"INSERT INTO customers SELECT n, 'n', n, repeat('y', 100), true, '{AT}' FROM generate_series(1, 1000000) n"
    )
    arguments = [sys.executable, "-c", MEASURED, shop.name, shop.variable, str(shop.folder)]
    ended = subprocess.run(arguments, check=True, cwd=REPOSITORY, timeout=600, capture_output=True, text=True)
    assert int(ended.stdout) < 250 * 1024
    assert [size for size in map(lines_of, (shop.folder / file.name for file in shop.files)) if size] == [1_000_000]


def lines_of(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)
