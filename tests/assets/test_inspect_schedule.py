"""The schedule that looks around a fence: on by default, and quiet until there is something to look at."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.killed import process_tags
from tests.support.shop import orders_spec

LIVE = dg.AssetKey(["bronze", "orders_live"])
SPEC = orders_spec(latest_wins_by=["ordered_at"], live={"path": "events", "starts": "2024-01-03"})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def schedule() -> dg.ScheduleDefinition:
    definitions = lakehouse_definitions(build_lakehouse_table(SPEC))
    return definitions.resolve_schedule_def("inspect_bronze_orders_hourly")


def tick(instance: dg.DagsterInstance) -> dg.ScheduleEvaluationContext | object:
    return schedule().evaluate_tick(dg.build_schedule_context(instance))


def test_a_stream_is_looked_at_without_anybody_asking(instance: dg.DagsterInstance):
    """It is on when the code is loaded, off the hour, and runs the job with the checks around the fence, which write nothing."""
    made = schedule()
    assert (made.default_status, made.cron_schedule) == (dg.DefaultScheduleStatus.RUNNING, "17 * * * *")
    assert made.job_name == "inspect_bronze_orders"
    instance.report_runless_asset_event(dg.AssetMaterialization(LIVE))
    assert len(tick(instance).run_requests) == 1


def test_a_stream_that_has_not_begun_is_not_looked_at(instance: dg.DagsterInstance):
    """A table whose stream never wrote a batch is no outage, and no JVM is started to find that out."""
    assert tick(instance).skip_message == "Its stream has not written a batch yet."


def test_a_look_that_was_killed_is_followed_by_another(instance: dg.DagsterInstance):
    """A process that is gone looks no more, whoever started it; the same holds every night."""
    instance.report_runless_asset_event(dg.AssetMaterialization(LIVE))
    instance.report_runless_asset_event(dg.AssetMaterialization(SPEC.key.split("/"), partition="2024-01-01"))
    definitions = lakehouse_definitions(build_lakehouse_table(SPEC))
    for name, job in (
        ("inspect_bronze_orders_hourly", "inspect_bronze_orders"),
        ("reconciliation_nightly", "reconciliation_job"),
    ):
        run = instance.create_run_for_job(definitions.resolve_job_def(job), status=dg.DagsterRunStatus.STARTED)
        ended = subprocess.Popen(["true"])
        tags = process_tags(run.run_id, ended.pid)
        ended.wait()
        instance.add_run_tags(run.run_id, tags)
        looked = definitions.resolve_schedule_def(name).evaluate_tick(dg.build_schedule_context(instance))
        assert len(looked.run_requests) == 1


def test_one_look_at_a_time(instance: dg.DagsterInstance):
    """While one still looks no other begins."""
    instance.report_runless_asset_event(dg.AssetMaterialization(LIVE))
    job = lakehouse_definitions(build_lakehouse_table(SPEC)).resolve_job_def("inspect_bronze_orders")
    run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert tick(instance).skip_message == f"Run {run.run_id} is still looking."
