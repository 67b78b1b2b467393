"""History in tables that change: receipts that do not agree, newer ones, and overwrites during a launch."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_assets.errors import SourceIncompleteError, TableFactsError
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.tables import TablesSource
from tests.sources.sales import daily_sales, days, publish, sales_spec, source_of
from tests.support.shop import content, launch, multiset, orders, orders_spec, published_keys, refusals


def test_a_copy_with_fewer_rows_than_the_receipt_is_refused(spark, tmp_path):
    """If somebody deleted rows of the input behind its receipts, the copy is not published."""
    below = LakeTable(spark, orders_spec(), f"{tmp_path}/in")
    below.create()
    publish(below, {"2024-01-01": orders("2024-01-01", 3)}, "r")
    spark.sql(f"DELETE FROM delta.`{below.path}` WHERE order_id % 2 = 0")
    spec = orders_spec(key="silver/orders", source={"kind": "delta", "tables": ["bronze/orders"]})
    table = LakeTable(spark, spec, f"{tmp_path}/copy")
    table.create()

    outcomes = launch(table, source_of(spec, below), days(spec, "2024-01-01"))

    assert "rows_are_accounted_for: the source has 3 rows, but" in refusals(outcomes)["2024-01-01"]


@pytest.mark.prove
def test_an_input_that_its_spec_has_left_behind(spark, tmp_path):
    """Of days that are called months now only the first of each would be read: nothing is made of such an input."""
    below = LakeTable(spark, orders_spec(), f"{tmp_path}/in")
    below.create()
    publish(below, {day: orders(day) for day in ("2024-01-01", "2024-01-02")}, "r")
    changed = LakeTable(spark, orders_spec(grain="monthly"), below.path)
    spec = orders_spec(key="silver/orders", grain="monthly", source={"kind": "delta", "tables": ["bronze/orders"]})
    table = LakeTable(spark, spec, f"{tmp_path}/copy")

    with pytest.raises(TableFactsError, match="`bronze/orders`: .* its `grain` is `daily`, not `monthly`"):
        launch(table, source_of(spec, changed), days(spec, "2024-01-01"))

    assert not table.exists()


@pytest.mark.prove
def test_inputs_that_were_never_published(spark, tmp_path):
    """A table that was not made, or was never published, is complete for nothing."""
    below = LakeTable(spark, orders_spec(), f"{tmp_path}/in")
    spec = sales_spec()
    assert source_of(spec, below).complete_until() is None
    below.create()
    with pytest.raises(SourceIncompleteError, match="the source has nothing yet"):
        launch(
            LakeTable(spark, spec, f"{tmp_path}/out"),
            source_of(spec, below, transform=daily_sales),
            days(spec, "2024-01-01"),
        )


@pytest.mark.prove
@pytest.mark.parametrize("point", ["scan", "stage"])
def test_an_input_that_is_overwritten_during_the_launch_is_read_again(spark, tmp_path, monkeypatch, point):
    """Before the read or after it: the launch notices, reads the newer version, and publishes that; no partition is refused."""
    below = LakeTable(spark, orders_spec(), f"{tmp_path}/in")
    below.create()
    publish(below, {"2024-01-01": orders("2024-01-01", 3)}, "first")
    spec = orders_spec(key="silver/orders", source={"kind": "delta", "tables": ["bronze/orders"]})
    table = LakeTable(spark, spec, f"{tmp_path}/out")
    table.create()
    said: list[str] = []
    owner = TablesSource if point == "scan" else LakeTable
    original = getattr(owner, point)

    def call_after_a_publish(self: Any, *arguments: Any, **known: Any) -> Any:
        first = not said
        if first and point == "scan":
            said.append("published")
            publish(below, {"2024-01-01": orders("2024-01-01", 5)}, "second")
        result = original(self, *arguments, **known)
        if first and point == "stage":
            said.append("published")
            publish(below, {"2024-01-01": orders("2024-01-01", 5)}, "second")
        return result

    monkeypatch.setattr(owner, point, call_after_a_publish)
    outcomes = launch(table, source_of(spec, below), days(spec, "2024-01-01"), log=said.append)

    assert (published_keys(outcomes), refusals(outcomes)) == (["2024-01-01"], {})
    assert content(table.path) == multiset(orders("2024-01-01", 5))
    assert table.published()["2024-01-01"].receipt.source["versions"] == {"bronze/orders": 2}
    assert table.version() == 1
