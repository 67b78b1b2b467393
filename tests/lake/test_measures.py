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


def test_sums_are_exact_or_infinite(spark):
    """A sum of whole numbers may be larger than they can be; one of decimals that is has no value; NaN is told."""
    most = (1 << 63) - 1
    large = Decimal("9" * 36 + ".99")
    found = measures.measures_of(
        SPEC,
        rows_of(spark, (1, 0.5, most, large, "a"), (2, float("nan"), most, large, None), (3, 1.0, 1, large, "a")),
        [SPEC.grid.partition(DAY)],
    )[DAY]
    assert found["sum(cents)"] == {"": 2 * most + 1}
    assert found["sum(large)"] == {"": Decimal("Infinity")}, "and so not at most anything"
    assert found["count(*) by kind`of_sale"] == {"a": 2, None: 1}
    assert found["sum(price)"][""].is_nan()


@pytest.mark.prove
def test_many_groups_are_measured_a_few_partitions_at_a_time(spark, monkeypatch):
    """The driver's memory is not filled; of one partition alone they are too many, and the column is none to group by."""
    monkeypatch.setattr(measures, "MOST_GROUPS", 1)
    rows = rows_of(spark, (1, 0.5, 1, None, "a"))
    later = rows.selectExpr("* EXCEPT (created_at, dt)", "created_at + INTERVAL 1 DAY AS created_at", "dt + 1 AS dt")
    both = [SPEC.grid.partition(key) for key in (DAY, "2024-03-01")]
    found = measures.measures_of(SPEC, rows.unionByName(later), both)
    assert {key: found[key]["count(*) by kind`of_sale"] for key in found} == {p.key: {"a": 1} for p in both}
    with pytest.raises(ConfigurationError, match=r"has more than 1 groups in partition 2024-02-29\."):
        measures.measures_of(SPEC, rows_of(spark, (1, 0.5, 1, None, "a"), (2, 0.5, 1, None, "b")), both[:1])
