"""Waiting for a lock is no outage: whoever holds it is named, to be waited for or to be ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.errors import SourceRefusedError, SourceUnavailableError
from backfill_assets.live.changes.landed import feed_state
from backfill_assets.sources.database.connection import Database
from backfill_assets.sources.database.snapshot import take_snapshot
from tests.live.changes.capturing import AT, Shop

INSERT = f"INSERT INTO customers VALUES (1000, 'x', 1, NULL, true, '{AT}')"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop whose capture has not begun."""
    return Shop(tmp_path)


@contextmanager
def session(shop: Shop, *statements: str, application: str = "nightly") -> Iterator[int]:
    """Leave a transaction open; return the number of its session."""
    with psycopg.connect(os.environ[shop.variable], application_name=application) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection.info.backend_pid


def started(shop: Shop, lock_wait_seconds: float = 4.0, log: list[str] | None = None) -> None:
    """Start the capture, and land what there is."""
    capture = shop.new_capture()
    said = log if log is not None else []
    capture.database = replace(capture.database, lock_wait_seconds=lock_wait_seconds, log=said.append)
    capture.run(once=True, pause_seconds=0.02, stop=threading.Event())


@pytest.mark.prove
def test_slot_behind_a_prepared_transaction_names_it(shop):
    """It has no session that could be seen: the statement that ends it is said, by the capture and by `status`."""
    try:
        with shop.server.connected(shop.name) as connection:
            connection.execute(f"BEGIN; {INSERT}; PREPARE TRANSACTION 'for''gotten'")
        with pytest.raises(SourceUnavailableError) as refused:
            started(shop)
        slots = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
        with shop.server.connected() as connection:
            assert connection.execute(slots, (shop.capture.slot,)).fetchone() is None
    finally:
        shop.execute("ROLLBACK PREPARED 'for''gotten'")
    said = str(refused.value)
    assert f"the prepared transaction `for'gotten` of the database `{shop.name}`, since 2" in said
    assert "`ROLLBACK PREPARED 'for''gotten';`" in said
    assert "did not answer" not in said
    assert "for'gotten" in feed_state(shop.folder).stopped
    started(shop)


@pytest.mark.prove
def test_slot_behind_an_old_transaction_waits_for_its_end(shop):
    """What it waits for is logged while it waits; then the capture starts as if nothing had been."""
    log: list[str] = []
    waited = threading.Event()

    class Log(list[str]):
        def append(self, said: str) -> None:
            log.append(said)
            waited.set()

    with session(shop, INSERT) as pid:
        starting = threading.Thread(target=started, args=(shop, 60.0, Log()))
        starting.start()
        assert waited.wait(30)
    starting.join(30)
    assert f"It waits for a lock that the session {pid} (application `nightly`, since 2" in log[0]
    assert shop.files


@pytest.mark.prove
def test_launch_behind_a_waiting_alter_names_all(shop):
    """The table's lock waits behind an ALTER TABLE, which waits behind a transaction that only reads."""
    database = Database(shop.variable, "bronze/customers", lock_wait_seconds=4.0)
    source = DatabaseSpec(connection=shop.variable, table="customers")
    with session(shop, "SELECT * FROM customers", application="report") as reads:
        altering = threading.Thread(target=shop.execute, args=("ALTER TABLE customers ADD extra int",))
        altering.start()
        with shop.server.connected(shop.name) as other:
            while not (found := other.execute("SELECT pid FROM pg_locks WHERE NOT granted").fetchall()):
                pass
        with pytest.raises(SourceUnavailableError) as refused:
            take_snapshot(source, database, None)
    altering.join(30)
    said = str(refused.value)
    assert f"the session {reads} (application `report`" in said
    assert f"the session {found[0][0]} (no application name" in said
    take_snapshot(source, database, None).close()


@pytest.mark.parametrize(
    ("sqlstate", "kind", "what"),
    [
        ("08006", SourceUnavailableError, "did not answer, or ended the session"),
        ("55P03", SourceUnavailableError, "gave up a statement that waited for a lock"),
        ("57014", SourceUnavailableError, "ended a statement: it"),
        ("22012", SourceRefusedError, "refused: it"),
    ],
)
def test_each_class_of_failures_has_its_words(shop, sqlstate, kind, what):
    """An outage, a lock, a limit and a refusal are told apart by PostgreSQL's code, never by its words."""
    database = Database(shop.variable, "bronze/customers")
    with database.connected() as connection, pytest.raises(kind) as failed:
        database.run(connection, f"DO $$ BEGIN RAISE EXCEPTION 'it' USING ERRCODE = '{sqlstate}'; END $$")
    assert what in str(failed.value)
    assert failed.value.facts["sqlstate"] == sqlstate
