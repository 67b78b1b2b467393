"""Runs that Dagster believes to be under way."""

from __future__ import annotations

import dagster as dg

from backfill_assets.runs import killed

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
