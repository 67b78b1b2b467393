"""How large tables are, by the catalog: before and after it knows, in parts, and in which order they are told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.commands.estimate import TableEstimate, estimates
from backfill_assets.core.history.estimate import Prices
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import SourceMissingError
from backfill_assets.sources.database.catalog import CatalogSize, catalog_size
from tests.support import postgres
from tests.support.shop import orders_spec

TABLES = """
CREATE TABLE small (order_id bigint, customer text, amount numeric, ordered_at timestamptz);
CREATE TABLE large (LIKE small);
CREATE INDEX ON large (ordered_at);
CREATE TABLE parted (LIKE small) PARTITION BY RANGE (ordered_at);
CREATE TABLE early PARTITION OF parted FOR VALUES FROM ('2024-01-01Z') TO ('2024-01-02Z');
CREATE TABLE later PARTITION OF parted FOR VALUES FROM ('2024-01-02Z') TO ('2024-01-03Z');
"""
FILL = "INSERT INTO {} SELECT n, 'x', n, timestamptz '2024-01-01Z' + n % 2 * interval '1 day' FROM generate_series(1, {}) n"
ROWS = {"small": 10, "large": 3_000, "parted": 1_000}


@pytest.fixture(scope="module")
def database() -> str:
    """The variable with the address of one with three tables."""
    name, variable = postgres.new_database()
    with postgres.shared_server().connected(name) as connection:
        connection.execute(TABLES.encode())
        for table, rows in ROWS.items():
            connection.execute(FILL.format(table, rows).encode())
    return variable


def of(variable: str, table: str) -> TableSpec:
    return orders_spec(key=f"bronze/{table}", source={"kind": "jdbc", "connection": variable, "table": table})


def size_of(variable: str, table: str) -> CatalogSize:
    spec = of(variable, table)
    assert isinstance(spec.source, DatabaseSpec)
    return catalog_size(spec, spec.source)


def run(variable: str, statement: str) -> list[tuple[int, ...]]:
    with postgres.shared_server().connected(variable.lower()) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


def test_rows_are_known_once_a_table_was_analyzed(database):
    """Bytes always are; a table in parts is the sum of its parts."""
    for table in ROWS:
        run(database, f"ALTER TABLE {table if table != 'parted' else 'early'} SET (autovacuum_enabled = off)")
    assert size_of(database, "large").data_bytes > 0
    run(database, "ANALYZE")
    assert {table: size_of(database, table).rows for table in ROWS} == ROWS
    (expected,) = run(
        database,
        "SELECT pg_table_size('early') + pg_table_size('later'), pg_indexes_size('early') + pg_indexes_size('later')",
    )
    parted = size_of(database, "parted")
    assert (parted.data_bytes, parted.index_bytes) == expected
    run(database, "CREATE TABLE fresh (LIKE small) WITH (autovacuum_enabled = off); INSERT INTO fresh TABLE small")
    assert size_of(database, "fresh").rows is None
    assert size_of(database, "fresh").data_bytes > 0


def rows_read(variable: str) -> int:
    """How many rows of its tables the server has handed out, by its own statistics."""
    run(variable, "SELECT pg_stat_force_next_flush()")
    (found,) = run(variable, "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables")
    return found[0]


def test_the_largest_comes_first_and_each_has_its_price(database):
    """Whatever they are called; a table that is not there is told of, and holds up no other."""
    specs = {
        key: of(database, key.split("/")[1]) for key in ("bronze/large", "bronze/parted", "bronze/small", "bronze/gone")
    }
    definitions = lakehouse_definitions(*(build_lakehouse_table(spec) for spec in specs.values()))
    project = SimpleNamespace(definitions=definitions, table=lambda key: SimpleNamespace(spec=specs[key]))
    before = rows_read(database)
    found, unknown = estimates(project, [], rates=(1e6, 2e6), log=print)
    assert [one.table for one in found] == ["large", "parted", "small"]
    assert {key: type(error) for key, error in unknown.items()} == {"bronze/gone": SourceMissingError}
    size = found[0].size.data_bytes
    assert found[0].seconds == (size / 2e6, size / 1e6)
    sizes = run(database, "SELECT pg_table_size('large'), pg_indexes_size('large')")
    assert (found[0].size.data_bytes, found[0].size.index_bytes) == sizes[0]
    assert rows_read(database) == before, "no row is read"


def test_a_price_is_of_bytes_and_hours():
    """The least and the most; without prices none is told."""
    one = TableEstimate("bronze/large", "large", CatalogSize(None, 2_000_000_000, 0), (3_600.0, 7_200.0))
    told = one.fields(Prices("USD", per_gb=0.5, per_hour=0.25))
    assert (told["cost"], told["currency"], told["rows"]) == ([1.25, 1.5], "USD", None)
    assert "cost" not in one.fields(None)
