"""A Dagster instance with the sensor that tells of alerts, tick after tick."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster._core.events import DagsterEvent, JobFailureData, RunFailureReason
from dagster._core.execution.plan.objects import StepFailureData, UserFailureData

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.live import COMMITTED_AT
from backfill_assets.assets.reconciliation import RECONCILIATION, UNRECONCILED_KEYS, check_name
from backfill_assets.runs.killed import tag_with_process
from backfill_assets.runs.launch_report import REFUSED
from backfill_assets.runs.resources import Lakehouse
from tests.support.launching import RANGE_END, RANGE_START
from tests.support.shop import orders_spec

TABLE, DAY, NEXT = "bronze/orders", "2024-01-01", "2024-01-02"
KEY, LIVE = dg.AssetKey(["bronze", "orders"]), dg.AssetKey(["bronze", "orders_live"])
STREAM = {"path": "events", "starts": "2024-06-01", "silent_after_seconds": 120, "max_lag_seconds": 20}
SPEC = orders_spec(latest_wins_by=["ordered_at"], live=STREAM)


class Office:
    """A Dagster instance, and the sensor, tick after tick, with the cursor that Dagster keeps for it."""

    def __init__(self, instance: dg.DagsterInstance, project: str = ""):
        self.instance, self.cursor, self.lakehouse = instance, None, Lakehouse(project=project)
        self.definitions = lakehouse_definitions(build_lakehouse_table(SPEC), lakehouse=self.lakehouse)

    def tick(self) -> str:
        sensor = self.definitions.resolve_sensor_def(self.lakehouse.own_name("alerts"))
        context = dg.build_sensor_context(self.instance, cursor=self.cursor)
        data = sensor.evaluate_tick(context)
        self.cursor = data.cursor
        return str(data.skip_message)

    def run_that_fails(self, why: str = "", *, begun: bool = False) -> dg.DagsterRun:
        """A launch of the table.

        Args:
            begun: Whether the run has begun, in a process of this project.
        """
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        run = self.instance.create_run_for_job(job, asset_selection={KEY}, status=dg.DagsterRunStatus.STARTED)
        if begun:
            tag_with_process(self.instance, run.run_id, self.lakehouse.project)
        self.instance.report_run_failed(run, why or None)
        return run

    def refused(self, whys: dict[str, str], *, killed: bool = False) -> dg.DagsterRun:
        """A launch that was refused days, each for a reason.

        Args:
            killed: Whether another step of the run was killed.
        """
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        run = self.instance.create_run_for_job(job, asset_selection={KEY}, status=dg.DagsterRunStatus.STARTED)
        for day in whys:
            self.check(False, partition=day)
        told = [{"why": why, "partitions": [day]} for day, why in whys.items()]
        failure = StepFailureData(
            error=None,
            user_failure_data=UserFailureData("failure", "Days were refused.", {REFUSED: dg.MetadataValue.json(told)}),
        )
        event = DagsterEvent(
            "STEP_FAILURE", job_name=run.job_name, step_key="bronze__orders", event_specific_data=failure
        )
        self.instance.report_dagster_event(event, run.run_id)
        ended = None if killed else JobFailureData(error=None, failure_reason=RunFailureReason.STEP_FAILURE)
        self.instance.report_run_failed(run, job_failure_data=ended)
        return run

    def planned(self, day: str) -> dg.DagsterRun:
        """A launch of a day that has not begun: Dagster has planned the check of the day."""
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        tags = {RANGE_START: day, RANGE_END: day}
        return self.instance.create_run_for_job(job, tags=tags, asset_selection=job.asset_selection)

    def check(self, passed: bool, *, asset: dg.AssetKey = KEY, name: str = "reconciled", **more: Any) -> None:
        severity = more.pop("severity", dg.AssetCheckSeverity.ERROR)
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        run = more.pop("run", None) or self.instance.create_run_for_job(job, asset_selection=set())
        evaluation = dg.AssetCheckEvaluation(
            asset_key=asset, check_name=name, passed=passed, severity=severity, **{"metadata": {"rows": 1}, **more}
        )
        event = DagsterEvent("ASSET_CHECK_EVALUATION", job_name=run.job_name, event_specific_data=evaluation)
        self.instance.report_dagster_event(event, run.run_id)

    def gaps(self, *days: str) -> None:
        metadata = {UNRECONCILED_KEYS: dg.MetadataValue.json(list(days))} if days else {"unreconciled": 0}
        asset = dg.AssetKey(self.lakehouse.own_name(RECONCILIATION))
        self.check(not days, asset=asset, name=check_name(TABLE), metadata=metadata, description=f"{datetime.now(UTC)}")

    def batch(self, lag: float = 1.0, batches: int = 1, written: datetime | None = None) -> None:
        """An event of the stream.

        Args:
            batches: 0 if nothing had landed.
            written: When its newest batch was committed; None if it never had one.
        """
        metadata: dict[str, Any] = {"batches": batches, **({"lag_seconds": lag} if batches else {})}
        metadata |= {COMMITTED_AT: dg.MetadataValue.timestamp(written)} if written else {}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(LIVE, metadata=metadata))
