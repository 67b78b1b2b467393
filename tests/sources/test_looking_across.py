"""Transforms that look across rows: a partition is made of what it declares, whatever else is launched with it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import ChunkDependenceError, StrayRowsError
from backfill_assets.lake.table import LakeTable
from tests.sources.sales import days, publish, source_of
from tests.support.shop import frame_of, launch, orders, orders_spec, published_keys, refusals, rows_in

ORDERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 9: 1}
"""How many there are on which day of January 2024; on the other days nothing was published."""


@pytest.fixture(scope="module")
def bronze(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeTable:
    table = LakeTable(spark, orders_spec(), f"{tmp_path_factory.mktemp('bronze')}/orders")
    table.create()
    named = {f"2024-01-{day:02}": orders(f"2024-01-{day:02}", count) for day, count in ORDERS.items()}
    publish(table, named, "bronze")
    return table


def pace_spec(*, tables: Any = ("bronze/orders",), transform_by: str | None = None, **changes: Any) -> TableSpec:
    """One row a day: its orders, those of the day before, and all that the transform saw."""
    facts = {
        "key": "silver/pace",
        "columns": {"at": "timestamp", "orders": "bigint", "before": "bigint", "seen": "bigint"},
        "key_columns": ["at"],
        "event_time": "at",
        "source": {"kind": "delta", "tables": list(tables), "transform_by": transform_by},
    }
    return orders_spec(**{**facts, **changes})


def pace(rows: DataFrame) -> DataFrame:
    """Look back to the day before, and over everything."""
    by_day = rows.groupBy(F.date_trunc("day", "ordered_at").alias("at")).agg(F.count("*").alias("orders"))
    everything = Window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    before = F.lag("orders").over(Window.orderBy("at"))
    return by_day.withColumns({"before": before, "seen": F.sum("orders").over(everything)})


def pace_with_holes(rows: DataFrame) -> DataFrame:
    """The same, without an event time for a day of four orders."""
    return pace(rows).withColumn("at", F.when(F.col("orders") != 4, F.col("at")))


def made(table: LakeTable) -> list[tuple[Any, ...]]:
    """The table's rows in the order of time, as another reader has them."""
    rows = sorted(rows_in(table.path), key=lambda row: row["at"])
    return [(row["at"].astimezone(UTC).day, row["orders"], row["before"], row["seen"]) for row in rows]


@pytest.mark.prove
def test_looking_back_does_not_depend_on_the_chunk(spark, tmp_path, bronze):
    """With offsets, and with late rows: whole, in other chunks, and in reverse order the rows are the same.

    The first partition looks back to what its input has from before the table's start.
    """
    live = {"path": "pace", "starts": "2024-01-06"}
    tables = [{"table": "bronze/orders", "start_offset": -2}]
    spec = pace_spec(tables=tables, start=date(2024, 1, 3), latest_wins_by=["orders"], live=live)
    table, named = LakeTable(spark, spec, f"{tmp_path}/pace"), days(spec, "2024-01-03", "2024-01-05")
    table.create()
    table.late_table.create()
    late = [
        {"at": datetime(2024, 1, 4, tzinfo=UTC), "orders": 99},
        {"at": datetime(2024, 1, 3, 1, tzinfo=UTC), "orders": 7},
    ]
    table.late_table.append(frame_of(spark, spec, late), stream="s", batch=1)
    source = source_of(spec, bronze, transform=pace)

    for launches in ([(named, None)], [(named, 2)], [([one], None) for one in reversed(named)]):
        for partitions, size in launches:
            outcomes = launch(table, source, partitions, max_partitions_per_chunk=size)
            assert published_keys(outcomes) == [p.key for p in partitions]
        assert made(table) == [(3, 3, 2, 6), (3, 7, None, None), (4, 99, None, None), (5, 5, 4, 12)]


def test_looking_across_without_saying_so_is_refused(spark, tmp_path, bronze):
    """A transform that makes a partition otherwise beside others than by itself publishes nothing of such a chunk.

    With `transform_by: partition` it is called for each by itself, and what it sees is the same in every chunk.
    """
    spec = pace_spec()
    table, named = LakeTable(spark, spec, f"{tmp_path}/pace"), days(spec, "2024-01-03", "2024-01-05")
    with pytest.raises(ChunkDependenceError) as refused:
        launch(table, source_of(spec, bronze, transform=pace), named)
    assert "partition 2024-01-04 is another one when it is made by itself than in the chunk 2024-01-03" in str(
        refused.value
    )
    assert rows_in(table.path) == []

    spec = pace_spec(transform_by="partition")
    outcomes = launch(table, source_of(spec, bronze, transform=pace), named)
    assert published_keys(outcomes) == [p.key for p in named]
    assert made(table) == [(3, 3, None, 3), (4, 4, None, 4), (5, 5, None, 5)]


