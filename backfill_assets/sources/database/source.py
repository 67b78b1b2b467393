"""`kind: jdbc`: history in a table of a PostgreSQL database.

Each chunk is read in one snapshot of the database: its rows, how many there are, and what is wrong with any of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.calendar.windows import midnight_utc
from backfill_assets.core.history.audit import Evidence, Finding
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.postgres import questions, sql
from backfill_assets.core.postgres.queries import TableQueries
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.schema.postgres import DatabaseColumn, misfits, observed
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError, UnreadableSourceError
from backfill_assets.sources.context import SourceContext
from backfill_assets.sources.database.catalog import refuse_no_instants, relation_of, size_of
from backfill_assets.sources.database.connection import Database
from backfill_assets.sources.database.moment import DatabaseMoment, unreadable
from backfill_assets.sources.database.snapshot import Snapshot, connected_to_rows, take_snapshot
from backfill_assets.sources.database.stretches import stretches
from backfill_assets.sources.database.unreadable import Ask, ByPartition
from backfill_assets.sources.database.values import columns_of, typed_rows
from backfill_assets.spark.failures import translated

if TYPE_CHECKING:
    import psycopg


def build(source: DatabaseSpec, context: SourceContext) -> DatabaseSource:
    """Return the table that a spec names."""
    return DatabaseSource(context.spark, context.spec, source, context.log)


@dataclass(slots=True)
class DatabaseSource(Source[DataFrame]):
    """A table of a PostgreSQL database."""

    spark: SparkSession
    spec: TableSpec
    source: DatabaseSpec
    log: Callable[[str], None] = lambda _: None
    _primary: Database = field(init=False)
    _replica: Database | None = field(init=False)
    _snapshot: Snapshot | None = field(default=None, init=False)
    _foretold: dict[str, Evidence] = field(default_factory=dict[str, Evidence], init=False)
    _unreadable: dict[tuple[str, str], Finding] = field(default_factory=dict[tuple[str, str], Finding], init=False)

    def __post_init__(self) -> None:
        about, timeout = self.spec.key, self.source.statement_timeout_seconds
        self._primary = Database(self.source.connection, about, timeout, log=self.log)
        self._replica = replace(self._primary, variable=self.source.replica) if self.source.replica else None

    def complete_until(self) -> datetime | None:
        """Return the database's own time, or what the spec says: partitions that have ended by then are complete."""
        if self.source.complete_until:
            return midnight_utc(self.source.complete_until, self.spec.grid.zone)
        with self._connected() as (database, connection):
            now: datetime = database.ask(connection, questions.NOW)[0][0]
            return now.astimezone(UTC)

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the catalog; say what is left out, and what makes reading slow.

        Raises:
            SchemaMismatchError: A column is missing or of another type, or rows have no event time.
        """
        with self._connected() as (database, connection):
            oid = self._relation(database, connection)
            have = self._columns(database, connection, oid)
            self._refuse_misfits(have)
            remarks: list[str] = []
            if ignored := [column.name for column in have if column.name not in self.spec.columns]:
                remarks.append(f"`{self.spec.key}`: the database also has {ignored}, which the spec does not name.")
            if not database.ask(connection, questions.LEADING_INDEX, (oid, self.spec.event_time))[0][0]:
                remarks.append(
                    f"`{self.spec.key}`: no index of `{self.source.table}` starts with `{self.spec.event_time}`, so "
                    "each chunk reads the whole table."
                )
            queries = TableQueries(self.spec, self.source, {column.name: column for column in have})
            nowhere = database.ask(connection, queries.rows_without_event_time())[0][0]
        lacking = f"`{self.spec.event_time}` of the years 1 to 9999"
        if nowhere and self.source.without_event_time == "refused":
            raise SchemaMismatchError(
                f"`{self.spec.key}`: {nowhere:,} rows of `{self.source.table}` lie in no partition: they have no "
                f"{lacking}.",
                state=NOTHING_WRITTEN,
                remedy="Give them one in the database, or leave them out with `without_event_time: ignored`.",
            )
        if nowhere:
            remarks.append(f"`{self.spec.key}`: {nowhere:,} rows without {lacking} are left out.")
        return remarks

    def observed_columns(self) -> list[Observed]:
        """Return the columns as they are now."""
        return [Observed("", observed(self.spec.columns, self.columns()))]

    def columns(self) -> list[DatabaseColumn]:
        """Return the database's columns as its catalog has them now."""
        with self._connected() as (database, connection):
            return self._columns(database, connection, self._relation(database, connection))

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return how many rows each partition has and a sum over the transactions that wrote them.

        An insert, an update and a delete all change it. What is read is the event time alone; sizes are estimated by
        the catalog's.
        """
        with self._connected() as (database, connection):
            oid = self._relation(database, connection)
            queries = self._queries(database, connection, oid)
            size = size_of(database, connection, oid)
            written = self._written(queries, partitions, lambda query: database.ask(connection, query))
        self._foretold.update({key: self._evidence(key, *found) for key, found in written.items()})
        row_bytes = size.data_bytes / size.rows if size.rows else 0
        return {key: Survey(fingerprint, int(row_bytes * rows)) for key, (rows, fingerprint) in written.items()}

    def _written(self, queries: TableQueries, partitions: Sequence[Partition], ask: Ask) -> dict[str, tuple[int, str]]:
        """Return how many rows each partition has, and a digest of its columns and of who wrote them."""
        columns = " ".join(f"{name} {queries.have[name].number} {queries.have[name].base}" for name in queries.read)
        found = {partition.key: (0, "no rows") for partition in partitions}
        asked = ByPartition(queries, ask)
        for key, (rows, written) in asked.answers(queries.fingerprints, partitions):
            digest = hashlib.sha256(f"{rows}:{written}:{columns}".encode()).hexdigest()[:16]
            found[key] = rows, digest
        for key, finding in asked.findings.items():
            found[key] = 0, "unreadable"
            self._unreadable[key, "unreadable"] = finding
        return found

    def foretell(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Mapping[str, Evidence]:
        """Return how many rows each partition had when it was surveyed last, and whether they can be read."""
        del surveys
        return {p.key: self._foretold[p.key] for p in partitions if p.key in self._foretold}

    def _evidence(self, key: str, rows: int, fingerprint: str) -> Evidence:
        """Return what is known of a partition with a fingerprint; rows that cannot be read are not counted."""
        finding = self._unreadable.get((key, fingerprint))
        return Evidence(None, (finding,)) if finding else Evidence(rows)

    def with_keys(self, partitions: Sequence[Partition], first: str, last: str) -> dict[str, int]:
        """Return how many rows with a key between two, both included, each partition has, by partition key."""
        return self._count(partitions, lambda queries, span: queries.with_keys(span, first, last))

    def modified_since(self, partitions: Sequence[Partition], since: datetime) -> dict[str, int]:
        """Return how many rows of each partition were written since an instant, by partition key.

        Raises:
            SchemaMismatchError: The column that is to say it is not there, or says no instant.
        """

        def query(queries: TableQueries, span: sql.Span) -> str:
            refuse_no_instants(self.spec.key, self.source, queries.have)
            return queries.modified_since(span, self.source.modified_at or "", since)

        return self._count(partitions, query)

    def _count(self, partitions: Sequence[Partition], query: Callable[[TableQueries, sql.Span], str]) -> dict[str, int]:
        found: dict[str, int] = {}
        with self._connected() as (database, connection):
            queries = self._queries(database, connection, self._relation(database, connection))
            for run in runs_of(sorted(partitions)):
                (span,) = sql.spans(self.spec, run)
                found |= {run[n - 1].key: rows for n, rows in database.ask(connection, query(queries, span))}
        return found

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        """Prepare the one read of these partitions, in a snapshot that is taken now and held until it is released.

        What was surveyed plays no part: the snapshot may be newer, never older.
        """
        self._release()
        snapshot = take_snapshot(self.source, self._primary, self._replica)
        self._snapshot = snapshot
        try:
            with translated(self.spec.key):
                return self._scan_of(snapshot, sorted(partitions))
        except UnreadableSourceError:
            self._release()
            if self.set_aside_unreadable(surveys):
                return self.scan(partitions, surveys)
            raise
        except BaseException:
            self._release()
            raise

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out which partitions the database cannot read; scans leave them out as long as they are as they are.

        Raises:
            SourceRefusedError: It lets nothing of the table be read.
        """
        partitions, known = [self.spec.grid.partition(key) for key in surveys], len(self._unreadable)
        with self._connected() as (database, connection):
            queries = self._queries(database, connection, self._relation(database, connection))
            asked = ByPartition(queries, partial(database.ask, connection))
            written = self._written(queries, partitions, asked.ask)
            readable = [p for p in partitions if (p.key, written[p.key][1]) not in self._unreadable]
            list(asked.answers(queries.sums, readable))
        self._unreadable.update({(key, written[key][1]): finding for key, finding in asked.findings.items()})
        return len(self._unreadable) > known

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Name rows that cannot be what the spec says, in the snapshot in which they were read."""
        rows = {key: tally.unreadable_rows for key, tally in suspects.items() if tally.unreadable_rows}
        if not rows or self._snapshot is None:
            return {}
        return unreadable(self._snapshot, self._queries_in(self._snapshot), rows)

    def take_moment(self) -> DatabaseMoment:
        """Take a snapshot of the primary, be there a replica or not: it alone knows which transactions were open."""
        snapshot = take_snapshot(self.source, self._primary, None)
        try:
            return DatabaseMoment(snapshot, self._queries_in(snapshot), self._scan_of)
        except BaseException:
            snapshot.close()
            raise

    def turn(self) -> AbstractContextManager[bool]:
        """Say whether no other table of the database is reading its past by itself, and keep it so for a block."""
        return self._primary.turn()

    # -- the catalog -----------------------------------------------------------------------------------------------

    def _connected(self) -> AbstractContextManager[tuple[Database, psycopg.Connection]]:
        """Open a connection to where rows are read, a replica as soon as it has what the primary has now."""
        return connected_to_rows(self.source, self._primary, self._replica)

    def _relation(self, database: Database, connection: psycopg.Connection) -> int:
        return relation_of(self.spec.key, self.source, database, connection)

    def _columns(self, database: Database, connection: psycopg.Connection, oid: int) -> list[DatabaseColumn]:
        return [
            DatabaseColumn(name, base, declared, category=category, number=number)
            for name, base, declared, category, number in database.ask(connection, questions.COLUMNS, (oid,))
        ]

    def _queries_in(self, snapshot: Snapshot) -> TableQueries:
        database, connection = snapshot.database, snapshot.connection
        return self._queries(database, connection, self._relation(database, connection))

    def _queries(self, database: Database, connection: psycopg.Connection, oid: int) -> TableQueries:
        have = self._columns(database, connection, oid)
        self._refuse_misfits(have)
        return TableQueries(self.spec, self.source, {column.name: column for column in have})

    def _refuse_misfits(self, have: Sequence[DatabaseColumn]) -> None:
        named = {column.name: column for column in have}
        zone_is_known = self.source.timestamps_without_zone is not None
        required = self.spec.required_columns
        problems = list(misfits(self.spec.columns, named, zone_is_known=zone_is_known, required=required))
        if problems:
            raise SchemaMismatchError(
                f"`{self.spec.key}`: `{self.source.table}` does not have what the spec names: {'; '.join(problems)}.",
                state=NOTHING_WRITTEN,
                remedy=f"Change the columns of the spec; `backfill-assets schema {self.spec.key}` proposes them.",
                problems=problems,
            )

    # -- the read --------------------------------------------------------------------------------------------------

    def _scan_of(self, snapshot: Snapshot, partitions: Sequence[Partition]) -> Scan[DataFrame]:
        queries = self._queries_in(snapshot)
        written = self._written(queries, partitions, snapshot.ask)
        evidence = {key: self._evidence(key, *found) for key, found in written.items()}
        rows = {key: said.raw_rows or 0 for key, said in evidence.items()}
        sizes = [((sql.begin_of(self.spec, p), sql.end_of(self.spec, p)), rows[p.key]) for p in partitions]
        position: dict[str, Any] = {
            "kind": "jdbc",
            "table": self.source.table,
            "rows": sum(rows.values()),
            "snapshot": snapshot.visible,
            "position": snapshot.position,
            "taken_at": snapshot.taken_at.astimezone(UTC).isoformat(timespec="milliseconds"),
            **({"replica": True} if self._replica else {}),
        }
        read = [size for size in sizes if size[1]]

        def places(span: tuple[sql.Bound, sql.Bound], pieces: int) -> Sequence[str]:
            return snapshot.ask(queries.places(sql.Stretch(*span), pieces))[0][0]

        # beside broken rows each partition is read alone: a query over several may go through the whole table
        alone = any(said.findings for said in evidence.values())
        groups = [[size] for size in read] if alone else [read]
        spans = [span for group in groups for span in stretches(group, self.source.rows_per_read, places)]
        return Scan(
            self._frame(snapshot, queries, partitions, spans),
            position,
            evidence,
            {-number: partition.key for number, partition in enumerate(partitions, start=1)},
            release=self._release,
            is_of_one_moment=True,
            fingerprints={key: fingerprint for key, (_, fingerprint) in written.items()},
        )

    def _frame(
        self,
        snapshot: Snapshot,
        queries: TableQueries,
        partitions: Sequence[Partition],
        spans: Sequence[sql.Stretch],
    ) -> DataFrame:
        """Describe the read, as many queries as there are stretches, and no more at once than the spec lets."""
        if not spans:
            return self.spark.createDataFrame([], columns_of(self.spec))
        url, settings = snapshot.database.for_spark(snapshot.connection, snapshot.name, self.source.fetch_rows)
        begins = [sql.begin_of(self.spec, partition) for partition in partitions]
        rows = self.spark.read.jdbc(
            url, queries.rows(begins), predicates=[queries.stretch(span) for span in spans], properties=settings
        )
        kept = rows.coalesce(min(len(spans), self.source.parallel_reads))
        return typed_rows(self.spec, queries.read, kept, snapshot.moment)

    def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()
