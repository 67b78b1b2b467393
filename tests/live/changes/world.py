"""A database with customers, a capture of its changes, and the table that is kept up to date with them."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.outcomes import Outcome
from backfill_assets.core.live.feed import FeedFile, from_lsn
from backfill_assets.core.postgres import questions
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes import feed
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.feed import FeedReader
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.live.changes.moments import FollowedDatabase
from backfill_assets.live.changes.refresh import Refresh, Refreshed
from backfill_assets.live.changes.table import ChangesTable
from backfill_assets.sources.context import SourceContext
from backfill_assets.sources.database.connection import Database
from backfill_assets.sources.database.source import build
from tests.support import postgres
from tests.support.shop import launch, multiset, opened

CUSTOMERS = """
CREATE TABLE customers (
  id bigint PRIMARY KEY, name text, balance numeric(18,2), note text, active boolean, signed_up timestamptz NOT NULL
);
CREATE INDEX ON customers (signed_up);
ALTER TABLE customers ALTER note SET STORAGE EXTERNAL;
ALTER TABLE customers REPLICA IDENTITY FULL;
"""
"""Notes are not compressed: those longer than 2 kB lie outside of their rows, and are sent only if they have changed."""

SOME_CUSTOMERS = (
    "INSERT INTO customers SELECT n, 'customer ' || n, n, NULL, n % 2 = 0, "
    "timestamptz '2024-01-01 00:00Z' + (n % 120) * interval '1 hour' FROM generate_series(1, 240) n"
)
COLUMNS = {
    "id": "bigint not null", "name": "string", "balance": "decimal(18,2)", "note": "string", "active": "boolean",
    "signed_up": "timestamp not null",
}  # fmt: skip
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05")


def customers_spec(variable: str, capture: str, **changes: Any) -> TableSpec:
    feed: dict[str, Any] = {"capture": capture, "backfill": "manual", **changes.pop("changes", {})}
    feed |= {} if feed["backfill"] == "excluded" else {"wait_seconds": feed.get("wait_seconds", 30)}
    facts: dict[str, Any] = {
        "key": "bronze/customers",
        "columns": COLUMNS,
        "key_columns": ["id"],
        "event_time": "signed_up",
        "grain": "daily",
        "start": DAYS[0],
        "source": {"kind": "jdbc", "connection": variable, "table": "customers"},
        "changes": feed,
    }
    return TableSpec(**{**facts, **changes})


@dataclass
class World:
    """One database, its capture and the table.

    Args:
        folder: Where the capture's files land.
    """

    spark: SparkSession
    server: postgres.Server
    name: str
    spec: TableSpec
    capture: Capture
    lake: LakeTable
    folder: Path
    log: list[str] = field(default_factory=list)

    @property
    def partitions(self) -> list[Partition]:
        return self.spec.grid.between(DAYS[0], DAYS[-1])

    @property
    def source(self) -> FollowedDatabase:
        """A source that has seen nothing yet."""
        context = SourceContext(self.spec, self.spark, str)
        database = build(self.spec.source, context)
        reader = FeedReader(ChangesTable(self.spark, self.spec, self.lake.path), database, self.folder)
        assert self.spec.changes is not None
        return FollowedDatabase(self.spec, self.spec.changes, database, reader, self.lake, log=self.log.append)

    def begin_feed(self, then: datetime) -> None:
        """Read what has landed for the first time, as if it were another time: what begins after it is no past."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(feed, "datetime", SimpleNamespace(now=then.astimezone))
            assert self.source.reader.read()

    def refresh(self) -> Refresh:
        return Refresh(self.source, self.log.append)

    def land(self) -> None:
        """Land what the server has by now."""
        self.capture.run(once=True, pause_seconds=0.05, stop=threading.Event())

    def bring_up(self) -> Refreshed:
        """Land and fold in everything."""
        self.land()
        return self.refresh().once()

    def launch(self, partitions: Sequence[Partition] | None = None, **how: Any) -> list[Outcome]:
        """Launch beside a capture that runs as long as that takes."""
        with self.capturing():
            return self.launch_now(partitions, **how)

    def launch_now(self, partitions: Sequence[Partition] | None = None, **how: Any) -> list[Outcome]:
        source = how.pop("source", None) or self.source
        return launch(self.lake, source, partitions or self.partitions, log=self.log.append, **how)

    @contextmanager
    def capturing(self, pause_seconds: float = 0.05) -> Iterator[None]:
        """Let the capture run in the background; so long it lets changes come together in a file."""
        stop, failures = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                self.capture.run(once=False, pause_seconds=pause_seconds, stop=stop)
            except BaseException as error:  # noqa: BLE001 (raised below)
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    def capture_has_landed(self) -> None:
        """Return when a capture that runs has landed what the server has by now."""
        with self.server.connected() as connection:
            until = from_lsn(connection.execute(questions.FLUSHED).fetchone()[0])
        gives_up = time.monotonic() + 60
        while (
            max((file.end for path in self.folder.iterdir() if (file := FeedFile.named(path.name))), default=0) < until
        ):
            assert time.monotonic() < gives_up, "the capture has landed nothing for a minute"
            time.sleep(0.05)

    def execute(self, *statements: str) -> None:
        with self.server.connected(self.name) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, table: str = "customers") -> Counter[tuple[Any, ...]]:
        """The database's rows."""
        with self.server.connected(self.name) as connection:
            found = postgres.rows_of(connection, table)
        return multiset(found, COLUMNS)

    def content(self, version: int | None = None) -> Counter[tuple[Any, ...]]:
        """The table's rows, as delta-rs reads them."""
        return multiset(opened(self.lake.path, version).to_pyarrow_table().to_pylist(), COLUMNS)

    def keys_by_version(self) -> Mapping[int, Counter[Any]]:
        """How often each key was in each version of the table."""
        newest = opened(self.lake.path).version()
        return {v: Counter(row[0] for row in self.content(v).elements()) for v in range(newest + 1)}


