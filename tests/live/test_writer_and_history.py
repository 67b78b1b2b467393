"""The live writer beside launches of history: late rows are folded, partitions are sealed, and neither does the other's work."""

from __future__ import annotations

from datetime import UTC, datetime

import deltalake
import pytest
from pyspark.errors import StreamingQueryException

from backfill_assets.errors import FenceError, LivePartitionsError
from backfill_assets.live import fence_queries
from backfill_assets.live.fence_queries import inspect
from tests.support.live_shop import Shop, event, live_spec
from tests.support.shop import left_out, published_keys, refusals


def test_late_rows_are_folded_by_the_next_launch(shop):
    """History is the source's rows and all late ones, the newest of each key; folding twice is the same."""
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(2, "2024-01-02T02:00:00"))
    shop.export("2024-01-03", event(3, "2024-01-03T01:00:00"))
    shop.launch("2024-01-02", "2024-01-03")
    shop.land(
        event(2, "2024-01-02T02:00:00", amount="9.00", updated_at="2024-01-05T00:00:00"),
        {**event(4, "2024-01-02T03:00:00"), "amount": None},
        event(3, "2024-01-03T01:00:00"),
    )
    shop.stream()
    assert shop.ids() == [1, 2, 3]
    assert shop.delta.late(shop.spec.grid.between("2024-01-01", "2024-01-03")).rows == {
        "2024-01-02": 2,
        "2024-01-03": 1,
    }
    outcomes = shop.launch("2024-01-02", "2024-01-03", only="missing")
    assert published_keys(outcomes) == ["2024-01-02", "2024-01-03"]
    assert shop.ids() == [1, 2, 3, 4]
    amounts = {row["order_id"]: row["amount"] for row in shop.rows()}
    assert (str(amounts[2]), amounts[4]) == ("9.00", None), "a late event without a value is folded like any other"
    receipts = shop.delta.published()
    assert [receipts[key].partition.late_rows for key in ("2024-01-02", "2024-01-03")] == [2, 1]
    assert receipts["2024-01-02"].partition.superseded_rows == 1
    before = shop.rows()
    assert published_keys(shop.launch("2024-01-02", "2024-01-03", only="missing")) == []
    shop.launch("2024-01-02", "2024-01-03")
    assert sorted(map(str, shop.rows())) == sorted(map(str, before))


@pytest.mark.parametrize("first", ["history", "stream"])
def test_newest_of_history_and_stream_wins(shop, first):
    """Two keys come by both ways, one newer in the export and one in the stream: whichever comes first, each is one row."""
    day, old, new = "2024-01-02", "2024-01-02T01:00:00", "2024-01-05T00:00:00"
    exported = [event(1, old, amount="1.00", updated_at=new), event(2, old, amount="2.00")]
    streamed = [event(1, old, amount="10.00"), event(2, old, amount="20.00", updated_at=new)]
    shop.export(day, *exported)
    if first == "history":
        shop.launch(day, day)
    shop.land(*streamed)
    shop.stream()
    shop.launch(day, day)
    assert sorted((row["order_id"], str(row["amount"])) for row in shop.rows()) == [(1, "1.00"), (2, "20.00")]


