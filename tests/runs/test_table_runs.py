"""Which of Dagster's runs launch a table."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from backfill_assets.runs.killed import RUN
from backfill_assets.runs.run_tags import launch_job_name
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import WHOLE_JOB, is_launch_of
from tests.support.fakes import ORDERS, spec_with

TABLE = Table(spec_with(once={"ranges": {"first_days": "2024-02-26...2024-02-28"}}))
MINE, FLOW, OTHER = TABLE.asset_key, dg.AssetKey(["bronze", "first_days"]), dg.AssetKey(["bronze", "other"])
CHECK = dg.AssetCheckKey(MINE, "reconciled")
SHOWN = {ORDERS.key: "1 of 3 published"}


@pytest.mark.parametrize(
    ("what", "made", "launches"),
    [
        ("its own asset", {"asset_selection": frozenset({MINE, OTHER})}, True),
        ("another asset", {"asset_selection": frozenset({OTHER})}, False),
        ("its once-flow", {"asset_selection": frozenset({FLOW})}, True),
        ("its job", {"job_name": launch_job_name(ORDERS)}, True),
        ("the job of all assets", {"job_name": WHOLE_JOB}, True),
        ("another job", {"job_name": "undo"}, False),
        ("a job that has begun with it", {"job_name": "mine", "tags": {RUN: "run", **SHOWN}}, True),
        ("tags copied from another run", {"job_name": "mine", "tags": {RUN: "first", **SHOWN}}, False),
        ("its checks alone", {"job_name": WHOLE_JOB, "asset_check_selection": frozenset({CHECK})}, False),
        (
            "its checks among assets",
            {"asset_selection": frozenset(), "asset_check_selection": frozenset({CHECK})},
            False,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_which_runs_launch_a_table(what: str, made: dict[str, Any], launches: bool):
    """By what was selected, by Dagster's jobs, and by what the run itself says that it has done."""
    run = dg.DagsterRun(**{"run_id": "run", "job_name": WHOLE_JOB, **made})
    assert is_launch_of(run, TABLE) is launches, what