@pytest.mark.prove
def test_a_row_without_an_event_time_is_refused_and_not_lost(spark, tmp_path, bronze):
    """It fails the partitions for which it is made, beside others; made for a whole chunk, it fails the chunk."""
    spec = pace_spec(tables=[{"table": "bronze/orders", "start_offset": -1}])
    table = LakeTable(spark, spec, f"{tmp_path}/pace")
    outcomes = launch(table, source_of(spec, bronze, transform=pace_with_holes), days(spec, "2024-01-02", "2024-01-06"))
    assert published_keys(outcomes) == ["2024-01-02", "2024-01-03"]
    found = refusals(outcomes)
    assert list(found) == ["2024-01-04", "2024-01-05", "2024-01-06"]
    assert all("`at` is NULL in 1 row" in found[day] for day in ("2024-01-04", "2024-01-05"))
    assert "has no receipt for 1 of the 2 partitions" in found["2024-01-06"]

    spec = pace_spec()
    with pytest.raises(StrayRowsError, match="1 rows without an event time for the chunk 2024-01-04 to 2024-01-05"):
        launch(table, source_of(spec, bronze, transform=pace_with_holes), days(spec, "2024-01-04", "2024-01-05"))


@pytest.mark.prove
def test_an_input_that_starts_later_than_it_did(spark, tmp_path, bronze):
    """What an input published before its `start` was moved forward is no part of it any more, and stops nothing."""
    moved = LakeTable(spark, orders_spec(start=date(2024, 1, 3)), bronze.path)
    spec = pace_spec(tables=[{"table": "bronze/orders", "start_offset": -2}], start=date(2024, 1, 3))
    source = source_of(spec, moved, transform=pace)
    assert source.complete_until() == datetime(2024, 1, 10, tzinfo=UTC)
    named = days(spec, "2024-01-04")
    rows = source.scan(named, source.survey(named)).rows.collect()
    assert [(row["orders"], row["before"], row["seen"]) for row in rows] == [(4, 3, 7)]


@pytest.mark.prove
def test_nothing_is_made_of_what_was_not_published(bronze):
    """A transform that makes a row of no rows, as a total does, is not taken at its word where its input is lacking."""
    spec = pace_spec(transform_by="partition")
    total = F.count("*").alias("orders")

    def one_row(rows: DataFrame) -> DataFrame:
        return rows.agg(F.max("ordered_at").alias("at"), total, total.alias("before"), total.alias("seen"))

    source, named = source_of(spec, bronze, transform=one_row), days(spec, "2024-01-06", "2024-01-07")
    scan = source.scan(named, source.survey(named))
    assert all(scan.evidence[p.key].findings for p in named)
    assert scan.rows.count() == 0


@pytest.mark.parametrize(
    ("grain", "ahead", "until"),
    [
        ("daily", 0, "2024-01-06"),
        ("daily", 1, "2024-01-05"),
        ("daily", 3, "2024-01-03"),
        ("weekly", 0, "2024-01-06"),
        ("weekly", 1, "2023-12-25"),
        ("daily", 9, "2023-12-31"),
    ],
)
def test_what_looks_ahead_is_complete_when_what_it_looks_at_is(grain, ahead, until):
    """Five days were published: the last that can be made is the one whose following ones are there; later ones are left out, not refused."""
    below = orders_spec()
    published = dict.fromkeys(
        (p.key for p in below.grid.between("2024-01-01", "2024-01-05")), SimpleNamespace(version=1)
    )
    stub: Any = SimpleNamespace(
        spec=below,
        exists=lambda: True,
        version=lambda: 1,
        published=lambda: published,
        refuse_other_facts=lambda: None,
    )
    spec = pace_spec(tables=[{"table": "bronze/orders", "end_offset": ahead}], grain=grain)
    assert source_of(spec, stub).complete_until() == datetime.fromisoformat(until).replace(tzinfo=UTC)
