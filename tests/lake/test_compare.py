"""Rows in which two sides differ, found among many by checksums over buckets of keys, and read back as they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

from backfill_assets.lake import compare as module
from backfill_assets.lake.compare import compare
from tests.support.shop import COLUMNS, orders_spec

pytestmark = pytest.mark.spark

DAY, NEXT, ROWS, ONE = "2024-01-01", "2024-01-02", 20_000, 12_345
SPEC = orders_spec(columns={**COLUMNS, "note": "string"})
PLAIN = orders_spec(columns={**COLUMNS, "note": "string"}, key_columns=[])


def is_one():
    return F.col("order_id") == ONE


@pytest.fixture(scope="module")
def many(spark):
    """Two days of orders, kept."""
    ids = F.col("id").alias("order_id")
    day = F.when(F.col("id") % 2 == 0, F.lit(DAY)).otherwise(F.lit(NEXT)).cast("date")
    rows = spark.range(ROWS).select(
        ids,
        F.concat(F.lit("customer "), F.col("id")).alias("customer"),
        (F.col("id") / 4).cast("decimal(18,2)").alias("amount"),
        day.cast("timestamp").alias("ordered_at"),
        F.lit("").alias("note"),
        day.alias("dt"),
    )
    kept = rows.persist()
    yield kept
    kept.unpersist()


def flipped(rows):
    return rows.withColumn(
        "amount", F.when(is_one(), F.col("amount") + 1).otherwise(F.col("amount")).cast("decimal(18,2)")
    )


def lost(rows):
    return rows.where(~is_one())


def doubled(rows):
    return rows.unionByName(rows.where(is_one()))


def nulled(rows):
    return rows.withColumn("note", F.when(~is_one(), F.col("note")))


def displaced(rows):
    return rows.withColumn("dt", F.when(is_one(), F.lit(DAY).cast("date")).otherwise(F.col("dt")))


CASES: list[tuple[Any, list[tuple[Any, ...]]]] = [
    (flipped, [(NEXT, "different", ("amount",), 1, 1)]),
    (lost, [(NEXT, "missing", (), 1, 0)]),
    (doubled, [(NEXT, "repeated", (), 1, 2)]),
    (nulled, [(NEXT, "different", ("note",), 1, 1)]),
    (displaced, [(DAY, "extra", (), 0, 1), (NEXT, "missing", (), 1, 0)]),
]


def found(spec, source, table):
    with compare(spec, source, table, rows=ROWS) as compared:
        return compared.rows(most=100)


@pytest.mark.prove
@pytest.mark.parametrize(("change", "says"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_one_row_among_many_is_found(many, monkeypatch, change, says):
    """Whatever is wrong with it, where the sides are narrowed first; and nothing else is named."""
    monkeypatch.setattr(module, "LARGE", 0)
    rows = found(SPEC, many, change(many))
    assert [(r.partition, r.kind, r.columns, r.source_times, r.table_times) for r in rows] == says
    assert {r.either["order_id"] for r in rows} == {str(ONE)}


def test_both_rows_are_as_they_are(many):
    """NULL is not an empty text, decimals have their digits, instants are in UTC."""
    (one,) = found(SPEC, many, nulled(many))
    assert one.source == {
        "order_id": str(ONE),
        "customer": f"customer {ONE}",
        "amount": "3086.25",
        "ordered_at": f"{NEXT} 00:00:00Z",
        "note": "",
    }
    assert one.table == {**one.source, "note": None}


def test_a_second_copy_that_differs_says_in_what(many):
    """A key that is in the table twice, once as in the source: the other is held against the source's row."""
    twice = many.unionByName(flipped(many.where(is_one())))
    (one,) = found(SPEC, many, twice)
    assert (one.kind, one.columns, one.source_times, one.table_times) == ("repeated", ("amount",), 1, 2)
    assert (one.source["amount"], one.table["amount"]) == ("3086.25", "3087.25")


@pytest.mark.prove
def test_rows_without_a_key_are_missing_extra_or_repeated(many):
    """Nobody can say which of them was changed: it is missing in one form and extra in another."""
    assert [(r.kind, r.source_times, r.table_times) for r in found(PLAIN, many, doubled(many))] == [("repeated", 1, 2)]
    assert sorted(r.kind for r in found(PLAIN, many, flipped(many))) == ["extra", "missing"]


def test_each_row_is_in_one_pair(many):
    """Also where many rows of both sides have one key: none is joined with all others."""
    one_key = many.limit(300).withColumn("order_id", F.lit(None).cast("bigint"))
    with compare(SPEC, one_key, flipped_all(one_key), rows=300) as compared:
        assert compared.count() == 300
        assert sum(one.only_in_table for one in compared.differences().values()) == 300


def flipped_all(rows):
    return rows.withColumn("amount", (F.col("amount") + 100_000).cast("decimal(18,2)"))


@pytest.mark.prove
def test_as_arrow_values_have_their_types(many):
    """So that somebody can mend with the file what is wrong with the table."""
    with compare(SPEC, many, flipped(many), rows=ROWS) as compared:
        (row,) = compared.arrow(most=100).to_pylist()
    assert (row["partition"], row["difference"], row["differs_in"]) == (NEXT, "different", "amount")
    assert (row["amount_source"], row["amount_table"]) == (Decimal("3086.25"), Decimal("3087.25"))
    assert row["ordered_at_source"].utcoffset().total_seconds() == 0