def new_world(spark: SparkSession, root: Path, *, server: postgres.Server | None = None, **spec: Any) -> World:
    """Make a database with customers on five days, a capture that has not run, and no table."""
    name, variable = postgres.new_database()
    server = server or postgres.shared_server()
    os.environ[variable] = server.new_database(name)
    with server.connected(name) as connection:
        connection.execute(CUSTOMERS.encode())
        connection.execute(SOME_CUSTOMERS)
    table = customers_spec(variable, name, **spec)
    folder = root / "landing" / "changes" / name
    database = Database.of_a_capture(variable, name)
    tables = [CaptureTable("public", "customers", keys=frozenset({("id",)}))]
    capture = Capture(name, database, tables, folder, heartbeat_seconds=0.1)
    log: list[str] = []
    lake = LakeTable(spark, table, f"{root}/tables/bronze/customers", log.append)
    return World(spark, server, name, table, capture, lake, folder, log)


# -- load --------------------------------------------------------------------------------------------------------------


_REST = 4
"""So many times as long as a transaction took a client rests after it: a slow machine is not made slower by more changes."""


class Load:
    """Clients that change customers in every way there is, as fast as they can.

    Args:
        seed: Of what they do; not of when.
    """

    def __init__(self, world: World, seed: int, clients: int = 2) -> None:
        self.world = world
        self.transactions = 0
        self._ended = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._client, args=(random.Random(1000 * seed + n), n)) for n in range(clients)
        ]
        self._threads.append(threading.Thread(target=self._slow_client, args=(random.Random(1000 * seed + 99),)))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _client(self, dice: random.Random, number: int) -> None:
        try:
            with psycopg.connect(self.world.server.address(self.world.name), autocommit=True) as connection:
                while not self._ended.is_set():
                    began = time.monotonic()
                    self._transaction(connection, dice, number)
                    self.transactions += 1
                    self._ended.wait(dice.uniform(0, 0.15) + _REST * (time.monotonic() - began))
        except BaseException as error:  # noqa: BLE001 (raised at the end)
            self._failures.append(error)

    def _slow_client(self, dice: random.Random) -> None:
        """Hold transactions open for as long as a launch needs for its snapshot, and end them after it."""
        try:
            with psycopg.connect(self.world.server.address(self.world.name)) as connection:
                while not self._ended.is_set():
                    for _ in range(5):
                        self._statement(connection, dice, 9, may_wait=False)
                        self._ended.wait(dice.uniform(0, 0.4))
                    connection.commit() if dice.random() < 0.8 else connection.rollback()
        except BaseException as error:  # noqa: BLE001 (raised at the end)
            self._failures.append(error)

    def _transaction(self, connection: psycopg.Connection, dice: random.Random, number: int) -> None:
        try:
            with connection.transaction(force_rollback=dice.random() < 0.1):
                for _ in range(dice.choice([1, 1, 1, 3, 8])):
                    if dice.random() < 0.15:
                        with connection.transaction(force_rollback=dice.random() < 0.5):  # a savepoint
                            self._statement(connection, dice, number)
                    self._statement(connection, dice, number)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            pass  # somebody else was there first: nothing has happened

    def _statement(
        self, connection: psycopg.Connection, dice: random.Random, number: int, *, may_wait: bool = True
    ) -> None:
        """Insert, update any column, the key and the partition's too, delete, insert again what was deleted."""
        key = dice.randrange(1, 300) if may_wait else dice.randrange(100_000, 100_050)
        at = f"2024-01-0{dice.randint(1, 5)} {dice.randrange(24):02d}:{dice.randrange(60):02d}:00.{number:06d}Z"
        value = dice.randrange(100_000)
        large = dice.choice([None, "x" * 9_000, "é" * 50, ""])
        match dice.choice("iuuuunkpd"):
            case "i":
                connection.execute(
                    "INSERT INTO customers VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET name = 'again'",
                    (key, f"new {number}", value, large, dice.random() < 0.5, at),
                )
            case "u":
                connection.execute("UPDATE customers SET balance = %s WHERE id = %s", (value, key))
            case "n":
                connection.execute("UPDATE customers SET note = %s, active = NULL WHERE id = %s", (large, key))
            case "k" if may_wait:
                connection.execute("UPDATE customers SET id = %s WHERE id = %s", (dice.randrange(1, 300), key))
            case "p":
                connection.execute("UPDATE customers SET signed_up = %s WHERE id = %s", (at, key))
            case _:
                connection.execute("DELETE FROM customers WHERE id = %s", (key,))
