"""A capture and a table that follows its database, by their commands, killed again and again while clients write."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from tests.e2e.database_world import FEED, change, new_environment, ran, started
from tests.live.changes.world import COLUMNS, CUSTOMERS
from tests.support import postgres
from tests.support.killing import kill_group
from tests.support.shop import multiset, rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.prove]

ROUNDS = int(os.environ.get("SCHEDULES", "1"))
"""How often both are killed; `make prove` does it more often."""


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.serving() as server:
        with server.connected() as connection:
            connection.execute(CUSTOMERS.encode())
        yield server


@pytest.fixture(scope="module")
def environment(server: postgres.Server, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    definitions = "defs = lakehouse_definitions(build_lakehouse_table(customers))"
    return new_environment(tmp_path_factory.mktemp("project"), server, definitions)


def test_killed_anywhere_the_table_ends_as_the_database(server, environment):
    """The past is loaded by itself, changes are folded in; capture and writer die by kill -9 and are started again."""
    dice = random.Random(7)
    address = server.address()
    with psycopg.connect(address, autocommit=True) as client:
        client.execute(
            "INSERT INTO customers SELECT n, 'n' || n, n, NULL, true, timestamptz '2024-01-15Z' + n * interval '1 day' "
            "FROM generate_series(1, 80) n"
        )
        capture, writer = started(environment, "capture", "shop"), started(environment, "live", "bronze/customers")
        try:
            for _ in range(ROUNDS):
                written = versions(environment)
                wait_until_written(environment, written, client, dice)
                kill_group(capture)
                for _ in range(30):
                    change(client, dice)
                capture = started(environment, "capture", "shop")
                time.sleep(dice.uniform(0, 3))
                kill_group(writer)
                writer = started(environment, "live", "bronze/customers")
            wait_until_written(environment, versions(environment), client, dice)
        finally:
            for process in (capture, writer):
                kill_group(process)
        ran(environment, "capture", "shop", "--once")
        ran(environment, "live", "bronze/customers", "--once")
        expected = multiset(postgres.rows_of(client, "customers"), COLUMNS)
    found = rows_in(f"{environment['LAKEHOUSE_ROOT']}/tables/bronze/customers")
    assert multiset(found, COLUMNS) == expected
    (told,) = json.loads(ran(environment, "status", "bronze/customers", "--json"))["tables"]
    assert told["state"] == "COMPLETED"
    assert told["live"].startswith("feed ")


def test_a_capture_outlives_a_restart_of_its_server(server, environment):
    """Killed as by a crash, the server is waited for; the same process lands what came since, and ends when it is told to."""
    log, folder = Path(environment["DAGSTER_HOME"], "capture.log"), Path(environment["LAKEHOUSE_ROOT"], FEED)

    def wait_until(done: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not done():
            assert time.monotonic() < until, log.read_text()[-2000:]
            assert capture.poll() is None, log.read_text()[-2000:]
            time.sleep(0.1)

    def has_landed(name: str) -> bool:
        """Sign one more customer up; say whether one of them has landed."""
        with server.connected() as client:
            row = f"VALUES ({time.monotonic_ns()}, '{name}', 1, NULL, NULL, '2024-01-15Z')"
            client.execute(f"INSERT INTO customers {row}".encode())
        return any(name in file.read_text() for file in folder.glob("*.jsonl"))

    capture = started(environment, "capture", "shop")
    try:
        wait_until(lambda: has_landed("before it crashed"))
        server.stop("immediate")
        wait_until(lambda: "nothing is lost. It is asked again in 1 s." in log.read_text())
        server.start()
        wait_until(lambda: has_landed("after it was started again"))
        capture.send_signal(signal.SIGTERM)
        assert capture.wait(30) == 0
    finally:
        kill_group(capture)
    assert "shop: stopped after" in log.read_text()


def versions(environment: Mapping[str, str]) -> int:
    """How many commits the table has."""
    log = Path(environment["LAKEHOUSE_ROOT"]) / "tables/bronze/customers/_delta_log"
    return len(list(log.glob("*.json")))


def wait_until_written(
    environment: Mapping[str, str], written: int, client: psycopg.Connection, dice: random.Random
) -> None:
    """Go on changing customers until the table has got another commit."""
    until = time.monotonic() + 120
    while versions(environment) <= written:
        assert time.monotonic() < until, Path(environment["DAGSTER_HOME"], "live.log").read_text()[-2000:]
        change(client, dice)
