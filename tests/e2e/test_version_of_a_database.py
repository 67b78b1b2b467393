"""Two versions of a table that follows a database, both followed while clients write, switched there and back."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import deltalake
import psycopg
import pytest

from tests.e2e.database_world import change, define, new_environment, ran, started
from tests.live.changes.world import COLUMNS, CUSTOMERS
from tests.support import postgres
from tests.support.killing import kill_group
from tests.support.shop import multiset, rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

FIRST, SECOND = "bronze/customers", "bronze/customers__v2"
ONE = "defs = lakehouse_definitions(build_lakehouse_table(customers))"
BOTH = """
second = TableSpec.model_validate(
    customers.model_dump(mode="json", exclude_unset=True)
    | {"key": "bronze/customers__v2", "grain": "weekly", "time_zone": "Europe/Berlin"}
    | {"columns": {**customers.columns, "balance": "decimal(20,4)"}}
    | {"version_of": {"table": "bronze/customers", "cast": ["balance"]}}
)
defs = lakehouse_definitions(build_lakehouse_table(customers), build_lakehouse_table(second))
"""
ROUNDS = int(os.environ.get("SCHEDULES", "1"))
"""How often readers are switched there and back; `make prove` does it more often."""

PATIENT = ("--patience", "200")
"""Two writers, a capture, readers and a comparison share the machine."""

QUIET = range(1000, 1240)
"""Keys of customers whom nobody changes: whoever reads finds each of them once."""


def current(root: Path) -> str:
    """Return the key of the version that readers have, as anybody finds it who has delta-rs alone."""
    if not (root / "_current/_delta_log/00000000000000000000.json").exists():
        return FIRST
    rows = deltalake.DeltaTable(f"{root}/_current").to_pyarrow_table().to_pylist()
    return next((row["key"] for row in rows if row["name"] == FIRST), FIRST)


class Readers:
    """Read the current version by its name again and again, as anybody does who has delta-rs alone."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self.keys: Counter[str] = Counter()
        self.wrong: list[str] = []

    def read(self) -> None:
        key = current(self._root)
        keys = Counter(row["id"] for row in rows_in(str(self._root / "tables" / key)))
        twice, nowhere = [key for key, count in keys.items() if count > 1], [key for key in QUIET if key not in keys]
        self.wrong += [f"{key}: {twice} are there twice, {nowhere} not at all"] if twice or nowhere else []
        self.keys[key] += 1
        time.sleep(0.5)


@contextmanager
def again_and_again(*acts: Callable[[], None]) -> Iterator[None]:
    """Repeat acts beside the block, each in a thread of its own; raise what one of them raises."""
    stop, failed = threading.Event(), list[BaseException]()

    def repeat(act: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                act()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failed, failed


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    with postgres.serving() as server:
        with server.connected() as connection:
            connection.execute(CUSTOMERS.encode())
            connection.execute(
                b"INSERT INTO customers SELECT n, 'n' || n, n, NULL, true, timestamptz '2024-01-01Z' "
                b"+ (n - 1000) * interval '12 hours' FROM generate_series(1000, 1239) n"
            )
        yield server


def wait_until(done: Callable[[], bool], environment: Mapping[str, str]) -> None:
    until = time.monotonic() + 180
    while not done():
        assert time.monotonic() < until, Path(environment["DAGSTER_HOME"], "live.log").read_text()[-3000:]
        time.sleep(0.5)


def has_quiet_ones(root: str, key: str) -> bool:
    path = Path(root, "tables", key)
    return (path / "_delta_log").is_dir() and {*QUIET} <= {row["id"] for row in rows_in(str(path))}


def test_a_table_that_follows_a_database_is_rebuilt_beside_itself(server, tmp_path):
    """By week instead of month, in another zone, with wider amounts; writers, the capture and a cut-over die by kill -9."""
    dice = random.Random(11)
    environment = new_environment(tmp_path, server, ONE)
    root = environment["LAKEHOUSE_ROOT"]
    processes = {name: started(environment, *name) for name in (("capture", "shop"), ("live", FIRST))}
    readers = Readers(root)

    def start_again(*name: str) -> None:
        kill_group(processes[name])
        processes[name] = started(environment, *name)

    try:
        with psycopg.connect(server.address(), autocommit=True) as client:
            wait_until(lambda: has_quiet_ones(root, FIRST), environment)
            with again_and_again(lambda: change(client, dice), readers.read):
                define(tmp_path, BOTH)
                ran(environment, "version", "deploy", FIRST, "--empty")
                processes["live", SECOND] = started(environment, "live", SECOND)
                wait_until(lambda: has_quiet_ones(root, SECOND), environment)
                for _ in range(ROUNDS):
                    for name in [*processes]:
                        start_again(*name)
                    switch = started(environment, "version", "cutover", FIRST, "--reason", "wider")
                    time.sleep(dice.uniform(5, 25))
                    kill_group(switch)
                    ran(environment, "version", "cutover", FIRST, "--reason", "wider", *PATIENT)
                    ran(environment, "version", "rollback", FIRST, "--reason", "too early", *PATIENT)
            for process in processes.values():
                kill_group(process)
            ran(environment, "capture", "shop", "--once")
            for key in (FIRST, SECOND):
                ran(environment, "live", key, "--once")
            expected = multiset(postgres.rows_of(client, "customers"), COLUMNS)
    finally:
        for process in processes.values():
            kill_group(process)
    assert not readers.wrong
    assert min(readers.keys[FIRST], readers.keys[SECOND]) > 0, readers.keys
    for key in (FIRST, SECOND):
        assert multiset(rows_in(f"{root}/tables/{key}"), COLUMNS) == expected, key
    ran(environment, "version", "cutover", FIRST)
    ran(environment, "version", "retire", FIRST, "--yes", FIRST)
    assert "was retired" in ran(environment, "live", FIRST, "--once", code=2)
