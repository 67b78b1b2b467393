"""The live stream in Dagster: an asset of its own, its checks around the fence, its schedules, and the tables made from its table."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import deltalake
import pyarrow as pa
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.live import LiveReporter, stale_partitions
from backfill_assets.core.live.checks import CHECKS
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.live.writer import BatchReport
from backfill_assets.runs import killed as runs
from tests.support.launching import ORDERS, TOTALS, Lake, Ran, new_lake
from tests.support.shop import json_line, orders, orders_spec, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY_1, DAY_2, DAY_3, DAY_4 = (f"2024-01-0{n}" for n in range(1, 5))
LIVE = dg.AssetKey(["bronze", "orders_live"])
SPEC = {"latest_wins_by": ["ordered_at"], "live": {"path": "events", "starts": DAY_3}}


@pytest.fixture
def lake(tmp_path) -> Lake:
    made = new_lake(tmp_path / "lake", **SPEC)
    for day in (DAY_1, DAY_2):
        made.export(day, orders(day))
    (made.root / "landing" / "events").mkdir(parents=True)
    return made


def land(lake: Lake, name: str, *rows: Any) -> None:
    lines = [row if isinstance(row, str) else json_line(row) for row in rows]
    (lake.root / "landing" / "events" / f"{name}.json").write_text("".join(f"{line}\n" for line in lines))


def write(lake: Lake) -> Ran:
    """Write what has landed, as the schedule does."""
    return lake._execute(lake.definitions.resolve_job_def("live_bronze_orders"), None, None, {}, None)


def inspect(lake: Lake) -> dict[str, Any]:
    """Evaluate the checks around the fence."""
    ran = lake._execute(lake.definitions.resolve_job_def("inspect_bronze_orders"), None, None, {}, None)
    assert ran.run.status == dg.DagsterRunStatus.SUCCESS, ran.log
    found = {}
    for entry in ran.entries:
        if entry.dagster_event and entry.dagster_event.event_type_value == "ASSET_CHECK_EVALUATION":
            evaluation = entry.asset_check_evaluation
            found[evaluation.check_name] = evaluation
    return found


@pytest.mark.prove
def test_writing_what_landed_is_a_materialization(lake):
    """The live asset's event tells what was written; a launch of history adds nothing to it."""
    land(lake, "a", *orders(DAY_3), orders(DAY_1, 1, customer="late")[0], "{broken")
    assert write(lake).run.status == dg.DagsterRunStatus.SUCCESS
    lake.launch(DAY_1, DAY_2)
    (event,) = lake.instance.fetch_materializations(LIVE, limit=10).records
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert {name: metadata[name] for name in ("batches", "rows", "late_rows", "quarantined_rows", "epoch")} == {
        "batches": 1, "rows": 3, "late_rows": 1, "quarantined_rows": 1, "epoch": 2,
    }  # fmt: skip
    assert metadata["fence"] == datetime(2024, 1, 3, tzinfo=UTC).timestamp()
    assert metadata["lag_seconds"] > 0
    assert write(lake).run.status == dg.DagsterRunStatus.SUCCESS
    (event, _) = lake.instance.fetch_materializations(LIVE, limit=10).records
    later = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert (later["batches"], later["last_batch_at"]) == (0, metadata["last_batch_at"]), "that is no younger batch"


@pytest.mark.prove
def test_a_run_that_writes_is_signed_by_its_process(lake):
    """Else nobody could tell that it was killed, and the schedule would wait for it for ever."""
    assert write(lake).run.tags[runs.PID] == str(os.getpid())


@pytest.mark.prove
def test_all_is_green_around_a_fence_that_is_right(lake):
    """History is whole, the live day holds what landed, nothing waits: every check passes."""
    lake.launch(DAY_1, DAY_2)
    land(lake, "a", *orders(DAY_3))
    write(lake)
    found = inspect(lake)
    assert set(found) == set(CHECKS)
    assert {name: e.description for name, e in found.items() if not e.passed} == {}

    landing = lake.root / "landing" / "events"
    landing.rename(landing.with_name("away"))
    wrong = {name: e.description for name, e in inspect(lake).items() if not e.passed}
    assert list(wrong) == ["no_gap_at_fence"]
    assert f"`{landing}`, where its events landed, is not there" in wrong["no_gap_at_fence"]


