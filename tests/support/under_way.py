"""Runs and backfills that Dagster believes to be under way."""

from __future__ import annotations

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemotePartitionSetOrigin,
    RemoteRepositoryOrigin,
)

from backfill_assets.runs import killed

HERE = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
"""A project, as Dagster names it in what waits for its daemon."""

GONE = 4_194_305
"""An id that no process has: Linux counts to 4,194,304."""


def under_way(instance: dg.DagsterInstance, pid: int, **other_tags: str) -> str:
    """Make a run that says it lives in a process of this machine; return its id."""
    from dagster._core.test_utils import create_run_for_test
    from dagster._core.utils import make_new_run_id

    run_id = make_new_run_id()
    tags = {**killed.process_tags(run_id, pid), **other_tags}
    create_run_for_test(instance, run_id=run_id, job_name="somewhere", status=dg.DagsterRunStatus.STARTED, tags=tags)
    return run_id


def requested(
    instance: dg.DagsterInstance,
    *assets: dg.AssetKey,
    job_name: str = "",
    status: BulkActionStatus = BulkActionStatus.REQUESTED,
) -> str:
    """Make a backfill that Dagster's daemon has not looked at yet, of assets or of a job; return its id."""
    backfill = PartitionBackfill(
        backfill_id=f"backfill{len(instance.get_backfills())}",
        status=status,
        from_failure=False,
        tags={},
        backfill_timestamp=1_700_000_000.0,
        asset_selection=assets or None,
        partition_set_origin=RemotePartitionSetOrigin(
            repository_origin=HERE, partition_set_name=f"{job_name}_partition_set"
        )
        if job_name
        else None,
        partition_names=["2024-01-01"] if job_name else None,
    )
    instance.add_backfill(backfill)
    return backfill.backfill_id
