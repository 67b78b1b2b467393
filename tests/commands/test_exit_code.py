"""What commands exit with: partitions that differ count, what is wrong at the fence does; a launch that is stopped is no answer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.execution.plan.objects import ErrorSource

from backfill_assets.cli import main
from backfill_assets.commands import reconcile
from backfill_assets.core.live.checks import CHECKS
from backfill_assets.lake.table import LakeTable
from tests.commands.places import new_place
from tests.support.shop import orders

ORDERS, LIVE = "bronze/orders", dg.AssetKey(["bronze", "orders_live"])
SAME = {"table_rows": dg.MetadataValue.int(3), "table_checksum": dg.MetadataValue.text("a")}


def answer(evaluations: list[dg.AssetCheckEvaluation]) -> Any:
    found = {"get_asset_check_evaluations": lambda: evaluations, "run_id": "run", "all_events": [], "success": True}
    return SimpleNamespace(**found)


@pytest.mark.parametrize(
    ("failing", "exit_code"),
    [
        ("", 0),
        ("no_gap_at_fence", 1),
        ("live_is_writing", 0),
    ],
)
def test_a_gap_or_an_overlap_makes_the_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path, failing, exit_code):
    """Every partition equals its source: silence and rows that wait are only shown; a gap, an overlap or lines that nobody read are a wrong table."""
    equal = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(["bronze", "orders"]),
        check_name="reconciled",
        passed=True,
        metadata=SAME,
        partition="2024-01-01",
    )
    around = [
        dg.AssetCheckEvaluation(asset_key=LIVE, check_name=name, passed=name != failing, description=f"{name}.")
        for name in CHECKS
    ]

    def run(job: dg.JobDefinition, *_: Any) -> Any:
        return answer(around if job.name.startswith("inspect") else [equal])

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(reconcile, "_run", run)
    monkeypatch.setattr(reconcile, "_wanted", lambda chosen, *_: [chosen.spec.grid.partition("2024-01-01")])
    monkeypatch.setattr(reconcile, "_has_begun", lambda *_: True)

    ran = CliRunner().invoke(main, ["reconcile", ORDERS, "--json"])

    assert ran.exit_code == exit_code, ran.output
    report = json.loads(ran.stdout)
    assert report["passed"] is (exit_code == 0)
    assert [check["check"] for check in report["at_fence"] if not check["passed"]] == ([failing] if failing else [])


@pytest.mark.parametrize(
    ("source", "error", "exit_code"),
    [
        (ErrorSource.INTERRUPT, "DagsterExecutionInterruptedError", 130),
        (ErrorSource.USER_CODE_ERROR, "OperationalError", 2),
        (ErrorSource.FRAMEWORK_ERROR, "DagsterAssetCheckFailedError", 0),  # it has said all, and a check had failed
    ],
)
def test_a_comparison_that_broke_off_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path, source, error, exit_code):
    """It was stopped, or Dagster's database went away: that what it had found by then was equal says nothing of the rest."""

    def execute(*_: Any, **__: Any) -> Any:
        equal = dg.AssetCheckEvaluation(asset_key=dg.AssetKey(["bronze", "orders"]), check_name="reconciled", passed=True, metadata=SAME, partition="2024-01-01")  # fmt: skip
        found = answer([equal])
        found.success = False
        raised = SimpleNamespace(cls_name=error, message="it broke off")
        failed = SimpleNamespace(error_source=source, error=raised, user_failure_data=None)
        found.all_events = [SimpleNamespace(is_step_failure=True, step_failure_data=failed, is_asset_observation=False)]
        return found

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(dg.JobDefinition, "execute_in_process", execute)
    monkeypatch.setattr(reconcile, "_wanted", lambda chosen, *_: [chosen.spec.grid.partition("2024-01-01")])
    ran = CliRunner().invoke(main, ["reconcile", ORDERS, "--partition-range", "2024-01-01...2024-01-01", "--json"])
    assert ran.exit_code == exit_code, ran.output
    assert (ran.stdout == "") is (exit_code != 0)


@pytest.mark.prove
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_command_whose_launch_is_stopped_has_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """Ctrl-C ends Dagster's run first, which takes it for a failure of its own; to whoever pressed it it is none."""
    place = new_place(tmp_path)
    place.lake.export("2024-01-01", orders("2024-01-01", 4))
    file = str(tmp_path / "plan.json")
    assert place.run("plan", ORDERS, "--partition-range", "2024-01-01...2024-01-01", "-o", file).exit_code == 0

    def stopped(*_: Any, **__: Any) -> Any:
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(LakeTable, "overwrite", stopped)
    done = place.run("apply", file)
    assert (done.exit_code, "Stopped." in done.stderr) == (130, True), done.output
