"""A row that PostgreSQL itself cannot read fails its partition, by name; those beside it are published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.postgres.queries import TableQueries
from backfill_assets.core.schema.postgres import DatabaseColumn
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.errors import SourceRefusedError
from backfill_assets.sources.database.source import DatabaseSource
from backfill_assets.sources.database.unreadable import ByPartition
from tests.sources.database.world import DAYS, World, new_world, shop
from tests.support import postgres
from tests.support.shop import orders, orders_spec, published_keys, refusals, rows_in

OTHERS = [day for day in DAYS if day != DAYS[1]]


def with_an_invalid_byte(spark: Any, root: Any) -> World:
    """A database without an encoding, and a name in another one than UTF-8."""
    world = new_world(spark, root)
    with world.server.connected() as connection:
        connection.execute(f"DROP DATABASE {world.name} WITH (FORCE)".encode())
        connection.execute(
            f"CREATE DATABASE {world.name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0".encode()
        )
    world.execute(postgres.ORDERS)
    world.insert([row for day in DAYS for row in orders(day)])
    world.execute(f"INSERT INTO orders VALUES (77, E'Caf\\351', 1, '{DAYS[1]} 10:00Z')")
    return world


def with_a_division_by_zero(spark: Any, root: Any) -> World:
    """A column that the server computes when it is read."""
    columns = {"order_id": "bigint", "customer": "string", "ratio": "decimal(38,18)", "ordered_at": "timestamp"}
    world = shop(spark, root, columns=columns)
    world.execute(
        "ALTER TABLE orders ADD ratio numeric GENERATED ALWAYS AS (1000 / (order_id - 77)) VIRTUAL",
        f"INSERT INTO orders VALUES (77, 'a', 1, '{DAYS[1]} 10:00Z')",
    )
    return world


@pytest.mark.parametrize(
    ("make", "sqlstate", "column", "mend"),
    [
        pytest.param(
            *(with_an_invalid_byte, "22021", "customer", "UPDATE orders SET customer = 'x' WHERE order_id = 77"),
            marks=pytest.mark.prove,
        ),
        (with_a_division_by_zero, "22012", "ratio", "DELETE FROM orders WHERE order_id = 77"),
    ],
)
def test_row_that_the_server_cannot_read_fails_its_partition(spark, tmp_path, make, sqlstate, column, mend):
    """Key, column and the server's own words are said; the next launch after a correction publishes it."""
    world = make(spark, tmp_path)
    source = world.source
    outcomes = world.launch(source=source)
    assert published_keys(outcomes) == OTHERS
    ((day, said),) = refusals(outcomes).items()
    assert day == DAYS[1]
    assert f"SQLSTATE {sqlstate}" in str(said)
    assert f"The first such row: order_id=77, in `{column}`" in str(said)
    assert len(rows_in(world.lake.path)) == 3 * len(OTHERS)
    world.execute(mend)
    assert published_keys(world.launch(source=source, only="missing")) == [DAYS[1]]


@pytest.mark.prove
def test_damaged_page_fails_its_day(monkeypatch):
    """Not even its rows can be counted: that is found when the source is surveyed, and no other day is held up."""
    source = DatabaseSpec(connection="DAMAGED", table="orders")
    spec = orders_spec(source=source)
    days = spec.grid.between("2024-01-01", "2024-01-14")
    at = "timestamptz '2024-01-01Z' + n * interval '1 minute'"
    fill = f"INSERT INTO orders SELECT n, repeat('x', 50), n, {at} FROM generate_series(0, 14 * 1440 - 1) n"
    with postgres.serving() as server:
        monkeypatch.setenv("DAMAGED", server.address())
        with server.connected() as connection:
            for statement in (postgres.ORDERS, fill, "VACUUM ANALYZE orders", "CHECKPOINT"):
                connection.execute(statement.encode())
            (path,) = connection.execute("SELECT pg_relation_filepath('orders')").fetchone() or ("",)
            row = "SELECT (ctid::text::point)[0]::int FROM orders WHERE order_id = 6 * 1440 + 700"
            (page,) = connection.execute(row).fetchone() or (0,)
        server.stop()
        with (server.data / path).open("r+b") as file:
            file.seek(8192 * page + 4000)
            file.write(b"\xff" * 8)
        server.start()
        database = DatabaseSource(cast("Any", None), spec, source)
        found = database.foretell(days, database.survey(days))
    assert {key: said.raw_rows for key, said in found.items() if not said.findings} == {
        day.key: 1440 for day in days if day != days[6]
    }
    (finding,) = found[days[6].key].findings
    assert f"SQLSTATE XX001): invalid page in block {page}" in finding.what


def test_corrupted_partitions_are_found_by_halves():
    """A query that fails for all partitions is asked for ever fewer; a right that is missing is none of theirs."""
    source = DatabaseSpec(connection="X", table="orders")
    spec = orders_spec(source=source)
    columns = {name: DatabaseColumn(name, "int8", "bigint") for name in spec.columns}
    columns["ordered_at"] = DatabaseColumn("ordered_at", "timestamptz", "timestamp with time zone")
    days = spec.grid.between("2024-01-01", "2024-01-16")
    broken, asked = {days[4], days[11]}, list[Sequence[Partition]]()
    sqlstate = "XX001"

    def ask(query: str) -> list[tuple[Any, ...]]:
        begins = [day for day in days if f"timestamptz '{day.key} " in query.partition("FROM")[0]]
        asked.append(begins)
        if not begins or broken & set(begins):
            raise SourceRefusedError("refused", state="", remedy="", sqlstate=sqlstate, said="invalid page in block 7")
        return [(number, 1, "x") for number in range(1, len(begins) + 1)]

    def answers() -> tuple[list[str], ByPartition]:
        found = ByPartition(TableQueries(spec, source, columns), ask)
        return [key for key, _ in found.answers(found.queries.fingerprints, days)], found

    keys, found = answers()
    assert keys == [day.key for day in days if day not in broken]
    assert list(found.findings) == sorted(day.key for day in broken)
    assert "(SQLSTATE XX001): invalid page in block 7." in found.findings["2024-01-05"].what
    assert len([one for one in asked if one]) < len(days) + 4
    sqlstate = "42501"
    with pytest.raises(SourceRefusedError):
        answers()