@pytest.mark.prove
def test_an_event_before_the_beginning_of_a_history_is_quarantined(spark, tmp_path):
    """No launch could fold it; and late rows from there, of an older package, are asked for by nobody."""
    files = {"kind": "files", "path": "orders", "format": "parquet"}
    before = Shop(spark, tmp_path, live_spec(source=files))
    before.land(event(1, "2024-01-02T01:00:00"), event(2, "2024-01-03T01:00:00"))
    before.stream()
    shop = Shop(spark, tmp_path, live_spec(source={**files, "begin": "2024-01-03"}))
    next(shop.numbers)  # after the file that has landed
    shop.export("2024-01-03", event(3, "2024-01-03T03:00:00"))
    shop.land(event(4, "2024-01-02T01:00:00"))
    shop.stream()
    assert list(shop.table.quarantine.reasons()) == [
        "`ordered_at` lies before the beginning of its history, `source.begin`"
    ]
    later = Shop(spark, tmp_path / "later", live_spec(source={**files, "begin": "2024-01-06"}))
    later.land(event(5, "2024-01-05T01:00:00"), event(6, "2024-01-03T01:00:00"))
    later.stream()
    assert later.ids() == [5], "what the stream owns is no history"
    assert sum(later.table.quarantine.reasons().values()) == 1
    assert fence_queries.status_of(shop.table, shop.delta.published()).stale == {"2024-01-03": 1}
    shop.launch("2024-01-03", "2024-01-03")
    assert fence_queries.status_of(shop.table, shop.delta.published()).stale == {}
    assert shop.ids() == [2, 3]


@pytest.mark.prove
def test_a_late_event_before_the_beginning_of_a_history_is_quarantined(spark, tmp_path):
    """It lies where the stream began and no export reaches, and its day is sealed: a launch of that day is refused, so none would fold it."""
    files = {"kind": "files", "path": "orders", "format": "parquet", "begin": "2024-01-05"}
    shop = Shop(spark, tmp_path, live_spec(source=files))
    shop.land(event(1, "2024-01-04T01:00:00"))
    shop.stream()
    shop.move("2024-01-06T00:00:00+00:00")
    shop.land(event(2, "2024-01-04T02:00:00"), event(3, "2024-01-05T01:00:00"), event(4, "2024-01-06T01:00:00"))
    shop.stream()
    assert shop.ids() == [1, 4]
    assert shop.table.quarantine.reasons() == {
        "`ordered_at` lies in a sealed partition, before the beginning of its history": 1
    }
    assert fence_queries.status_of(shop.table, shop.delta.published()).stale == {"2024-01-05": 1}


def test_history_is_not_launched_for_live_partitions(shop):
    """A launch over the fence is clipped; one wholly behind it is refused, and the table is as it was."""
    for day in ("2024-01-03", "2024-01-04", "2024-01-05"):
        shop.export(day, event(int(day[-2:]), f"{day}T01:00:00"))
    outcomes = shop.launch("2024-01-03", "2024-01-05")
    assert published_keys(outcomes) == ["2024-01-03"]
    assert left_out(outcomes) == dict.fromkeys(
        ("2024-01-04", "2024-01-05"), "they are live: the fence is at 2024-01-04T00:00:00+00:00"
    )
    version = shop.delta.version()
    with pytest.raises(LivePartitionsError, match="seal them"):
        shop.launch("2024-01-04", "2024-01-05")
    assert shop.delta.version() == version


