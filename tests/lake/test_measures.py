"""Measures in Spark where numbers are at their limits."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backfill_assets.errors import ConfigurationError
from backfill_assets.lake import measures
from tests.support.fakes import spec_with

pytestmark = pytest.mark.spark

DAY = "2024-02-29"
SPEC = spec_with(
    columns={
        "order_id": "bigint not null",
        "created_at": "timestamp not null",
        "price": "double",
        "cents": "bigint",
        "large": "decimal(38,2)",
        "kind`of_sale": "string",
    },
    expect=[
        {"measure": "sum(price)", "at_least": 0},
        {"measure": "sum(cents)", "at_least": 0},
        {"measure": "sum(large)", "at_least": 0},
        {"measure": "count(*)", "by": "kind`of_sale", "at_least": 0},
    ],
)


def rows_of(spark, *rows):
    frame = spark.createDataFrame(
        list(rows), "order_id bigint, price double, cents bigint, large decimal(38,2), `kind``of_sale` string"
    )
    return frame.selectExpr("*", f"TIMESTAMP'{DAY} 01:00:00Z' AS created_at", f"DATE'{DAY}' AS dt")


def test_sums_are_exact_or_none(spark):
    """A sum of whole numbers may be larger than they can be; one of decimals that is has no value; NaN is told."""
    most = (1 << 63) - 1
    large = Decimal("9" * 36 + ".99")
    found = measures.measures_of(
        SPEC, rows_of(spark, (1, 0.5, most, large, "a"), (2, float("nan"), most, large, None), (3, 1.0, 1, large, "a"))
    )[DAY]
    assert found["sum(cents)"] == {"": 2 * most + 1}
    assert found["sum(large)"] == {"": None}
    assert found["count(*) by kind`of_sale"] == {"a": 2, None: 1}
    assert found["sum(price)"][""].is_nan()


def test_too_many_groups_are_refused(spark, monkeypatch):
    """A column of which every row has its own value is no column to group by, and the driver's memory is not filled."""
    monkeypatch.setattr(measures, "MOST_GROUPS", 1)
    with pytest.raises(ConfigurationError, match="has more than 1 groups in the partitions of one chunk"):
        measures.measures_of(SPEC, rows_of(spark, (1, 0.5, 1, None, "a"), (2, 0.5, 1, None, "b")))
