"""Rows that no publish put into a partition of history are carried beside the table, and folded by its next launch; no others are."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.undo import carry_out
from backfill_assets.core.history.undo_plan import Undo, of_launch, plan_undo
from backfill_assets.core.state.receipts import Run
from tests.support.live_shop import event
from tests.support.shop import published_keys, refusals


def add_another(path: Path, order_id: int) -> None:
    """Append a copy of one of the rows with another key, as somebody else."""
    theirs = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    (same, *_) = theirs.slice(0, 1).to_pylist()
    more = pa.Table.from_pylist([{**same, "order_id": order_id}], schema=theirs.schema)
    deltalake.write_deltalake(str(path), more, mode="append")


@pytest.mark.prove
def test_only_what_no_publish_put_there_is_carried(shop):
    """What history published goes on to be the source's: it leaves the table, or its day, when the source says so."""
    one, two, three = (event(number, f"2024-01-02T0{number}:00:00") for number in (1, 2, 3))
    shop.stream()
    shop.export("2024-01-02", one, two, three)
    shop.launch("2024-01-02", "2024-01-02")
    add_another(shop.path, 9)
    shop.export("2024-01-02", one, two, three)
    assert "live_rows_are_covered" in refusals(shop.launch("2024-01-02", "2024-01-02"))["2024-01-02"]
    assert [shop.table.carry_live_rows() for _ in range(2)] == [1, 0]
    assert published_keys(shop.launch("2024-01-02", "2024-01-02")) == ["2024-01-02"]
    assert shop.ids() == [1, 2, 3, 9]
    add_another(shop.path, 9)
    shop.export("2024-01-02", one, two)
    shop.export("2024-01-03", event(3, "2024-01-03T03:00:00"))
    for carried in (0, 0):
        assert "order_id=3" in refusals(shop.launch("2024-01-02", "2024-01-03"))["2024-01-02"]
        assert shop.table.carry_live_rows() == carried
    shop.launch("2024-01-02", "2024-01-02", discard_uncovered_rows=True)
    assert shop.ids() == [1, 2, 3, 9]
    days = {row["order_id"]: f"{row['ordered_at']:%d}" for row in shop.rows()}
    assert days == {1: "02", 2: "02", 3: "03", 9: "02"}


@pytest.mark.prove
def test_what_a_publish_put_there_is_not_carried_after_an_undo(shop):
    """The undo has put back published rows and another: the source may drop its own, and only the other one is kept."""
    shop.stream()
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(2, "2024-01-02T02:00:00"))
    shop.launch("2024-01-02", "2024-01-02")
    add_another(shop.path, 9)
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00", amount="7.00"), event(2, "2024-01-02T02:00:00"))
    shop.launch("2024-01-02", "2024-01-02", run_id="second", root_run_id="second", discard_uncovered_rows=True)
    undo = Undo("", of_launch("second", []), Run("undo"))
    list(carry_out(shop.spec, shop.delta, undo, plan_undo(shop.spec, shop.delta, undo), Effects()))
    assert shop.ids() == [1, 2, 9]
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"))
    assert "live_rows_are_covered" in refusals(shop.launch("2024-01-02", "2024-01-02"))["2024-01-02"]
    assert [shop.table.carry_live_rows() for _ in range(2)] == [1, 0]
    assert [row["order_id"] for row in shop.rows("_late")] == [9]
    shop.launch("2024-01-02", "2024-01-02", discard_uncovered_rows=True)
    assert shop.ids() == [1, 9]
