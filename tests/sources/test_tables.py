"""History in other tables: copies and transforms of the partitions that each result needs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.errors import SchemaMismatchError, SourceIncompleteError
from backfill_assets.lake.table import LakeTable
from tests.sources.sales import SALES, daily_sales, days, publish, sales_spec, source_of
from tests.support.shop import (
    content,
    launch,
    multiset,
    orders,
    orders_spec,
    published_keys,
    refusals,
    rows_in,
)


@pytest.fixture(scope="module")
def bronze(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeTable:
    """Orders of five days, one of them without rows; tests that change it take days of their own."""
    table = LakeTable(spark, orders_spec(), f"{tmp_path_factory.mktemp('bronze')}/orders")
    table.create()
    days = {f"2024-01-{d:02}": orders(f"2024-01-{d:02}", 0 if d == 3 else d) for d in (1, 2, 3, 4, 31)}
    publish(table, {**days, "2024-02-01": orders("2024-02-01", 2)}, "bronze")
    return table


def test_a_copy(spark, tmp_path, bronze):
    """Without a transform the rows are copied, and the receipts of the input say how many there must be."""
    spec = orders_spec(key="silver/orders", source={"kind": "delta", "tables": ["bronze/orders"]})
    table = LakeTable(spark, spec, f"{tmp_path}/copy")
    table.create()
    source = source_of(spec, bronze)
    named = days(spec, "2024-01-02", "2024-01-03")

    outcomes = launch(table, source, named)

    assert published_keys(outcomes) == ["2024-01-02", "2024-01-03"]
    assert content(table.path) == multiset(orders("2024-01-02", 2))
    assert table.published()["2024-01-02"].receipt.source == {"kind": "delta", "versions": {"bronze/orders": 1}}
    scan = source.scan(named, source.survey(named))
    assert [scan.evidence[p.key].raw_rows for p in named] == [2, 0]


@pytest.mark.prove
def test_a_transform_and_a_day_without_receipt(spark, tmp_path, bronze):
    """Days are made by the transform; one whose input was never published is refused, and says which input lacks what."""
    spec = sales_spec()
    table = LakeTable(spark, spec, f"{tmp_path}/sales")
    table.create()

    outcomes = launch(table, source_of(spec, bronze, transform=daily_sales), days(spec, "2024-01-01", "2024-01-05"))

    assert published_keys(outcomes) == ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
    assert refusals(outcomes) == {
        "2024-01-05": "2024-01-05: source_is_present: `bronze/orders` has no receipt for 1 of the 1 partitions that this one is made of (first `2024-01-05`)."
    }
    found = {str(row["dt"]): (row["orders"], row["revenue"]) for row in rows_in(table.path)}
    assert found == {
        "2024-01-01": (1, Decimal("0.25")),
        "2024-01-02": (2, Decimal("1.50")),
        "2024-01-04": (4, Decimal("7.00")),
    }


@pytest.mark.prove
def test_a_month_from_days(spark, tmp_path):
    """A month is made of its days alone, and refused while one of them is lacking."""
    below = LakeTable(spark, orders_spec(), f"{tmp_path}/in")
    below.create()
    january = {p.key: orders(p.key, 1) for p in below.spec.grid.between("2024-01-01", "2024-01-31")}
    publish(below, {**january, "2024-02-01": orders("2024-02-01", 7)}, "r")
    spec = sales_spec(
        key="gold/sales",
        grain="monthly",
        columns={"month": "date", "orders": "bigint"},
        event_time="month",
        key_columns=["month"],
    )
    table = LakeTable(spark, spec, f"{tmp_path}/months")
    table.create()
    february = {p.key: [] for p in below.spec.grid.between("2024-02-02", "2024-02-29")}

    def by_month(rows: DataFrame) -> DataFrame:
        return rows.groupBy(F.trunc("ordered_at", "month").alias("month")).agg(F.count("*").alias("orders"))

    source = source_of(spec, below, transform=by_month)
    with pytest.raises(SourceIncompleteError, match="complete up to `2024-02-02T00:00:00"):
        launch(table, source, days(spec, "2024-02-01"))
    outcomes = launch(table, source, days(spec, "2024-01-01", "2024-02-01"))
    assert published_keys(outcomes) == ["2024-01-01"]
    assert [(str(row["dt"]), row["orders"]) for row in rows_in(table.path)] == [("2024-01-01", 31)]

    publish(below, february, "the rest")
    assert published_keys(launch(table, source, days(spec, "2024-01-01", "2024-02-01"))) == ["2024-01-01", "2024-02-01"]
    assert sorted((str(row["dt"]), row["orders"]) for row in rows_in(table.path)) == [
        ("2024-01-01", 31),
        ("2024-02-01", 7),
    ]


@pytest.mark.prove
def test_offsets_read_more_and_write_no_more(spark, tmp_path, bronze):
    """With `start_offset: -1` the day before is read as well; its rows are not written, at the table's start there is none before."""
    spec = sales_spec(
        columns={"day": "date", "orders": "bigint", "the_day_before": "bigint"},
        source={"kind": "delta", "tables": [{"table": "bronze/orders", "start_offset": -1}]},
    )
    table = LakeTable(spark, spec, f"{tmp_path}/sales")
    table.create()

    def with_the_day_before(rows: DataFrame) -> DataFrame:
        counted = rows.groupBy(F.to_date("ordered_at").alias("day")).agg(F.count("*").alias("orders"))
        before = counted.select(F.date_add("day", 1).alias("day"), F.col("orders").alias("the_day_before"))
        return counted.join(before, "day", "left")

    source = source_of(spec, bronze, transform=with_the_day_before)
    expected = [("2024-01-01", 1, None), ("2024-01-02", 2, 1)]
    for chunk in (2, 1):  # whole, and one by one
        assert published_keys(
            launch(table, source, days(spec, "2024-01-01", "2024-01-02"), max_partitions_per_chunk=chunk)
        ) == [
            "2024-01-01",
            "2024-01-02",
        ]
        assert sorted((str(row["dt"]), row["orders"], row["the_day_before"]) for row in rows_in(table.path)) == expected

    lacking = (
        source.scan(days(spec, "2024-01-31"), source.survey(days(spec, "2024-01-31"))).evidence["2024-01-31"].findings
    )
    assert "no receipt for 1 of the 2 partitions that this one is made of (first `2024-01-30`)" in lacking[0].what


def test_what_a_transform_returns_is_held_against_the_spec(bronze):
    """Missing and differing columns are refused before anything is read; columns beyond the spec are remarked on."""
    spec = sales_spec(columns={**SALES, "customers": "bigint"})

    def wrong(rows: DataFrame) -> DataFrame:
        return daily_sales(rows).withColumn("revenue", F.col("revenue").cast("double"))

    with pytest.raises(
        SchemaMismatchError, match="`customers` is missing; `revenue` is `double`, not `decimal\\(28,2\\)`"
    ):
        source_of(spec, bronze, transform=wrong).check_schema(days(spec, "2024-01-01"))
    fewer = sales_spec(columns={"day": "date", "orders": "bigint"})
    assert source_of(fewer, bronze, transform=daily_sales).check_schema(days(fewer, "2024-01-01")) == [
        "`silver/sales`: the transform also returns ['revenue'], which the spec does not name; left out."
    ]
