"""The live writer on real Spark and Delta: what lands is in the table once, or beside it with a reason."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import UTC, datetime

import pytest
from dagster import DagsterExecutionInterruptedError
from pyspark.errors import StreamingQueryException

from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import (
    FenceError,
    LivePartitionsError,
    SchemaMismatchError,
    SourceMissingError,
    StreamMismatchError,
    TableLockedError,
)
from backfill_assets.lake.locks import table_lock
from tests.live.shop import event, live_spec
from tests.support.shop import left_out, published_keys, refusals


def test_events_are_appended_at_or_after_the_fence(shop):
    """Each event that landed is in its partition once; the exact instant of the fence is live."""
    shop.land(event(1, "2024-01-04T00:00:00"), event(2, "2024-01-05T10:00:00"))
    shop.land(event(3, "2024-01-06T11:59:59.999999"))
    assert shop.stream() == 1
    assert [(row["order_id"], str(row["dt"])) for row in sorted(shop.rows(), key=lambda r: r["order_id"])] == [
        (1, "2024-01-04"),
        (2, "2024-01-05"),
        (3, "2024-01-06"),
    ]
    assert shop.rows()[0]["ordered_at"].tzinfo is not None


def test_a_restart_writes_only_what_is_new(shop):
    """A writer that is started again goes on where it was."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    shop.stream()
    shop.land(event(2, "2024-01-05T11:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2]
    assert [report.receipt.batch for report in shop.reports] == [0, 1]


def test_late_events_go_beside_the_table(shop):
    """An event from a microsecond before the fence is late: it is not in the table but in `<table>_late`, with its day."""
    shop.land(event(1, "2024-01-03T23:59:59.999999"), event(2, "2024-01-04T00:00:00"))
    shop.stream()
    assert shop.ids() == [2]
    (late,) = shop.rows("_late")
    assert (late["order_id"], str(late["dt"]), late["_ba_batch"]) == (1, "2024-01-03", 0)
    assert shop.reports[0].receipt.late_rows == 1


def test_late_rows_are_folded_by_the_next_launch(shop):
    """History is the source's rows and all late ones, the newest of each key; folding twice is the same."""
    shop.export("2024-01-02", event(1, "2024-01-02T01:00:00"), event(2, "2024-01-02T02:00:00"))
    shop.export("2024-01-03", event(3, "2024-01-03T01:00:00"))
    shop.launch("2024-01-02", "2024-01-03")
    shop.land(
        event(2, "2024-01-02T02:00:00", amount="9.00", updated_at="2024-01-05T00:00:00"),
        event(4, "2024-01-02T03:00:00"),
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
    assert {row["order_id"]: str(row["amount"]) for row in shop.rows()}[2] == "9.00"
    receipts = shop.delta.published()
    assert [receipts[key].partition.late_rows for key in ("2024-01-02", "2024-01-03")] == [2, 1]
    assert receipts["2024-01-02"].partition.superseded_rows == 1
    before = shop.rows()
    assert published_keys(shop.launch("2024-01-02", "2024-01-03", only="missing")) == []
    shop.launch("2024-01-02", "2024-01-03")
    assert sorted(map(str, shop.rows())) == sorted(map(str, before))


def test_what_is_no_event_is_quarantined_with_its_reason(shop):
    """A line that cannot be parsed, a missing time, a wrong type, the far future: each is beside the table with its reason."""
    shop.land(
        event(1, "2024-01-05T10:00:00"),
        "{broken",
        {"order_id": 2, "amount": "1", "updated_at": "2024-01-05T10:00:00Z"},
        {**event(3, "2024-01-05T10:00:00"), "amount": "a lot"},
        event(4, "2024-01-06T13:00:00"),
        event(5, "2023-12-31T23:59:59"),
        {**event(6, "2024-01-05T10:00:00"), "ordered_at": "2024-01-05T10:00:00"},
    )
    shop.stream()
    assert shop.ids() == [1]
    reasons = sorted(row["reason"] for row in shop.rows("_quarantine"))
    assert [reason.partition(":")[0] for reason in reasons] == [
        "`amount` is no decimal(18,2)",
        "`ordered_at` is NULL",
        "`ordered_at` is no timestamp with a zone (`timestamps_without_zone` would give it one)",
        "`ordered_at` lies before the table's start",
        "`ordered_at` lies in the future",
        "not one JSON object",
    ]
    assert {row["line"] for row in shop.rows("_quarantine")} >= {"{broken"}
    assert sum(shop.table.quarantine.reasons().values()) == 6
    assert shop.reports[0].receipt.quarantined_rows == 6


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
    assert "live_rows_are_covered: 1 rows of the table, which no publish put there" in refusals(outcomes)["2024-01-04"]
    assert "order_id=2" in refusals(outcomes)["2024-01-04"]
    assert shop.ids() == [1, 2]
    assert shop.table.carry_live_rows(shop.delta.published()) == 2
    assert shop.table.carry_live_rows(shop.delta.published()) == 0
    shop.launch("2024-01-04", "2024-01-04")
    assert {row["order_id"]: str(row["amount"]) for row in shop.rows()} == {1: "5.00", 2: "7.00"}


def test_a_fence_does_not_move_back(shop):
    """Moving back is refused, and the fence stands where it stood."""
    shop.delta.create()
    shop.move("2024-01-05T00:00:00+00:00")
    with pytest.raises(FenceError, match="cannot be moved back"):
        shop.move("2024-01-04T00:00:00+00:00")
    assert shop.delta.fence().at_utc == datetime(2024, 1, 5, tzinfo=UTC)


def test_a_checkpoint_belongs_to_one_table_and_folder(shop):
    """The checkpoint of another folder, and a new checkpoint for a table that has a stream, are refused."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    elsewhere = shop.root / "landing" / "elsewhere"
    elsewhere.mkdir()
    writer = shop.writer()
    writer.folder = str(elsewhere)
    with pytest.raises(StreamMismatchError, match="belongs to `bronze/orders` with the events in"):
        writer.run(once=True)
    with pytest.raises(StreamMismatchError, match="two streams would write the same events twice"):
        shop.stream(checkpoint=str(shop.root / "another"))
    assert shop.ids() == [1]
    shop.stream()
    assert shop.ids() == [1]


def test_a_new_stream_may_follow_when_nothing_could_come_twice(shop):
    """After the checkpoint is lost a new stream is refused while live rows are there, and allowed once they are sealed."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    lost = {"checkpoint": str(shop.root / "another")}
    with pytest.raises(StreamMismatchError, match="would write them again"):
        shop.writer(**lost).run(once=True, is_new_stream=True)
    shop.stream()
    shop.move("2024-01-06T00:00:00+00:00")
    shop.land(event(2, "2024-01-06T10:00:00"))
    shop.writer(**lost).run(once=True, is_new_stream=True)
    assert shop.ids() == [1, 2]
    assert [row["order_id"] for row in shop.rows("_late")] == [1]
    shop.export("2024-01-05", event(1, "2024-01-05T10:00:00"))
    shop.launch("2024-01-05", "2024-01-05")
    assert shop.ids() == [1, 2]


def test_a_landing_folder_that_is_not_there_is_named(shop):
    """Nothing is started for a folder that does not exist."""
    shop.landing.rmdir()
    with pytest.raises(SourceMissingError, match="where events should land"):
        shop.stream()


def test_a_running_writer_stops_between_batches(shop):
    """A stop ends the batch at hand; the next start goes on behind it."""
    stop = threading.Event()
    shop.land(event(1, "2024-01-05T10:00:00"))
    writer = shop.writer(report=lambda _: stop.set())
    assert writer.run(stop=stop) == 1
    shop.land(event(2, "2024-01-05T11:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2]


def test_a_writer_that_is_interrupted_writes_no_more(shop):
    """Whatever ends the wait, as Dagster does when it stops a run, ends the query too: its lock is free for another one."""

    class Stop(threading.Event):
        def wait(self, timeout=None):
            if shop.reports:
                raise DagsterExecutionInterruptedError
            return super().wait(timeout)

    shop.land(event(1, "2024-01-05T10:00:00"))
    with pytest.raises(DagsterExecutionInterruptedError):
        shop.writer().run(stop=Stop())
    shop.land(event(2, "2024-01-05T11:00:00"))
    time.sleep(1)
    assert shop.ids() == [1]
    assert shop.spark.streams.active == []
    shop.stream()
    assert shop.ids() == [1, 2]


def test_a_listener_that_fails_does_not_stop_the_stream(shop):
    """A batch that cannot be reported, because Dagster's database is locked, say, is written all the same; so are the next."""

    def fails(_):
        raise OSError("database is locked")

    shop.land(event(1, "2024-01-05T10:00:00"))
    assert shop.writer(report=fails).run(once=True) == 1
    assert shop.ids() == [1]
    assert "Batch 0 is written, but could not be reported: OSError: database is locked" in shop.said


def test_an_old_file_is_read_too(shop):
    """A file keeps its time when it is copied with it: however old it is, its events are written."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    old = shop.land(event(2, "2024-01-05T11:00:00"))
    os.utime(old, (0, 1_000_000_000))
    shop.stream()
    older = shop.land(event(3, "2024-01-05T12:00:00"))
    os.utime(older, (0, 500_000_000))
    shop.stream()
    assert shop.ids() == [1, 2, 3]


def test_a_table_without_a_stream_has_no_fence(shop):
    """The spec must name the stream."""
    shop.spec = live_spec(live=None)
    assert shop.delta.fence() is None


def test_the_fence_is_read_as_it_is_now(shop):
    """A fence that another engine stored is seen at once: no session keeps an old one."""
    shop.delta.create()
    assert shop.delta.fence() == Fence(datetime(2024, 1, 4, tzinfo=UTC))
    moved = Fence(datetime(2024, 1, 9, tzinfo=UTC), 7, 41, "another")
    log = shop.path / "_delta_log"
    (metadata,) = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines() if "metaData" in line]
    metadata["metaData"]["configuration"] |= moved.properties()
    (log / f"{1:020d}.json").write_text(json.dumps(metadata) + "\n")
    assert shop.delta.fence() == moved


def test_a_table_with_other_columns_than_the_spec_is_refused(shop):
    """A spec that changed under a stream stops it before anything is read; the events wait."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    columns = {**{name: c.type for name, c in shop.spec.columns.items()}, "coupon": "string"}
    shop.spec = live_spec(columns=columns)
    shop.land(event(2, "2024-01-05T11:00:00"))
    with pytest.raises(SchemaMismatchError, match="`coupon` is missing"):
        shop.stream()
    shop.spec = live_spec()
    shop.stream()
    assert shop.ids() == [1, 2]


def test_a_second_writer_is_refused_while_one_runs(shop):
    """Two writers with one checkpoint would hand the same files out twice: the second one says who is in the way."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    with (
        table_lock(str(shop.root / "checkpoints"), timeout_seconds=1),
        pytest.raises(TableLockedError, match="held by another writer"),
    ):
        shop.stream()
    shop.stream()
    assert shop.ids() == [1]


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
