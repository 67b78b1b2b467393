"""The live writer on real Spark and Delta: what lands is in the table once, or beside it with a reason."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from dagster import DagsterExecutionInterruptedError

from backfill_assets.assets.live import batch_metadata
from backfill_assets.errors import (
    FirstBatchLateError,
    SchemaMismatchError,
    StreamMismatchError,
    TableFolderError,
    TableLockedError,
)
from backfill_assets.lake.locks import table_lock
from backfill_assets.live.changed_files import changed_since_listed
from backfill_assets.live.fence_queries import inspect
from backfill_assets.live.live_table import LiveTable
from tests.support.live_shop import Shop, event, live_spec


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


def test_a_batch_has_no_more_files_than_it_may(spark, tmp_path):
    """After an outage `max_files_per_trigger` files are a batch, and the next ones another."""
    live = {"path": "events", "starts": "2024-01-04", "max_files_per_trigger": 2}
    shop = Shop(spark, tmp_path, live_spec(live=live))
    for number in range(5):
        shop.land(event(number, "2024-01-05T10:00:00"))
    assert shop.stream() == 3
    assert shop.ids() == [0, 1, 2, 3, 4]
    assert [report.receipt.rows for report in shop.reports] == [2, 2, 1]


def test_a_stream_of_history_waits_for_a_word(shop):
    """A new stream's batch of late rows is written by no start until it is accepted; then it is batch 0, once."""
    shop.land(*(event(number, "2024-01-02T10:00:00") for number in range(100)))
    for _ in range(2):
        with pytest.raises(FirstBatchLateError, match=r"`events`.*`orders`.*--accept-late"):
            shop.stream()
    assert (shop.rows(), shop.reports, shop.path.with_name("orders_late").exists()) == ([], [], False)

    shop.stream(accept_late=True)
    shop.stream()

    assert shop.ids("_late") == list(range(100))
    assert [report.receipt.batch for report in shop.reports] == [0]


def test_a_table_is_no_stream(shop):
    """A landing folder that is a table is refused before anything is started."""
    (shop.landing / "_delta_log").mkdir()
    with pytest.raises(TableFolderError, match="is a Delta table"):
        shop.stream()
    assert not shop.path.exists()