@pytest.mark.prove
def test_each_check_sees_what_it_is_for(lake, monkeypatch):
    """Silence, a gap in history and among the live days, an overlap, late rows and a broken line: each check names its own."""
    lake.changes = {**SPEC, "live": {**SPEC["live"], "silent_after_seconds": 120}}
    lake.launch(DAY_1, DAY_1)
    land(lake, "a", *orders(DAY_3), *orders(DAY_4), orders(DAY_1, 1, customer="late")[0], "{broken")
    write(lake)
    table = deltalake.DeltaTable(str(lake.path()))
    deltalake.write_deltalake(table, one_row(table, DAY_1), mode="append")
    deltalake.DeltaTable(str(lake.path())).delete(f"dt = '{DAY_4}' AND customer = 'customer 1'")
    time.sleep(1.1)
    with (lake.root / "landing" / "events" / "a.json").open("a") as file:
        file.write("\n")
    clock = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(seconds=121))
    monkeypatch.setattr("backfill_assets.assets.live.datetime", clock)
    found = inspect(lake)
    assert [name for name, e in found.items() if e.passed] == []
    assert "More than 120 s is an outage" in found["live_is_writing"].description
    gaps = found["no_gap_at_fence"]
    assert gaps.metadata["partitions"].value == [DAY_2, DAY_4]
    assert f"| {DAY_2} | before the fence, and not published |" in gaps.metadata["which"].value
    assert "live and closed: the table has 2 rows, and 3 events landed" in gaps.metadata["which"].value
    overlap = found["no_overlap_at_fence"]
    assert overlap.metadata["partitions"].value == [DAY_1]
    assert "published with 3 rows, and has 4" in overlap.description
    assert found["late_rows_are_folded"].metadata["partitions"].value == [DAY_1]
    assert found["late_rows_are_folded"].severity == dg.AssetCheckSeverity.WARN
    assert "not one JSON object: 1" in found["nothing_is_quarantined"].description
    assert (
        "1 of 1 files have changed since the stream listed them (`file:/"
        in found["landed_files_are_as_read"].description
    )
    assert found["no_gap_at_fence"].severity == dg.AssetCheckSeverity.ERROR


def one_row(table: deltalake.DeltaTable, day: str) -> pa.Table:
    """A row that somebody else appends to a day."""
    rows = pa.table(table.to_pyarrow_table())
    one = rows.slice(0, 1).to_pylist()[0]
    return pa.Table.from_pylist(
        [
            {
                **one,
                "order_id": 99,
                "dt": datetime.fromisoformat(day).date(),
                "ordered_at": datetime.fromisoformat(f"{day}T05:00:00+00:00"),
            }
        ],
        schema=rows.schema,
    )


@pytest.mark.prove
def test_late_rows_are_launched_by_the_schedule(lake):
    """The schedule asks for the stale partitions that the check named, as ranges; after that launch none is stale."""
    lake.launch(DAY_1, DAY_2)
    land(lake, "a", *(orders(day, 1, order_id=n, customer="late")[0] for n, day in enumerate((DAY_1, DAY_2))))
    write(lake)
    assert requested(lake) == []
    inspect(lake)
    assert stale_partitions(lake.instance, LIVE) == [DAY_1, DAY_2]
    (request,) = requested(lake)
    tags = {name: value for name, value in request.tags.items() if "range" in name}
    assert sorted(tags.values()) == [DAY_1, DAY_2]
    job = lake.definitions.resolve_job_def("launch_bronze_orders")
    ran = lake._execute(job, DAY_1, DAY_2, request.run_config, None)
    assert ran.run.status == dg.DagsterRunStatus.SUCCESS, ran.log
    assert len(rows_in(lake.path())) == 8
    assert inspect(lake)["late_rows_are_folded"].passed
    assert requested(lake) == []