@pytest.mark.prove
def test_sealed_partitions_become_history(shop):
    """The fence moves forward, the live writer goes on behind it, and what it wrote before is overwritten by the source."""
    orders = [event(n, f"2024-01-04T0{n}:00:00") for n in range(1, 4)]
    shop.land(*orders[:2])
    shop.stream()
    move = shop.move("2024-01-04T12:00:00+00:00")
    assert (move.after.at_utc, move.after.epoch, move.after.last_batch) == (
        datetime(2024, 1, 5, tzinfo=UTC),
        move.before.epoch + 1,
        0,
    )
    shop.land(orders[2], event(9, "2024-01-05T09:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2, 9]
    shop.export("2024-01-04", *orders[:2])
    shop.launch("2024-01-04", "2024-01-04")
    assert shop.ids() == [1, 2, 3, 9]


def test_sealing_loses_no_live_row(shop):
    """The first overwrite of a live partition fails if the source lacks a row of it; carried rows are kept beside and folded."""
    shop.land(event(1, "2024-01-04T01:00:00"), event(2, "2024-01-04T02:00:00", amount="7.00"))
    shop.stream()
    shop.move("2024-01-05T00:00:00+00:00")
    shop.export("2024-01-04", event(1, "2024-01-04T01:00:00", amount="5.00", updated_at="2024-01-05T00:00:00"))
    outcomes = shop.launch("2024-01-04", "2024-01-04")
    assert (
        "live_rows_are_covered: 1 rows of a partition with rows that no publish put there"
        in refusals(outcomes)["2024-01-04"]
    )
    assert "order_id=2" in refusals(outcomes)["2024-01-04"]
    assert shop.ids() == [1, 2]
    assert shop.table.carry_live_rows() == 2
    assert shop.table.carry_live_rows() == 0
    shop.launch("2024-01-04", "2024-01-04")
    assert {row["order_id"]: str(row["amount"]) for row in shop.rows()} == {1: "5.00", 2: "7.00"}


def test_moving_the_fence_of_a_table_back_is_refused(shop):
    """Moving back is refused, and the fence stands where it stood."""
    shop.delta.create()
    shop.move("2024-01-05T00:00:00+00:00")
    with pytest.raises(FenceError, match="cannot be moved back"):
        shop.move("2024-01-04T00:00:00+00:00")
    assert shop.delta.fence().at_utc == datetime(2024, 1, 5, tzinfo=UTC)


@pytest.mark.prove
def test_a_stream_that_reads_the_table_stops_at_an_overwrite(spark, shop):
    """What the docs say of Delta streams that read such a table: they fail at an overwrite, or skip it if told to."""
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"))
    shop.launch("2024-01-02", "2024-01-02")

    def read(name: str, **options: str) -> int:
        reader = spark.readStream.format("delta").options(**options).load(str(shop.path))
        writer = (
            reader.writeStream.format("noop")
            .option("checkpointLocation", str(shop.root / name))
            .trigger(availableNow=True)
        )
        query = writer.start()
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    assert read("first") == 1, "the first backfill of an empty partition looks like new rows"
    assert read("skips") == 1
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(2, "2024-01-02T02:00:00"))
    shop.launch("2024-01-02", "2024-01-02")
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        read("first")
    assert read("skips", skipChangeCommits="true") == 0


@pytest.mark.prove
def test_values_of_many_lines_are_no_reasons(shop):
    """All that is quarantined is counted, whatever stands in it; no value of a row is told with why."""
    shop.land(
        *({**event(number, "2024-01-05T10:00:00"), "amount": f"secret [/{number}]\n12 Main St"} for number in range(25))
    )
    shop.stream()
    assert shop.table.quarantine.reasons() == {"`amount` is no decimal(18,2)": 25}
    at = {"checkpoint": str(shop.root / "checkpoints"), "now": shop.now}
    (check,) = (c for c in inspect(shop.table, shop.spec.live, str(shop.landing), **at) if "quarantined" in c.name)
    assert check.what == "25 rows are in quarantine. `amount` is no decimal(18,2): 25."


def test_late_rows_that_were_folded_in_are_not_lost_with_their_table(shop):
    """Somebody deletes late rows because they are in the table already: nothing else has them, so the day stays as it is."""
    day = "2024-01-02"
    shop.export(day, *(event(number, f"{day}T01:00:00") for number in (1, 2, 3)))
    shop.launch(day, day)
    shop.land(event(9, f"{day}T02:00:00"))
    shop.stream()
    shop.launch(day, day)
    assert shop.ids() == [1, 2, 3, 9]
    deltalake.DeltaTable(f"{shop.delta.path}_late").delete()
    shop.export(day, *(event(number, f"{day}T01:00:00") for number in (1, 2, 3, 4)))
    (why,) = refusals(shop.launch(day, day, published=shop.delta.published())).values()
    assert "late_rows_are_kept: its newest publish folded in 1 late rows, and `bronze/orders_late` has 0 now" in why
    assert shop.ids() == [1, 2, 3, 9]
    assert not refusals(shop.launch(day, day, allow_shrink=True, published=shop.delta.published()))
    assert shop.ids() == [1, 2, 3, 4]
