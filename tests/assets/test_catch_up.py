"""The schedule that catches up: ticks in this process over a real history, and the launches that they ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table
from backfill_assets.assets.catch_up import history_until
from backfill_assets.assets.live import batch_metadata, live_asset_key
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import TableSpecError
from tests.support.launching import RANGE_END, RANGE_START, Lake, Ran, key_of, new_lake
from tests.support.shop import orders, orders_spec
from tests.support.under_way import requested

DAYS = [f"2024-01-{n:02d}" for n in range(1, 11)]
NIGHT_1 = datetime(2024, 1, 11, 1, tzinfo=UTC)
SPEC = {"catch_up": {"cron": "*/30 1-5 * * *", "max_partitions": 4}}


@pytest.fixture
def lake(tmp_path) -> Lake:
    return new_lake(tmp_path / "lake", **SPEC)


def tick(lake: Lake, at: datetime) -> dg.RunRequest | str:
    """What one tick asks for first, or why it asks for nothing."""
    requests = every_request(lake, at)
    return requests if isinstance(requests, str) else requests[0]


def every_request(lake: Lake, at: datetime) -> list[dg.RunRequest] | str:
    """What one tick asks for, or why it asks for nothing."""
    (schedule,) = [s for s in lake.definitions.schedules or [] if s.name == "catch_up_bronze_orders"]
    evaluated = schedule.evaluate_tick(dg.build_schedule_context(instance=lake.instance, scheduled_execution_time=at))
    return list(evaluated.run_requests or ()) or str(evaluated.skip_message)


def asked(request: dg.RunRequest | dg.DagsterRun | str) -> tuple[str, str]:
    assert not isinstance(request, str), request
    return request.tags[RANGE_START], request.tags[RANGE_END]


def create(
    lake: Lake, request: dg.RunRequest | str, status: dg.DagsterRunStatus = dg.DagsterRunStatus.NOT_STARTED
) -> dg.DagsterRun:
    """The run of a request, as the daemon makes it, not executed."""
    assert isinstance(request, dg.RunRequest), request
    job = lake.definitions.resolve_job_def("launch_bronze_orders")
    return lake.instance.create_run_for_job(
        job_def=job, tags=dict(request.tags), run_config=dict(request.run_config), status=status
    )


def published(lake: Lake, *days: str) -> None:
    """Dagster's record of days that are published."""
    for day in days:
        lake.instance.report_runless_asset_event(dg.AssetMaterialization(key_of("bronze/orders"), partition=day))


def test_the_schedule_is_off_and_keeps_the_tables_time(lake):
    """The schedule is off until switched on, and its hours are those of the table's time zone."""
    lake.changes = {**SPEC, "time_zone": "Europe/Berlin"}
    (schedule,) = [s for s in lake.definitions.schedules or [] if s.name == "catch_up_bronze_orders"]
    assert (schedule.default_status, schedule.cron_schedule) == (dg.DefaultScheduleStatus.STOPPED, "*/30 1-5 * * *")
    assert schedule.execution_timezone == "Europe/Berlin"


def test_ticks_of_a_night_go_through_what_is_missing(lake):
    """Each tick asks for the next piece as one run over a range; what was asked for and stays missing waits for the next night."""
    published(lake, "2024-01-03")
    seen = []
    for number in range(4):
        request = tick(lake, NIGHT_1 + timedelta(minutes=30 * number))
        if isinstance(request, str):
            break
        run = create(lake, request)
        seen.append(asked(request))
        if number == 0:
            assert f"A launch of `bronze/orders` is in progress: run {run.run_id}." == tick(
                lake, NIGHT_1 + timedelta(minutes=15)
            )
        lake.instance.report_run_failed(run)
    assert seen == [("2024-01-01", "2024-01-02"), ("2024-01-04", "2024-01-07"), ("2024-01-08", "2024-01-10")]
    rested = tick(lake, NIGHT_1 + timedelta(hours=4))
    assert rested == (
        "No partition of `bronze/orders` that ends by 2024-01-11 05:00 UTC is missing, apart from those requested in the last 12 hours."
    )
    next_night = every_request(lake, NIGHT_1 + timedelta(days=1))
    assert [asked(request) for request in next_night] == [("2024-01-11", "2024-01-11"), ("2024-01-01", "2024-01-02")], (
        "what was never asked for comes first, and what was asked for last night is asked for again"
    )
    assert len({request.run_key for request in next_night}) == 2


def test_days_of_an_earlier_start_are_missing(lake):
    """A launch has recorded days before the table's start; when the start moves earlier, they are requested."""
    published(lake, *DAYS)
    for day in DAYS[1:3]:
        tags = {"dagster/data_version": "before_start"}
        event = dg.AssetMaterialization(key_of("bronze/orders"), partition=day, tags=tags)
        lake.instance.report_runless_asset_event(event)
    assert asked(tick(lake, NIGHT_1)) == (DAYS[1], DAYS[2])
    published(lake, *DAYS[1:3])
    assert isinstance(tick(lake, NIGHT_1), str), "the newest event of a day counts"