def test_what_is_only_kept_is_launched_by_nobody():
    """`late: keep` folds nothing: the same launch would be asked for every night."""
    names = {
        late: {schedule.name for schedule in lakehouse_definitions(build_lakehouse_table(kept)).schedules or []}
        for late in ("fold", "keep", "ignore")
        for kept in [
            orders_spec(latest_wins_by=["ordered_at"], live={"path": "e", "starts": "2024-01-04", "late": late})
        ]
    }
    folds = {late for late, some in names.items() if any(name.startswith("fold_late") for name in some)}
    assert folds == {"fold"}
    assert all("inspect_bronze_orders_hourly" in some for some in names.values())


def requested(lake: Lake) -> list[dg.RunRequest]:
    (schedule,) = [s for s in lake.definitions.schedules or [] if s.name == "fold_late_bronze_orders"]
    context = dg.build_schedule_context(
        instance=lake.instance, scheduled_execution_time=datetime(2024, 1, 5, tzinfo=UTC)
    )
    return list(schedule.evaluate_tick(context).run_requests or [])


def test_the_minute_schedule_waits_for_a_run_that_still_writes(lake):
    """No second writer is started while one runs."""
    (schedule,) = [s for s in lake.definitions.schedules or [] if s.name == "live_bronze_orders_every_minute"]
    context = dg.build_schedule_context(
        instance=lake.instance, scheduled_execution_time=datetime(2024, 1, 5, tzinfo=UTC)
    )
    assert len(schedule.evaluate_tick(context).run_requests or []) == 1
    job = lake.definitions.resolve_job_def("live_bronze_orders")
    lake.instance.create_run_for_job(job_def=job)
    assert "is still writing" in (schedule.evaluate_tick(context).skip_message or "")


def test_a_running_writer_tells_dagster_now_and_then(lake):
    """Batches are told of together, not each by itself; the last ones when the writer ends."""
    reporter = LiveReporter(lambda: lake.instance, LIVE, every_seconds=3600)
    for number in range(5):
        receipt = LiveReceipt(f"r{number}", ORDERS, "a1", 1, number, "2024-01-03T00:00:00+00:00", rows=10)
        reporter.saw(BatchReport(receipt, 1.5 + number, 0.5, datetime.now(UTC)))
    assert len(lake.instance.fetch_materializations(LIVE, limit=10).records) == 1
    reporter.record()
    newest, _ = lake.instance.fetch_materializations(LIVE, limit=10).records
    metadata = {name: value.value for name, value in newest.asset_materialization.metadata.items()}
    assert (metadata["batches"], metadata["rows"], metadata["last_batch"], metadata["lag_seconds"]) == (4, 40, 4, 5.5)


@pytest.mark.prove
def test_tables_made_from_a_streamed_one_stay_right(lake):
    """Totals are of published days only, follow a fold, and never see the live rows of a day that is not sealed."""
    land(lake, "a", *orders(DAY_3))
    write(lake)
    lake.launch(DAY_1, DAY_2, tables=(ORDERS, TOTALS))
    assert not lake.launch(DAY_3, tables=(TOTALS,)).succeeded
    before = {row["dt"].isoformat() for row in rows_in(lake.path(TOTALS))}
    assert before == {DAY_1, DAY_2}
    land(lake, "b", orders(DAY_1, 1, order_id=7, customer="late")[0])
    write(lake)
    lake.launch(DAY_1, DAY_2, only="MISSING", tables=(ORDERS, TOTALS))
    counted = {row["dt"].isoformat(): row for row in rows_in(lake.path(TOTALS))}
    assert set(counted) == {DAY_1, DAY_2}
    assert {value for row in counted.values() for name, value in row.items() if name == "orders"} == {3, 4}
