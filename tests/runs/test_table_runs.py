"""Which of Dagster's runs launch a table."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.factory import tables_of
from backfill_assets.runs import table_runs
from backfill_assets.runs.killed import RUN
from backfill_assets.runs.run_tags import launch_job_name
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import (
    WHOLE_JOB,
    is_launch_of,
    newest_launches,
    under_way,
)
from tests.support.fakes import ORDERS, spec_with
from tests.support.under_way import requested

TABLE = Table(spec_with(once={"ranges": {"first_days": "2024-02-26...2024-02-28"}}))
MINE, FLOW, OTHER = TABLE.asset_key, dg.AssetKey(["bronze", "first_days"]), dg.AssetKey(["bronze", "other"])
CHECK, STEP = dg.AssetCheckKey(MINE, "reconciled"), "__".join(MINE.path)
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
        ("its own step again", {"asset_selection": frozenset({MINE, OTHER}), "step_keys_to_execute": [STEP]}, True),
        (
            "the step of another again",
            {"asset_selection": frozenset({MINE, OTHER}), "step_keys_to_execute": ["bronze__other"]},
            False,
        ),
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
    with dg.DagsterInstance.ephemeral() as instance:
        assert is_launch_of(instance, run, TABLE) is launches, what


def definitions() -> dg.Definitions:
    made = build_lakehouse_table(spec_with(key="bronze/orders"))
    mine = dg.define_asset_job("mine", selection=[dg.AssetKey(["bronze", "orders"])])
    alone = dg.define_asset_job(
        "alone", selection=dg.AssetSelection.checks_for_assets(dg.AssetKey(["bronze", "orders"]))
    )
    return dg.Definitions.merge(lakehouse_definitions(made), dg.Definitions(jobs=[mine, alone]))


def test_a_run_of_a_job_of_ones_own_is_a_launch():
    """Before it has begun too: nothing is tagged yet, and nothing was selected. A job of checks alone launches nothing."""
    found, table = definitions(), tables_of(definitions())[0]["bronze/orders"]
    with dg.DagsterInstance.ephemeral() as instance:
        for name, launches in (("mine", True), ("alone", False)):
            run = instance.create_run_for_job(found.resolve_job_def(name), status=dg.DagsterRunStatus.STARTING)
            assert is_launch_of(instance, run, table) is launches
            assert bool(under_way(instance, [table]).runs) is launches
            instance.delete_run(run.run_id)


@pytest.mark.parametrize(
    ("assets", "job_name", "is_its"),
    [
        ([MINE, OTHER], "", True),
        ([FLOW], "", True),
        ([OTHER], "", False),
        ([], launch_job_name(ORDERS), True),
        ([], WHOLE_JOB, True),
        ([], "undo", False),
    ],
)
def test_requested_backfill_is_under_way(assets: list[dg.AssetKey], job_name: str, is_its: bool):
    """Dagster's daemon has made no run of it yet; a backfill of another table does not count."""
    with dg.DagsterInstance.ephemeral() as instance:
        backfill_id = requested(instance, *assets, job_name=job_name)
        assert str(under_way(instance, [TABLE])) == (f"backfill {backfill_id}" if is_its else "")
        launched = newest_launches(instance, {ORDERS.key: TABLE}).get(ORDERS.key)
        assert (launched and (launched.launch_id, launched.standing)) == ((backfill_id, "queued") if is_its else None)


def test_backfill_of_ones_own_job_is_under_way():
    """The job's newest run tells what the job launches; a job of checks launches nothing."""
    found, table = definitions(), tables_of(definitions())[0]["bronze/orders"]
    with dg.DagsterInstance.ephemeral() as instance:
        for name in ("alone", "mine"):
            instance.create_run_for_job(found.resolve_job_def(name), status=dg.DagsterRunStatus.SUCCESS)
            backfill_id = requested(instance, job_name=name)
        assert [one.backfill_id for one in under_way(instance, [table]).backfills] == [backfill_id]


@pytest.mark.parametrize("ended", [BulkActionStatus.CANCELED, BulkActionStatus.COMPLETED_FAILED])
def test_ended_backfill_is_not_under_way(ended: BulkActionStatus):
    """Only the runs that it has started may still go on."""
    with dg.DagsterInstance.ephemeral() as instance:
        requested(instance, MINE, status=ended)
        assert str(under_way(instance, [TABLE])) == ""


def test_a_launch_is_found_behind_the_runs_of_a_schedule(monkeypatch: pytest.MonkeyPatch):
    """A schedule of the minute makes more runs in a day than are looked through: what goes on is found, and what launched."""
    monkeypatch.setattr(table_runs, "RECENT_RUNS", 5)
    found, table = definitions(), tables_of(definitions())[0]["bronze/orders"]
    job, other = found.resolve_implicit_global_asset_job_def(), found.resolve_job_def("alone")
    with dg.DagsterInstance.ephemeral() as instance:
        failed = instance.create_run_for_job(job, status=dg.DagsterRunStatus.FAILURE)
        for _ in range(9):
            instance.create_run_for_job(other, status=dg.DagsterRunStatus.SUCCESS)

        def newest() -> tuple[str, str]:
            launched = newest_launches(instance, {"bronze/orders": table})["bronze/orders"]
            return launched.launch_id, launched.standing

        assert newest() == (failed.run_id, "failed")
        waiting = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        for _ in range(9):
            instance.create_run_for_job(other, status=dg.DagsterRunStatus.SUCCESS)
        assert newest() == (waiting.run_id, "started")
        instance.report_run_canceled(waiting)
        launched = instance.add_run(
            failed._replace(
                run_id="caught-up", job_name=launch_job_name(table.spec), status=dg.DagsterRunStatus.SUCCESS
            )
        )
        for _ in range(9):
            instance.create_run_for_job(other, status=dg.DagsterRunStatus.SUCCESS)
        assert newest() == (launched.run_id, "succeeded"), "whatever job the newest is of"
