"""The launches of a table among Dagster's runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import dagster as dg
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus, PartitionBackfill
from dagster._core.execution.stats import StepEventStatus

from backfill_assets.core.state.backfill_state import NewestLaunch
from backfill_assets.runs.killed import NOT_ENDED, RUN, process_here, project_of
from backfill_assets.runs.run_tags import launch_job_name, progress_of
from backfill_assets.runs.table import Table

WHOLE_JOB = "__ASSET_JOB"
"""Dagster's own job of all assets."""

RECENT_RUNS = 1_000
"""So many of the newest runs are looked through for the launches of a table."""

BACKFILL_NOT_ENDED = (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING)
"""Of a backfill of Dagster that may still start a run, or is about to end the runs that it has started."""

_AT_MOST = timedelta(hours=12)
"""A run that looks is over sooner."""

_STANDING: Mapping[dg.DagsterRunStatus, NewestLaunch] = {
    dg.DagsterRunStatus.QUEUED: "queued",
    dg.DagsterRunStatus.NOT_STARTED: "queued",
    dg.DagsterRunStatus.STARTING: "queued",
    dg.DagsterRunStatus.STARTED: "started",
    dg.DagsterRunStatus.CANCELING: "started",
    dg.DagsterRunStatus.SUCCESS: "succeeded",
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "canceled",
}


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The launches of some tables that have not ended, as Dagster knows them.

    A backfill that was requested becomes runs when Dagster's daemon looks, up to half a minute later. Until all of its
    runs have ended, it may start another one.
    """

    runs: tuple[dg.DagsterRun, ...] = ()
    backfills: tuple[PartitionBackfill, ...] = ()

    def __str__(self) -> str:
        """Name one of them; empty if there is none."""
        if self.runs:
            return f"run {self.runs[0].run_id}"
        return f"backfill {self.backfills[0].backfill_id}" if self.backfills else ""


def under_way(instance: dg.DagsterInstance, tables: Collection[Table], *, project: str | None = None) -> UnderWay:
    """Return the launches of any of some tables that have not ended: runs, and backfills that may still start runs.

    Args:
        project: If given, without runs that another project has begun on a table of the same key.
    """
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_ENDED))
    if project is not None:
        runs = [run for run in runs if project_of(run) in (None, project)]
    backfills = instance.get_backfills(BulkActionsFilter(statuses=BACKFILL_NOT_ENDED))
    return UnderWay(
        tuple(run for run in runs if any(is_launch_of(instance, run, table) for table in tables)),
        tuple(one for one in backfills if any(_is_backfill_of(instance, one, table) for table in tables)),
    )


@dataclass(frozen=True, slots=True)
class Launched:
    """The newest launch of a table: a run, or a backfill that has not yet started its next run of the table.

    Args:
        launch_id: Of the run, or of the backfill.
        began: Seconds since 1970; of what has not begun, when it was requested.
        ended: Seconds since 1970; None while it goes on.
        run: None for a backfill.
    """

    standing: NewestLaunch
    launch_id: str
    tags: Mapping[str, str]
    began: float
    ended: float | None = None
    has_begun: bool = False
    run: dg.DagsterRun | None = None


def newest_launches(instance: dg.DagsterInstance, tables: Mapping[str, Table]) -> dict[str, Launched]:
    """Return the newest launch of each table, and how it stands; tables that were not launched lately are missing.

    A schedule of the minute makes a thousand runs in less than a day: what goes on is looked for by itself, and so are
    the runs of the jobs that launch. Those of jobs that somebody has defined are found among the newest thousand.
    """
    found: dict[str, Launched] = {}
    for record in _recent(instance, tables, found):
        run = record.dagster_run
        standing = _STANDING.get(run.status)
        for key, table in tables.items():
            if key not in found and standing and is_launch_of(instance, run, table):
                found[key] = _launched(record, standing)
    requested = instance.get_backfills(BulkActionsFilter(statuses=[BulkActionStatus.REQUESTED]))
    for key, table in tables.items():
        newest = found.get(key)
        waiting = next((one for one in requested if _is_backfill_of(instance, one, table)), None)
        if waiting and (newest is None or newest.standing not in ("queued", "started")):
            found[key] = Launched("queued", waiting.backfill_id, waiting.tags, waiting.backfill_timestamp)
    return found


def _launched(record: dg.RunRecord, standing: NewestLaunch) -> Launched:
    run, began = record.dagster_run, record.start_time or record.create_timestamp.timestamp()
    return Launched(standing, run.run_id, run.tags, began, record.end_time, record.start_time is not None, run)


def _recent(
    instance: dg.DagsterInstance, tables: Mapping[str, Table], found: Mapping[str, object]
) -> Iterator[dg.RunRecord]:
    """Yield records of runs, the newest first, as long as a table is not found."""
    going_on = instance.get_run_records(dg.RunsFilter(statuses=NOT_ENDED))
    newest = instance.get_run_records(limit=RECENT_RUNS)
    yield from sorted({one.storage_id: one for one in [*going_on, *newest]}.values(), key=_age, reverse=True)
    if len(newest) == RECENT_RUNS and len(found) < len(tables):
        older = [*instance.get_run_records(dg.RunsFilter(job_name=WHOLE_JOB), limit=RECENT_RUNS)]
        for key, table in tables.items():
            if key not in found:
                older += instance.get_run_records(dg.RunsFilter(job_name=launch_job_name(table.spec)), limit=1)
        yield from sorted(older, key=_age, reverse=True)


def _age(record: dg.RunRecord) -> int:
    return record.storage_id


def is_launch_of(instance: dg.DagsterInstance, run: dg.DagsterRun, table: Table) -> bool:
    """Say whether a run launches, or has launched, a table: one that only evaluates its checks does not.

    A once-flow of the table launches it too. Tags are believed of the run that they are of: Dagster copies them. Of a
    run that executes some steps again, these count; of one of a job that somebody has defined, Dagster's plan of it.
    """
    spec, mine = table.spec, assets_of(table)
    if run.tags.get(RUN) == run.run_id and progress_of(run.tags, spec.key):
        return True
    if run.step_keys_to_execute is not None:
        return any(key.to_python_identifier() in run.step_keys_to_execute for key in mine)
    if run.asset_selection is not None:
        return bool(mine & run.asset_selection)
    if run.asset_check_selection or run.job_name in (launch_job_name(spec), WHOLE_JOB):
        return not run.asset_check_selection
    steps = _steps(instance, run.execution_plan_snapshot_id) if run.execution_plan_snapshot_id else ()
    return any(key.to_python_identifier() in steps for key in mine)


def assets_of(table: Table) -> set[dg.AssetKey]:
    """Return the assets that launch a table: its own, and its once-flows."""
    return {table.asset_key, *(dg.AssetKey.from_user_string(flow.key) for flow in table.spec.once_flows)}


def _is_backfill_of(instance: dg.DagsterInstance, backfill: PartitionBackfill, table: Table) -> bool:
    """Say whether a backfill launches a table. Of a job that somebody has defined, its newest run tells."""
    if backfill.asset_selection is not None:
        return bool(assets_of(table) & set(backfill.asset_selection))
    job_name = backfill.job_name
    if job_name in (None, WHOLE_JOB, launch_job_name(table.spec)):
        return job_name is not None
    return any(
        is_launch_of(instance, run, table) for run in instance.get_runs(dg.RunsFilter(job_name=job_name), limit=1)
    )


@lru_cache(maxsize=256)
def _steps(instance: dg.DagsterInstance, snapshot_id: str) -> frozenset[str]:
    """Return the steps that a run executes; runs of one job have one plan."""
    if not instance.run_storage.has_execution_plan_snapshot(snapshot_id):
        return frozenset()
    return frozenset(instance.get_execution_plan_snapshot(snapshot_id).step_keys_to_execute)


def told_by_launch(instance: dg.DagsterInstance, run_id: str, table: Table) -> set[str] | None:
    """Return the keys of the partitions which the launch of a table, in a run of which it was a step, has told of.

    Returns:
        None where the run has no such step, or the step has not succeeded.
    """
    steps = instance.get_run_step_stats(run_id, step_keys=[table.asset_key.to_python_identifier()])
    if not any(step.status == StepEventStatus.SUCCESS for step in steps):
        return None
    told = set[str]()
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        event = entry.get_dagster_event()
        if event.asset_key == table.asset_key and event.partition:
            told.add(event.partition)
    return told


def still_running(instance: dg.DagsterInstance, job_name: str) -> str | None:
    """Return the run of a job that looks, or writes what has landed, if one goes on.

    One that has not ended after `_AT_MOST` is taken for killed where nobody can tell: at worst two look at once.
    """
    since = datetime.now(UTC) - _AT_MOST
    for record in instance.get_run_records(dg.RunsFilter(job_name=job_name, statuses=NOT_ENDED)):
        if record.create_timestamp >= since or process_here(record.dagster_run):
            return record.dagster_run.run_id
    return None