def test_requested_backfill_holds_catch_up(lake):
    """The table is not idle: Dagster's daemon will start runs of the backfill."""
    backfill_id = requested(lake.instance, key_of("bronze/orders"))
    assert tick(lake, NIGHT_1) == f"A launch of `bronze/orders` is in progress: backfill {backfill_id}."


def test_live_partitions_are_not_asked_for(lake):
    """With a live stream only days before the fence are missing: where the spec puts it first, then where the writer last told."""
    lake.changes = {**SPEC, "latest_wins_by": ["ordered_at"], "live": {"path": "events", "starts": "2024-01-03"}}
    published(lake, "2024-01-01")
    assert asked(tick(lake, NIGHT_1)) == ("2024-01-02", "2024-01-02")
    fence = dg.MetadataValue.timestamp(datetime(2024, 1, 5, tzinfo=UTC))
    lake.instance.report_runless_asset_event(
        dg.AssetMaterialization(live_asset_key(lake.spec), metadata={"fence": fence})
    )
    assert asked(tick(lake, NIGHT_1)) == ("2024-01-02", "2024-01-04")
    moved = Fence(datetime(2024, 1, 5, tzinfo=UTC), epoch=2)  # as the schedule of the minute tells where nothing lands
    lake.instance.report_runless_asset_event(
        dg.AssetMaterialization(live_asset_key(lake.spec), metadata=batch_metadata([], moved))
    )
    assert asked(tick(lake, NIGHT_1)) == ("2024-01-02", "2024-01-04")


@pytest.mark.parametrize("cron", ["every night", "0 0 31 2 *"])
def test_a_bad_cron_is_refused(cron):
    """A cron schedule that is none is refused when the definitions load, by its table, with what would be right."""
    with pytest.raises(TableSpecError) as refused:
        build_lakehouse_table(orders_spec(catch_up={"cron": cron}))
    assert str(refused.value) == (
        f"`bronze/orders`: catch_up.cron: `{cron}` is not a cron schedule of five fields (minute, hour, day, month, weekday), for example "
        "`*/30 1-5 * * *`. Nothing was loaded. Correct it in the spec."
    )


# -- with launches -----------------------------------------------------------------------------------------------------


def launched(lake: Lake, request: Any) -> Ran:
    job = lake.definitions.resolve_job_def("launch_bronze_orders")
    run = lake.instance.create_run_for_job(job_def=job, tags=dict(request.tags), run_config=dict(request.run_config))
    return lake.execute(job, run)


@pytest.mark.prove
@pytest.mark.spark
def test_the_fence_that_was_moved_last_counts(tmp_path: Path):
    """A writer that is stopped afterwards tells of its last batches, which were written before it was moved."""
    spec = orders_spec(latest_wins_by=["ordered_at"], live={"path": "events", "starts": "2024-01-04"})
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for day, epoch in ((4, 1), (6, 2), (4, 1)):
            fence = dg.MetadataValue.timestamp(datetime(2024, 1, day, tzinfo=UTC))
            event = dg.AssetMaterialization(live_asset_key(spec), metadata={"fence": fence, "epoch": epoch})
            instance.report_runless_asset_event(event)
        assert history_until(instance, spec, datetime(2030, 1, 1, tzinfo=UTC)) == datetime(2024, 1, 6, tzinfo=UTC)


@pytest.mark.prove
@pytest.mark.usefixtures("spark")
def test_a_source_that_is_not_complete_fails_no_run(lake):
    """Days that the source lacks are left out green, and asked for once a night; when it has them they are published."""
    for day in DAYS[:3]:
        lake.export(day, orders(day))
    first = launched(lake, tick(lake, NIGHT_1))
    assert first.succeeded
    assert first.recorded() == DAYS[:3]
    second = launched(lake, tick(lake, NIGHT_1 + timedelta(minutes=30)))
    assert (asked(second.run), second.succeeded, second.recorded()) == ((DAYS[4], DAYS[7]), True, [])
    assert "the source is complete up to `2024-01-04T00:00:00+00:00`" in second.launch
    third = launched(lake, tick(lake, NIGHT_1 + timedelta(minutes=60)))
    assert (asked(third.run), third.succeeded) == ((DAYS[8], DAYS[9]), True)
    assert isinstance(tick(lake, NIGHT_1 + timedelta(minutes=90)), str)
    assert lake.shown(*DAYS) == dict.fromkeys(DAYS[:3], "materialized") | dict.fromkeys(DAYS[3:], "missing")

    lake.export(DAYS[3], orders(DAYS[3]))
    next_night = NIGHT_1 + timedelta(days=1)
    never, again = every_request(lake, next_night)
    assert asked(never) == ("2024-01-11", "2024-01-11")
    create(lake, never, dg.DagsterRunStatus.SUCCESS)
    assert launched(lake, again).recorded() == [DAYS[3]]
