"""What a database's catalog says of one table, without reading any of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.core.postgres import questions
from backfill_assets.core.postgres_names import as_typed
from backfill_assets.core.schema.postgres import DatabaseColumn
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError, SourceMissingError, SourceRefusedError
from backfill_assets.sources.database.connection import Database

if TYPE_CHECKING:
    import psycopg

_TABLES = ("r", "p")
"""What `pg_class` calls a table, and one in parts."""


@dataclass(frozen=True, slots=True)
class CatalogSize:
    """How large a table is, with all of its parts.

    Args:
        rows: By its newest `ANALYZE`; None if it never had one.
        data_bytes: Of its rows, large values included.
    """

    rows: int | None
    data_bytes: int
    index_bytes: int


def catalog_size(spec: TableSpec, source: DatabaseSpec) -> CatalogSize:
    """Return how large the database's table is: where launches read it, in one question to the catalog.

    Raises:
        SourceUnavailableError, SourceRefusedError, SourceMissingError, ConfigurationError: It does not say.
    """
    database = Database(source.replica or source.connection, spec.key, source.statement_timeout_seconds)
    with database.connected(is_replica=source.replica is not None) as connection:
        return size_of(database, connection, relation_of(spec.key, source, database, connection))


def sends_whole_rows(spec: TableSpec, source: DatabaseSpec) -> bool:
    """Return whether the database sends with each change what all of the row was before.

    Raises:
        SourceUnavailableError, SourceRefusedError, SourceMissingError, ConfigurationError: It does not say.
    """
    database = Database(source.connection, spec.key, source.statement_timeout_seconds)
    with database.connected() as connection:
        oid = relation_of(spec.key, source, database, connection)
        return bool(database.ask(connection, questions.SENDS_WHOLE_ROWS, {"oid": oid})[0][0])


def unique_columns(spec: TableSpec, source: DatabaseSpec) -> list[list[str | None]]:
    """Return the columns of each index by which no two rows of the table are the same; an expression in one is None.

    Raises:
        SourceUnavailableError, SourceRefusedError, SourceMissingError, ConfigurationError: It does not say.
    """
    database = Database(source.connection, spec.key, source.statement_timeout_seconds)
    with database.connected() as connection:
        oid = relation_of(spec.key, source, database, connection)
        return database.ask(connection, questions.UNIQUE_COLUMNS, (oid,))[0][0]


def parts_of(spec: TableSpec, source: DatabaseSpec) -> list[tuple[str, str]]:
    """Return schema and name of the tables that the table consists of; none if it is one by itself.

    Raises:
        SourceUnavailableError, SourceRefusedError, SourceMissingError, ConfigurationError: It does not say.
    """
    database = Database(source.connection, spec.key, source.statement_timeout_seconds)
    with database.connected() as connection:
        return database.ask(connection, questions.PARTS, (relation_of(spec.key, source, database, connection),))


def size_of(database: Database, connection: psycopg.Connection, oid: int) -> CatalogSize:
    """Return how large the table of a number is."""
    rows, data_bytes, index_bytes = database.ask(connection, questions.SIZE, {"oid": oid})[0]
    return CatalogSize(rows, data_bytes, index_bytes)


def relation_of(about: str, source: DatabaseSpec, database: Database, connection: psycopg.Connection) -> int:
    """Return a table's number in the catalog.

    Raises:
        SourceMissingError: There is none.
        SourceRefusedError: It is not a table, or this user may not read it.
    """
    found = database.ask(connection, questions.RELATION, source.schema_and_name)
    if not found:
        raise SourceMissingError(
            f"`{about}`: the database of `{database.variable}` has no table `{source.table}`.",
            state=NOTHING_WRITTEN,
            remedy="Correct `source.table`; names are as the catalog has them, in small letters unless quoted.",
        )
    oid, kind, may_read = found[0]
    if kind not in _TABLES:
        raise SourceRefusedError(
            f"`{about}`: `{source.table}` is not a table of its own: a view or a foreign table cannot "
            "say when its rows changed.",
            state=NOTHING_WRITTEN,
            remedy="Name the table behind it.",
        )
    if not may_read:
        schema, user = source.schema_and_name[0], as_typed(connection.info.user)
        raise SourceRefusedError(
            f"`{about}`: the user `{connection.info.user}` may not read `{source.table}`.",
            state=NOTHING_WRITTEN,
            remedy=f"`GRANT USAGE ON SCHEMA {as_typed(schema)} TO {user}; "
            f"GRANT SELECT ON {as_typed(*source.schema_and_name)} TO {user};`",
        )
    return oid


def refuse_no_instants(about: str, source: DatabaseSpec, have: Mapping[str, DatabaseColumn]) -> None:
    """Raise if the column that is to say when a row was modified is not there, or does not say an instant.

    Args:
        have: The database's columns by name.
    """
    column = have.get(source.modified_at or "")
    if column is None or column.base not in ("timestamp", "timestamptz"):
        raise SchemaMismatchError(
            f"`{about}`: `{source.table}` has no column `{source.modified_at}` that holds instants.",
            state=NOTHING_WRITTEN,
            remedy="Correct `source.modified_at`.",
        )
    if column.base == "timestamp" and source.timestamps_without_zone is None:
        raise SchemaMismatchError(
            f"`{about}`: `{column.name}` of `{source.table}` is a local time, and nobody says of where.",
            state=NOTHING_WRITTEN,
            remedy="Say in which zone it is: `source.timestamps_without_zone`.",
        )
