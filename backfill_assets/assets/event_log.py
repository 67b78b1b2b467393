"""Dagster's default SQLite event log, with kept connections and real batches. The same files, the same rows.

The default opens an engine and a connection for each call and commits each event: 6 to 18 ms apiece, so that a launch
of 1,096 partitions spends more time on its events than Spark does on the rows. Here each database keeps one connection,
a call inside a transaction joins it, and a batch of events is one transaction.

It can be switched on and off in `dagster.yaml` over an existing history at any time. It subclasses Dagster's own
storage and leans on names that are private there; `tests/assets/test_event_log.py` holds every row against what the
default writes, and is to be run with each new minor version of Dagster.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Self

from dagster import AssetCheckEvaluation, EventLogEntry, Field, StringSource
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sql import create_engine
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import bindparam, select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import QueuePool

from backfill_assets.errors import ConfigurationError

MAX_OPEN_SHARDS = 16
BATCHABLE = ASSET_EVENTS | ASSET_CHECK_EVENTS
BATCH_SIZE = "2500"
"""Events that Dagster hands over at once; more than a commit holds partitions."""


class BatchingSqliteEventLogStorage(SqliteEventLogStorage):
    """SQLite event log that writes many events of a run in one transaction."""

    def __init__(self, base_dir: str | None = None, inst_data: Any = None) -> None:
        self._lock = threading.RLock()
        self._engines: OrderedDict[str, Engine] = OrderedDict()  # by shard, least recently used first
        self._open: dict[str, Connection] = {}  # shards with a transaction in progress
        self._held: dict[str, list[EventLogEntry]] = {}  # by run, events that `batch` holds back
        self._tables: set[str] = set()
        self._pid = os.getpid()
        os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", BATCH_SIZE)  # without it Dagster hands over one by one
        super().__init__(base_dir or _default_base_dir(), inst_data)

    @classmethod
    def config_type(cls) -> Any:
        return {"base_dir": Field(StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> Self:
        return cls(inst_data=inst_data, **config_value)

    # -- connections -----------------------------------------------------------------------------------------------

    def _engine(self, shard: str) -> Engine:
        if self._pid != os.getpid():  # after a fork the parent's connections are not ours
            self._engines, self._open, self._held, self._pid = OrderedDict(), {}, {}, os.getpid()
        engine = self._engines.pop(shard, None)
        if engine is None:
            engine = create_engine(
                self.conn_string_for_shard(shard),
                poolclass=QueuePool,
                pool_size=1,
                connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
            )
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            idle = [name for name in self._engines if name not in self._open]
            for name in idle[: max(0, len(self._engines) + 1 - MAX_OPEN_SHARDS)]:
                self._engines.pop(name).dispose()
        self._engines[shard] = engine
        return engine

    @contextlib.contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._lock:
            if shard in self._open:  # a call inside a transaction joins it
                yield self._open[shard]
                return
            with self._engine(shard).connect() as connection:
                with connection.begin():
                    self._open[shard] = connection
                    try:
                        yield connection
                        wrote = connection.connection.driver_connection.in_transaction  # type: ignore[union-attr] (it is open)
                    finally:
                        del self._open[shard]
                if wrote and shard != INDEX_SHARD_NAME:
                    # A kept connection leaves new rows in the -wal file; the UI watches the .db file.
                    os.utime(self.path_for_shard(shard))

    def has_table(self, table_name: str) -> bool:
        """Say whether a table exists; asked for each check event, so remembered."""
        if table_name not in self._tables:
            with self._connect(INDEX_SHARD_NAME) as connection:
                if not connection.dialect.has_table(connection, table_name):
                    return False
            self._tables.add(table_name)
        return True

    # -- writing ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def batch(self, run_id: str) -> Iterator[None]:
        """Hold back a run's asset and check events, and write them in one transaction at the end."""
        with self._lock:
            is_outermost = run_id not in self._held
            self._held.setdefault(run_id, [])
        try:
            yield
        finally:
            if is_outermost:
                with self._lock:
                    try:
                        self._flush(run_id)
                    finally:  # also of a full disk: what comes next is not held back for ever
                        self._held.pop(run_id, None)

    def store_event(self, event: EventLogEntry) -> None:
        """Store one event, or hold it back inside `batch`; any other event of the run lets the held ones out first."""
        with self._lock:
            if event.run_id in self._held:
                if event.is_dagster_event and event.dagster_event_type in BATCHABLE:
                    self._held[event.run_id].append(event)
                    return
                self._flush(event.run_id)
            super().store_event(event)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store many events, those of one run in one transaction."""
        by_run: defaultdict[str, list[EventLogEntry]] = defaultdict(list)
        for event in events:
            by_run[event.run_id].append(event)
        for run_id, of_run in by_run.items():
            with self._lock:
                if all(e.is_dagster_event and e.dagster_event_type in BATCHABLE for e in of_run):
                    if run_id in self._held:
                        self._flush(run_id)
                    self._write(run_id, of_run)
                else:
                    for event in of_run:
                        self.store_event(event)

    def _flush(self, run_id: str) -> None:
        events, self._held[run_id] = self._held.get(run_id, []), []
        self._write(run_id, events)

    def _write(self, run_id: str, events: Sequence[EventLogEntry]) -> None:
        if not events:
            return
        rows = [self._event_to_row(event) for event in events]
        insert = SqlEventLogStorageTable.insert()
        with self._connect(run_id) as run, self._connect(INDEX_SHARD_NAME) as index:  # the index commits first
            run.execute(insert, rows)
            returning = insert.returning(SqlEventLogStorageTable.c.id, sort_by_parameter_order=True)
            numbered = list(zip(events, index.execute(returning, rows).scalars(), strict=True))
            assets = [(event, number) for event, number in numbered if event.dagster_event_type in ASSET_EVENTS]
            if assets:
                self._store_asset_event_tags(index, [event for event, _ in assets], [number for _, number in assets])
            newest = {(e.dagster_event.asset_key, e.dagster_event_type): (e, n) for e, n in assets if e.dagster_event}
            for event, number in newest.values():  # an asset's own row shows its newest event only
                self._store_asset_event(index, event, number)
            evaluated = self._store_evaluations(index, run_id, zip(numbered, rows, strict=True))
            for event, number in numbered:
                if event.dagster_event_type in ASSET_CHECK_EVENTS and number not in evaluated:
                    self.store_asset_check_event(event, number)  # joins this transaction

    def _store_evaluations(
        self, index: Connection, run_id: str, stored: Iterable[tuple[tuple[EventLogEntry, int], Mapping[str, Any]]]
    ) -> AbstractSet[int]:
        """Give planned checks their verdicts, all at once; Dagster does it one by one, in a millisecond each.

        Args:
            stored: Events with their numbers, and the rows that they are.

        Returns:
            The numbers of those that were planned. Any other is left to Dagster.
        """
        if not run_id or not self.supports_asset_checks:  # Dagster adds those of no run, and says how to migrate
            return set()
        given: list[dict[str, Any]] = []
        planned: dict[tuple[str, str], dict[str | None, int]] = {}
        for (event, number), row in stored:
            found = event.dagster_event.event_specific_data if event.dagster_event else None
            if not isinstance(found, AssetCheckEvaluation):
                continue
            check = found.asset_key.to_string(), found.check_name
            if check not in planned:
                planned[check] = _planned(index, run_id, *check)
            if found.partition not in planned[check]:
                continue
            target = found.target_materialization_data
            status = (
                AssetCheckExecutionRecordStatus.SUCCEEDED if found.passed else AssetCheckExecutionRecordStatus.FAILED
            )
            given.append(
                {
                    "of": planned[check][found.partition],
                    "status": status.value,
                    "event": row["event"],
                    "at": row["timestamp"],
                    "number": number,
                    "target": target.storage_id if target else None,
                }
            )
        if given:
            index.execute(_GIVE_VERDICT, given)
        return {each["number"] for each in given}

    # -- closing ---------------------------------------------------------------------------------------------------

    def wipe(self) -> None:
        """Delete everything."""
        self._close()
        super().wipe()

    def dispose(self) -> None:
        """Close every connection."""
        super().dispose()
        self._close()

    def _close(self) -> None:
        with self._lock:
            while self._engines:
                self._engines.popitem()[1].dispose()


_GIVE_VERDICT = (
    AssetCheckExecutionsTable.update()
    .where(AssetCheckExecutionsTable.c.id == bindparam("of"))
    .values(
        execution_status=bindparam("status"),
        evaluation_event=bindparam("event"),
        evaluation_event_timestamp=bindparam("at"),
        evaluation_event_storage_id=bindparam("number"),
        materialization_event_storage_id=bindparam("target"),
    )
)


def _planned(index: Connection, run_id: str, asset_key: str, check_name: str) -> dict[str | None, int]:
    """Return the row of each partition that a run has planned a check of, or has checked already."""
    rows = AssetCheckExecutionsTable.c
    of_run = (rows.asset_key == asset_key) & (rows.check_name == check_name) & (rows.run_id == run_id)
    found = index.execute(select(rows.partition, rows.id).where(of_run)).all()
    times = Counter(partition for partition, _ in found)
    return {partition: row for partition, row in found if times[partition] == 1}


def _default_base_dir() -> str:
    """Return where Dagster's own default storage keeps its files."""
    home = os.environ.get("DAGSTER_HOME")
    if not home:
        raise ConfigurationError(
            "DAGSTER_HOME is not set, so Dagster has no place for its history.",
            state="Nothing was run.",
            remedy="Start from the project's folder after `make setup`, or `export DAGSTER_HOME=$PWD/.dagster`.",
        )
    return str(Path(home) / "history" / "runs")
