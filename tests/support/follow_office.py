"""A Dagster instance with the sensor of a table that follows, tick after tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, TOTALS, TOTALS_SPEC, daily_totals, key_of
from tests.support.shop import orders_spec

ASSET_MATERIALIZATION = DagsterEventType.ASSET_MATERIALIZATION.value
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
FOLLOWING = TableSpec.model_validate({**TOTALS_SPEC.model_dump(exclude_unset=True), "follow": True})
MONTHLY = TableSpec.model_validate({**TOTALS_SPEC.model_dump(exclude_unset=True), "follow": True, "grain": "monthly"})


class Office:
    """A Dagster instance, and the sensor, tick after tick."""

    def __init__(self, instance: dg.DagsterInstance, spec: TableSpec = FOLLOWING, root: str = ""):
        self.instance, self.cursor = instance, None
        self.definitions = lakehouse_definitions(
            build_lakehouse_table(orders_spec()),
            build_lakehouse_table(spec, daily_totals, inputs={ORDERS: orders_spec()}),
            lakehouse=Lakehouse(root=root),
        )

    def tick(self) -> Any:
        """Return what is asked for, or why nothing is."""
        sensor = self.definitions.resolve_sensor_def("follow_silver_daily_totals")
        data = sensor.evaluate_tick(dg.build_sensor_context(self.instance, cursor=self.cursor))
        self.cursor = data.cursor
        return data.run_requests or str(data.skip_message)

    def asked(self, ended: dg.DagsterRunStatus | None = dg.DagsterRunStatus.SUCCESS) -> list[tuple[str, str]]:
        """Return the ranges that are asked for, after their runs have ended; None: there never was one."""
        requests = self.tick()
        assert not isinstance(requests, str), requests
        job = self.definitions.resolve_job_def("launch_silver_daily_totals")
        for request in requests if ended else ():
            self.instance.create_run_for_job(job, tags=tags_of(request), status=ended)
        ends = ("start", "end")
        return [tuple(r.tags[f"dagster/asset_partition_range_{end}"] for end in ends) for r in requests]

    def published(self, *days: str, metadata: Mapping[str, Any] | None = None) -> None:
        for day in days:
            event = dg.AssetMaterialization(key_of(ORDERS), partition=day, metadata=metadata)
            self.instance.report_runless_asset_event(event)

    def launching(
        self, *tables: str, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED, **tags: str
    ) -> dg.DagsterRun:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        part = job.get_subset(asset_selection=frozenset(map(key_of, tables)))
        return self.instance.create_run_for_job(part, asset_selection=part.asset_selection, status=status, tags=tags)

    def published_with_this_table(self, first: str, last: str) -> None:
        """What a run leaves that has launched both over a range."""
        tags = {RANGE_START: first, RANGE_END: last}
        run = self.launching(ORDERS, TOTALS, status=dg.DagsterRunStatus.SUCCESS, **tags)
        for partition in FOLLOWING.grid.between(first, last):
            data = StepMaterializationData(dg.AssetMaterialization(key_of(ORDERS), partition=partition.key), [])
            event = DagsterEvent(ASSET_MATERIALIZATION, job_name=run.job_name, event_specific_data=data)
            self.instance.report_dagster_event(event, run.run_id)


def tags_of(request: Any) -> dict[str, str]:
    """The tags of the run that Dagster's daemon makes of a request."""
    return {**request.tags, "dagster/run_key": request.run_key}
