"""The launches of a table among Dagster's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from backfill_assets.core.state.backfill_state import NewestLaunch
from backfill_assets.runs.killed import NOT_ENDED, RUN
from backfill_assets.runs.run_tags import launch_job_name, progress_of
from backfill_assets.runs.table import Table

WHOLE_JOB = "__ASSET_JOB"
"""Dagster's own job of all assets."""

RECENT_RUNS = 1_000
"""So many of the newest runs are looked through for the launches of a table."""

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


def newest_launches(
    instance: dg.DagsterInstance, tables: Mapping[str, Table]
) -> dict[str, tuple[dg.RunRecord, NewestLaunch]]:
    """Return the newest launch of each table, and how it stands; tables that were not launched lately are missing."""
    found: dict[str, tuple[dg.RunRecord, NewestLaunch]] = {}
    for record in instance.get_run_records(limit=RECENT_RUNS):
        run = record.dagster_run
        standing = _STANDING.get(run.status)
        for key, table in tables.items():
            if key not in found and standing and is_launch_of(run, table):
                found[key] = record, standing
        if len(found) == len(tables):
            break
    return found


def is_launch_of(run: dg.DagsterRun, table: Table) -> bool:
    """Say whether a run launches, or has launched, a table: one that only evaluates its checks does not.

    A once-flow of the table launches it too. Tags are believed of the run that they are of: Dagster copies them.
    """
    spec = table.spec
    if run.tags.get(RUN) == run.run_id and progress_of(run.tags, spec.key):
        return True
    if run.asset_selection is None:
        return not run.asset_check_selection and run.job_name in (launch_job_name(spec), WHOLE_JOB)
    mine = {table.asset_key, *(dg.AssetKey(flow.key.split("/")) for flow in spec.once_flows)}
    return bool(mine & run.asset_selection)


def launch_in_progress(instance: dg.DagsterInstance, tables: Sequence[Table]) -> str | None:
    """Return the run of a launch of any of some tables that has not ended, if there is one."""
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_ENDED))
    return next((run.run_id for run in runs if any(is_launch_of(run, table) for table in tables)), None)
