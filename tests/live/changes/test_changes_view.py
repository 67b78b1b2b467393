"""A view of a feed's raw changes, for those who do not read the table: it has the table's rows."""

from __future__ import annotations

import duckdb
import pytest

from backfill_assets.core.view_sql import Dialect, rows_from_changes, statements
from backfill_assets.live.changes.table import ChangesTable
from tests.live.changes.world import COLUMNS, DAYS, World, new_world
from tests.support.shop import multiset, opened

CHANGED = [
    "UPDATE customers SET balance = 77 WHERE id < 10",
    "UPDATE customers SET id = 9000 WHERE id = 5",
    "DELETE FROM customers WHERE id = 6",
    f"UPDATE customers SET signed_up = '{DAYS[3]} 05:00:00.000001Z', active = NULL, note = '' WHERE id = 7",
    "BEGIN; UPDATE customers SET id = -1 WHERE id = 1; UPDATE customers SET id = 1 WHERE id = 25; "
    "UPDATE customers SET id = 25 WHERE id = -1; COMMIT",
    "BEGIN; DELETE FROM customers WHERE id = 2; "
    "INSERT INTO customers VALUES (2, 'é', -0.01, repeat('n', 9000), NULL, '2024-01-05Z'); COMMIT",
    "UPDATE customers SET balance = 1 WHERE id = 2",
]
EMPTIED = [
    "BEGIN; INSERT INTO customers (id, signed_up) VALUES (7000, '2024-01-05Z'); TRUNCATE customers; "
    "INSERT INTO customers (id, signed_up) VALUES (1, '2024-01-05Z'); COMMIT",
    "INSERT INTO customers (id, signed_up) VALUES (2, '2024-01-05Z')",
]


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table that has what its feed has brought: every customer, since each was updated."""
    made = new_world(spark, tmp_path_factory.mktemp("view"), changes={"backfill": "excluded"})
    made.land()
    made.execute("UPDATE customers SET id = id")
    return made


@pytest.mark.prove
@pytest.mark.parametrize("dialect", [pytest.param("spark", marks=pytest.mark.prove), "duckdb"])
def test_a_view_of_the_raw_changes_has_the_tables_rows(world, dialect):
    """Changed, moved, swapped, inserted again and emptied: with the table's types, in Spark and in DuckDB."""
    for changes in (CHANGED, EMPTIED, ["UPDATE customers SET balance = 3"]):
        world.execute(*changes)
        assert not world.bring_up().refused
        assert rows_of_view(world, dialect) == world.content() == world.rows()
    world.execute("DELETE FROM customers")
    make_again = "INSERT INTO customers SELECT n, 'c', n, NULL, true, '2024-01-02Z' FROM generate_series(1, 30) n"
    world.execute("ALTER TABLE customers DROP CONSTRAINT IF EXISTS customers_pkey", make_again)


def rows_of_view(world: World, dialect: Dialect):
    """Run the statements as a reader would; return what is in the view."""
    changes, name = ChangesTable(world.spark, world.spec, world.lake.path), f"{world.name}/customers_from_changes"
    reach = changes.reach()
    assert reach is not None
    made = statements({name: rows_from_changes(changes.path, world.spec, reach.began, dialect)}, dialect)
    if dialect == "spark":
        for statement in made.rstrip(";").split(";\n"):
            world.spark.sql(statement)
        return multiset(world.spark.table(name.replace("/", ".")).toArrow().to_pylist(), COLUMNS)
    with duckdb.connect() as connection:  # without its own reader of Delta, which it would fetch
        connection.register("raw", opened(changes.path).to_pyarrow_table())
        plain = "\n".join(made.splitlines()[2:-1])
        connection.execute(plain.replace(f"delta_scan('{changes.path}')", "raw"))
        return multiset(connection.sql("SELECT * FROM " + name.replace("/", ".")).to_arrow_table().to_pylist(), COLUMNS)
