"""A table that follows the tables that it is made of: when their partitions were published, its own are launched.

A tick asks Dagster alone. Which of the partitions are really stale is found by the launch itself (`only: MISSING`),
which writes nothing where what it is made of has the content that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import BaseModel

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.history.downstream import made_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.runs.killed import NOT_ENDED
from backfill_assets.runs.run_tags import RANGE_END, RANGE_START
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import is_launch_of

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

EVERY_SECONDS = 30
_EVENTS_AT_ONCE, _RANGES_AT_ONCE = 5_000, 20
_NOTHING = "Nothing is new."


class Followed(BaseModel):
    """How far the sensor has come.

    Args:
        until: Storage id of the newest event that was looked at, by input.
        waiting: Keys of partitions that are to be launched as soon as nothing launches the inputs, or this table.
    """

    until: dict[str, int] = {}
    waiting: list[str] = []


def follow_sensor(
    table: Table, specs: Mapping[str, TableSpec], launch_job: UnresolvedAssetJobDefinition
) -> dg.SensorDefinition:
    """Return the sensor that launches what is made of partitions that were published; it is on.

    Args:
        specs: Of all tables of the lakehouse, by key.
        launch_job: Launches the table.
    """
    spec = table.spec
    inputs = {reading.table: Table(specs[reading.table]) for reading in spec.inputs}

    @dg.sensor(
        name=f"follow_{spec.key.replace('/', '_')}",
        job=launch_job,
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Launches the partitions of `{spec.key}` that are made of partitions of "
        f"{', '.join(f'`{key}`' for key in inputs)} that were published, when no launch of these goes on.",
    )
    def follow(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        seen = Followed.model_validate_json(context.cursor) if context.cursor else Followed()
        waiting = set(seen.waiting)
        for key, source in inputs.items():
            waiting |= _touched(context.instance, table, source, seen, is_first=key not in seen.until)
        seen.waiting = sorted(waiting)
        if running := _in_progress(context.instance, [*inputs.values(), table]):
            return _result(seen, f"{len(waiting):,} partitions wait for run {running}." if waiting else _NOTHING)
        partitions = spec.grid.from_start(key for key in seen.waiting if spec.grid.is_key(key))
        ranges = list(runs_of(partitions))[:_RANGES_AT_ONCE]
        launched = {partition.key for part in ranges for partition in part}
        seen.waiting = [partition.key for partition in partitions if partition.key not in launched]
        requests = [_request(spec, part, sum(seen.until.values())) for part in ranges]
        return _result(seen, _NOTHING, requests)

    return follow


def _result(seen: Followed, why: str, requests: list[dg.RunRequest] | None = None) -> dg.SensorResult:
    if requests:
        return dg.SensorResult(run_requests=requests, cursor=seen.model_dump_json())
    return dg.SensorResult(skip_reason=why, cursor=seen.model_dump_json())


def _touched(instance: dg.DagsterInstance, table: Table, source: Table, seen: Followed, *, is_first: bool) -> set[str]:
    """Return the keys of the partitions that are made of what was published since the last look; note how far it is.

    What was found in the table as it would be written has changed nothing; what a run published that has launched
    this table too is followed already. Before the first look nothing is followed.
    """
    spec, key = table.spec, source.spec.key
    if is_first:
        newest = instance.fetch_materializations(source.asset_key, limit=1).records
        seen.until[key] = newest[0].storage_id if newest else 0
        return set()
    after = dg.AssetRecordsFilter(asset_key=source.asset_key, after_storage_id=seen.until[key])
    records = instance.fetch_materializations(after, limit=_EVENTS_AT_ONCE, ascending=True).records
    changed: set[str] = set()
    runs = instance.get_runs(dg.RunsFilter(run_ids=list({record.run_id for record in records}))) if records else []
    both = {run.run_id for run in runs if run.is_success and is_launch_of(run, table)}
    for record in records:
        told = record.asset_materialization
        is_new = told and not {"identical", "left_out"} & told.metadata.keys() and record.run_id not in both
        if told and told.partition and is_new:
            changed.add(told.partition)
        seen.until[key] = max(seen.until[key], record.storage_id)
    partitions = source.spec.grid.from_start(name for name in changed if source.spec.grid.is_key(name))
    return {partition.key for partition in made_of(key, partitions, {spec.key: spec}).get(spec.key, [])}


def _in_progress(instance: dg.DagsterInstance, tables: list[Table]) -> str | None:
    """Return a launch of any of some tables that has not ended, if there is one."""
    for run in instance.get_runs(dg.RunsFilter(statuses=NOT_ENDED)):
        if any(is_launch_of(run, table) for table in tables):
            return run.run_id
    return None


def _request(spec: TableSpec, partitions: list[Partition], seen: int) -> dg.RunRequest:
    inputs = ", ".join(reading.table for reading in spec.inputs)
    config = {"only": "MISSING", "may_find_nothing": True, "reason": f"source changed: follows {inputs}"}
    run_config: dict[str, Any] = {"ops": {spec.key.replace("/", "__"): {"config": config}}}
    return dg.RunRequest(
        run_key=f"{seen} {partitions[0].key}",
        tags={RANGE_START: partitions[0].key, RANGE_END: partitions[-1].key},
        run_config=run_config,
    )
