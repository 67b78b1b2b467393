"""Rows that no publish put into a partition of history are carried beside the table, and folded by its next launch; no others are."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.undo import carry_out
from backfill_assets.core.history.undo_plan import Undo, of_launch, plan_undo
from backfill_assets.errors import UndoError
from backfill_assets.lake.receipts_table import ReceiptsTable
from tests.support.live_shop import event
from tests.support.shop import published_keys, refusals


def add_another(path: Path, order_id: int) -> None:
    """Append a copy of one of the rows with another key, as somebody else."""
    theirs = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    (same, *_) = theirs.slice(0, 1).to_pylist()
    more = pa.Table.from_pylist([{**same, "order_id": order_id}], schema=theirs.schema)
    deltalake.write_deltalake(str(path), more, mode="append")


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


def test_what_is_launched_meanwhile_is_not_carried(shop, monkeypatch: pytest.MonkeyPatch):
    """It was never published when somebody began to carry, and is the source's a moment later: its rows may leave with the source's."""
    shop.stream()
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(2, "2024-01-02T02:00:00"))
    published = ReceiptsTable.newest

    def late(receipts: ReceiptsTable, *, until: int | None = None):
        found = published(receipts, until=until)
        monkeypatch.undo()
        shop.launch("2024-01-02", "2024-01-02")
        return found

    monkeypatch.setattr(ReceiptsTable, "newest", late)
    assert shop.table.carry_live_rows() == 0
    assert shop.ids() == [1, 2]


def test_of_what_was_published_too_long_ago_nothing_is_carried_and_the_rest_is(shop):
    """Where the published rows are cleaned up, theirs cannot be told from them: it says which partitions, and what helps."""
    shop.land(event(4, "2024-01-04T01:00:00"))
    shop.stream()
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"))
    shop.launch("2024-01-02", "2024-01-02")
    shop.move("2024-01-05T00:00:00+00:00")
    add_another(shop.path, 9)
    theirs = deltalake.DeltaTable(str(shop.path))
    theirs.optimize.compact()
    theirs.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    with pytest.raises(UndoError, match="1 partitions, the first of them 2024-01-02") as refused:
        shop.table.carry_live_rows()
    assert "1 rows of the other partitions were carried; these are as they were" in str(refused.value)
    assert "reconcile bronze/orders --explain` names the rows" in str(refused.value)
    assert shop.delta.late(shop.spec.grid.between("2024-01-01", "2024-01-04")).rows == {"2024-01-04": 1}
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(9, "2024-01-02T01:00:00"))
    assert published_keys(shop.launch("2024-01-02", "2024-01-02", discard_uncovered_rows=True)) == ["2024-01-02"]
    assert shop.ids() == [1, 4, 9]


def test_what_a_publish_put_there_is_not_carried_after_an_undo(shop):
    """The undo has put back published rows and another: the source may drop its own, and only the other one is kept."""
    shop.stream()
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(2, "2024-01-02T02:00:00"))
    shop.launch("2024-01-02", "2024-01-02")
    add_another(shop.path, 9)
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00", amount="7.00"), event(2, "2024-01-02T02:00:00"))
    shop.launch("2024-01-02", "2024-01-02", run_id="second", root_run_id="second", discard_uncovered_rows=True)
    undo = Undo("", of_launch("second", []), "undo")
    list(carry_out(shop.spec, shop.delta, undo, plan_undo(shop.spec, shop.delta, undo), Effects()))
    assert shop.ids() == [1, 2, 9]
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"))
    assert "live_rows_are_covered" in refusals(shop.launch("2024-01-02", "2024-01-02"))["2024-01-02"]
    assert [shop.table.carry_live_rows() for _ in range(2)] == [1, 0]
    assert [row["order_id"] for row in shop.rows("_late")] == [9]
    shop.launch("2024-01-02", "2024-01-02", discard_uncovered_rows=True)
    assert shop.ids() == [1, 9]


@pytest.mark.prove
def test_a_live_row_as_new_as_the_sources_is_not_decided_by_carrying(shop):
    """Both have the same time stamp and other values: carried or not it is refused, and says what helps; the source decides it."""
    shop.land(event(1, "2024-01-04T01:00:00", amount="7.00"))
    shop.stream()
    shop.move("2024-01-05T00:00:00+00:00")
    shop.export("2024-01-04", event(1, "2024-01-04T01:00:00", amount="5.00"))
    for carried in (1, 0):
        refused = refusals(shop.launch("2024-01-04", "2024-01-04"))["2024-01-04"]
        assert (
            "--carry-live-rows` keeps those that no publish put there, if they are newer than the source's, and then"
            in refused
        )
        assert shop.table.carry_live_rows() == carried
    shop.export("2024-01-04", event(1, "2024-01-04T01:00:00", amount="7.00"))
    assert published_keys(shop.launch("2024-01-04", "2024-01-04")) == ["2024-01-04"]