@pytest.mark.prove
def test_fields_that_no_column_is_read_from_are_named(shop):
    """A field that comes new with the events is counted and named with the batch; the events are written all the same."""
    shop.land({**event(1, "2024-01-05T10:00:00"), "coupon": "X", "note": None}, event(2, "2024-01-05T10:00:00"))
    shop.land({**event(3, "2024-01-03T10:00:00"), "coupon": {"code": 1}}, '{"coupon": broken')
    shop.stream()
    shop.land(event(4, "2024-01-05T10:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2, 4]
    first, second = shop.reports
    assert (first.unread_fields, second.unread_fields) == ({"coupon": 2, "note": 1}, {})
    assert str(first).endswith("; fields that no column is read from: `coupon` in 2 lines, `note` in 1 lines")
    metadata = batch_metadata(shop.reports)
    assert metadata["unread_fields"].value == {"coupon": 2, "note": 1}
    assert "unread_fields" not in batch_metadata([second])


def test_late_events_go_beside_the_table(shop):
    """An event from a microsecond before the fence is late: it is not in the table but in `<table>_late`, with its day."""
    shop.land(event(1, "2024-01-03T23:59:59.999999"), event(2, "2024-01-04T00:00:00"))
    shop.stream()
    assert shop.ids() == [2]
    (late,) = shop.rows("_late")
    assert (late["order_id"], str(late["dt"]), late["_ba_batch"]) == (1, "2024-01-03", 0)
    assert shop.reports[0].receipt.late_rows == 1


def test_what_is_not_an_event_is_quarantined_with_its_reason(shop):
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


@pytest.mark.prove
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


def test_a_running_writer_stops_between_batches(shop):
    """A stop ends the batch at hand; the next start goes on behind it."""
    stop = threading.Event()
    shop.land(event(1, "2024-01-05T10:00:00"))
    writer = shop.writer(report=lambda _: stop.set())
    assert writer.run(stop=stop) == 1
    shop.land(event(2, "2024-01-05T11:00:00"))
    shop.stream()
    assert shop.ids() == [1, 2]


@pytest.mark.prove
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


@pytest.mark.prove
def test_a_listener_that_fails_does_not_stop_the_stream(shop):
    """A batch that cannot be reported, because Dagster's database is locked, say, is written all the same; so are the next."""

    def fails(_):
        raise OSError("database is locked")

    shop.land(event(1, "2024-01-05T10:00:00"))
    assert shop.writer(report=fails).run(once=True) == 1
    assert shop.ids() == [1]
    assert "Batch 0 is written, but could not be reported: OSError: database is locked" in shop.said


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
def test_a_file_that_is_written_in_place_is_named(shop):
    """What is added to a file after the stream has listed it is never read; nor is what replaces it under its name."""

    def changed():
        spark, stream = shop.table.table.spark, shop.table.fence().stream
        found = changed_since_listed(spark, str(shop.root / "checkpoints"), stream, str(shop.landing))
        return None if found is None else ([file.path.rpartition("/")[2] for file in found[0]], found[1])

    assert changed() is None
    shop.land(event(1, "2024-01-05T10:00:00"))
    second = shop.landing / "part 1+2%.json"
    shop.land(event(2, "2024-01-05T11:00:00")).rename(second)
    shop.stream()
    assert changed() == ([], 2)
    with second.open("a") as file:
        file.write("late tail\n")
    assert changed() == ([second.name], 2)
    shop.stream()
    assert shop.ids() == [1, 2]
    shop.land(event(3, "2024-01-05T12:00:00"))
    assert changed() == ([second.name], 2), "a file that was not listed yet may still change"
    older = second.stat().st_mtime - 3_600
    os.utime(second, (older, older))
    assert changed() == ([second.name], 2), "it may be another file, that was moved here with its time"
    second.unlink()
    assert changed() == ([], 2)
    shop.landing.rename(shop.landing.with_name("away"))
    assert changed() == ([], 2)


@pytest.mark.prove
def test_an_event_that_a_slow_clock_kept_out_is_a_gap(shop):
    """What lay in the future by the writer's clock, and does not any more, is in quarantine alone until it lands again."""
    shop.land(event(1, "2024-01-05T10:00:00"))
    shop.stream()
    shop.now -= timedelta(days=1)
    late = [event(number, "2024-01-05T15:00:00") for number in (2, 3)]
    shop.land(*late)
    shop.stream()
    assert shop.ids() == [1]

    def gap() -> str:
        live = shop.spec.live
        at = {"checkpoint": str(shop.root / "checkpoints"), "now": datetime(2024, 1, 20, tzinfo=UTC)}
        found = inspect(shop.table, live, str(shop.landing), **at)
        return next(c.partitions for c in found if c.name == "no_gap_at_fence").get("2024-01-05", "")

    assert "2 events of it are valid now, and in quarantine alone (`ordered_at` lies in the future); land" in gap()
    shop.now += timedelta(days=1)
    shop.land(*late)
    shop.stream()
    assert shop.ids() == [1, 2, 3]
    assert gap() == ""


@pytest.mark.prove
def test_engine_failure_writes_a_batch_once(shop, monkeypatch):
    """If Spark fails in a batch, the batch is written again, and its rows are in the table once."""
    append, failed = LiveTable.append, []

    def fails_after(self, *arguments):
        written = append(self, *arguments)
        if not failed:
            failed.append(1)
            self.table.spark._jvm.java.lang.Class.forName("no.such.Class")
        return written

    monkeypatch.setattr(LiveTable, "append", fails_after)
    shop.land(event(1, "2024-01-05T10:00:00"), event(2, "2024-01-03T10:00:00"))
    assert shop.stream() == 1
    assert (shop.ids(), shop.ids("_late")) == ([1], [2])
    assert any("Attempt 1 of 5 failed" in said and "ClassNotFoundException" in said for said in shop.said)
