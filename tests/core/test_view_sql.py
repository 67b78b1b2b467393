"""The view of a feed's changes, run by DuckDB, against the fold; and what it makes of each type."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.core.history.changes import fold
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.view_sql import rows_at, rows_from_changes, statements
from tests.support.changing import Change, Changing


def spec_of(columns: dict[str, str], keys: list[str], event_time: str, **source: Any) -> TableSpec:
    facts: dict[str, Any] = {
        "key": "bronze/customers",
        "grain": "daily",
        "start": "2024-01-01",
        "changes": {"capture": "nobody"},
    }
    source = {"kind": "jdbc", "connection": "NOWHERE", "table": "t", **source}
    return TableSpec(columns=columns, key_columns=keys, event_time=event_time, source=source, **facts)


SPEC = spec_of({"id": "int not null", "day": "date not null", "name": "string"}, ["id"], "day")


def viewed(spec: TableSpec, changes: list[tuple[Any, ...]], began: int = 0) -> list[tuple[Any, ...]]:
    """Return the rows that the view has, of changes with position, number, operation, before and after."""
    query = rows_from_changes("/lake/x", spec, began, "duckdb")
    made = statements({"bronze/customers_from_changes": query}, "duckdb").splitlines()
    assert made[0] == "INSTALL delta; LOAD delta;"
    with duckdb.connect() as connection:
        connection.execute(
            "SET TimeZone = 'UTC'; CREATE TABLE raw (after_position bigint, number bigint, op varchar, "
            "before map(varchar, varchar), after map(varchar, varchar))"
        )
        connection.executemany("INSERT INTO raw VALUES (?, ?, ?, ?, ?)", changes)
        connection.execute("\n".join(made[1:]).replace("delta_scan('/lake/x')", "raw"))
        return sorted(connection.sql("SELECT * FROM bronze.customers_from_changes").fetchall())


def line(change: Change) -> tuple[Any, ...]:
    before, after = (
        row and {"id": str(row.id), "day": f"2024-01-0{row.day + 1}", "name": row.name}
        for row in (change.before, change.after)
    )
    return (*change.at, change.op, before, after)


@settings(max_examples=15)
@given(st.integers(0, 1 << 32))
def test_a_view_has_what_the_fold_leaves(seed):
    """Of any changes, since any beginning: those before it are an older feed's."""
    database = Changing(random.Random(seed))
    while database.position < 150:
        database.step()
    began = random.Random(seed).choice([0, 40, 120])
    changes = [change for change in database.log if change.at[0] >= began]
    expected = fold([], changes, lambda row: row.id)
    found = viewed(SPEC, [line(change) for change in database.log], began)
    assert found == sorted((row.id, date(2024, 1, row.day + 1), row.name) for row in expected)


def test_each_type_is_what_the_table_has():
    """Exactly, or NULL: nothing is rounded, and no local time is taken for another."""
    columns = {
        "id": "bigint not null", "small": "smallint", "flag": "boolean", "raw": "binary", "amount": "decimal(4,2)",
        "ratio": "double", "day": "date", "at": "timestamp not null",
    }  # fmt: skip
    spec = spec_of(columns, ["id"], "at", timestamps_without_zone="Europe/Berlin")
    good = {"id": "1", "small": "-3", "flag": "t", "raw": r"\x4142", "amount": "12.50", "ratio": "0.1", "day": "2024-02-29",
            "at": "2024-07-01 12:00:00.5"}  # fmt: skip
    also = {**good, "id": "2", "flag": "false", "raw": "QUI=", "amount": "12.500", "at": "2024-07-01 10:00:00.5+00"}
    wrong = {"id": "3", "small": "40000", "flag": "?", "raw": None, "amount": "1.005", "ratio": "x", "day": "0044-03-15 BC",
             "at": "infinity"}  # fmt: skip
    found = viewed(spec, [(0, n, "c", None, row) for n, row in enumerate((good, also, wrong), start=1)])
    assert [row[:-1] for row in found] == [
        (1, -3, True, b"AB", *map(type(found[0][4]), ["12.50"]), 0.1, date(2024, 2, 29)),
        (2, -3, False, b"AB", *map(type(found[0][4]), ["12.50"]), 0.1, date(2024, 2, 29)),
        (3, None, None, None, None, None, None),
    ]
    assert [row[-1] and row[-1].astimezone().timestamp() for row in found] == [1719828000.5, 1719828000.5, None]


@pytest.mark.parametrize(("dialect", "view"), [("spark", "`a`.`b``c`"), ("duckdb", '"a"."b`c"')])
def test_names_and_paths_are_quoted(dialect, view):
    """Whatever letters they have."""
    made = statements({"a/b`c": rows_at("/it's", dialect)}, dialect)
    rows = "delta.`/it's`" if dialect == "spark" else "delta_scan('/it''s')"
    assert f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {rows};" in made.splitlines()
