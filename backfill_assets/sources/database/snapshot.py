"""One moment of a database, held by a connection of its own for as long as somebody reads it.

Every reader imports the same snapshot, so that all rows, and the counts that they are held against, are of one moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from backfill_assets.core.postgres.questions import BEGIN_SNAPSHOT, MOMENT, POSITION, REPLAYED, keep_table
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.errors import SourceUnavailableError
from backfill_assets.sources.database.catalog import relation_of
from backfill_assets.sources.database.connection import STATE, Database

if TYPE_CHECKING:
    import psycopg

_LOOK_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that a connection holds.

    Args:
        database: Where it was taken: the primary, or a replica.
        name: By which other sessions import it.
        moment: Which transactions it sees, as `pg_current_snapshot()` says it where it was taken.
        visible: Which transactions the primary saw as ended when it was taken, or before: a change of any other may
            be missing in what is read.
        position: Up to where in the log: nothing that was seen lies behind it. A replica may have got ahead of what
            the primary had when `visible` was asked, so it is the replica's own.
        taken_at: By the database's clock.
    """

    database: Database
    connection: psycopg.Connection
    name: str
    moment: str
    visible: str
    position: str
    taken_at: datetime

    def ask(self, query: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query, as they were at the moment; one that fails does not end it."""
        with self.database.failures_translated(), self.connection.transaction():
            return self.database.ask(self.connection, query, values)

    def close(self) -> None:
        """End the moment; readers that have begun end their query, others cannot begin."""
        self.connection.close()


def take_snapshot(source: DatabaseSpec, primary: Database, replica: Database | None) -> Snapshot:
    """Take a snapshot of the primary; or of a replica, once it has what the primary had before.

    Raises:
        SourceUnavailableError: The replica did not get there in time, somebody has locked the table, or nobody answers.
        SourceMissingError, SourceRefusedError: The table is not there, or may not be read.
    """
    if replica is None:
        return _taken(source, primary)
    return _taken(source, replica, primary_had=_what_has(primary))


def _what_has(primary: Database) -> tuple[str, str]:
    """Return up to where in its log a primary has come, and which transactions it sees."""
    with primary.connected() as connection:
        position, visible = primary.ask(connection, POSITION)[0]
    return position, visible


@contextmanager
def connected_to_rows(
    source: DatabaseSpec, primary: Database, replica: Database | None
) -> Iterator[tuple[Database, psycopg.Connection]]:
    """Open a connection to where rows are read: of a replica once it has what the primary had before.

    What is only looked at waits, too: a replica that is behind would say that nothing has changed.

    Raises:
        SourceUnavailableError: The replica did not get there in time, or nobody answers.
    """
    if replica is None:
        with primary.connected() as connection:
            yield primary, connection
        return
    position, _ = _what_has(primary)
    with replica.connected(is_replica=True) as connection:
        _wait_until_replayed(replica, connection, position, source.replica_wait_seconds)
        yield replica, connection


def _taken(source: DatabaseSpec, database: Database, primary_had: tuple[str, str] | None = None) -> Snapshot:
    connection = database.connect(is_replica=primary_had is not None)
    try:
        if primary_had:
            _wait_until_replayed(database, connection, primary_had[0], source.replica_wait_seconds)
        relation_of(database.about, source, database, connection)  # says in words what the lock would refuse
        for statement in (BEGIN_SNAPSHOT, keep_table(source)):
            database.run(connection, statement)
        name, moment, taken_at, position = database.ask(connection, MOMENT)[0]
    except BaseException:
        connection.close()
        raise
    visible = primary_had[1] if primary_had else moment
    return Snapshot(database, connection, name, moment, visible, position=position, taken_at=taken_at)


def _wait_until_replayed(
    database: Database,
    connection: psycopg.Connection,
    position: str,
    wait_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    until = clock() + wait_seconds
    while not database.ask(connection, REPLAYED, (position,))[0][0]:
        if clock() >= until:
            raise SourceUnavailableError(
                f"`{database.about}`: the replica of `{database.variable}` has not replayed `{position}` of the "
                f"primary's log after {wait_seconds:g} s.",
                state=STATE,
                remedy="See why it is behind; `source.replica_wait_seconds` says how long is waited for it.",
            )
        time.sleep(_LOOK_AGAIN_SECONDS)
