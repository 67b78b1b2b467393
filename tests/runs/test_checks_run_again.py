"""Checks of a launch that are run again without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.api import create_execution_plan

from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.seen import Seen
from tests.runs.scenes import DAY_1, DAY_2
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, Lake, key_of
from tests.support.shop import folder_of, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
def test_checks_that_are_run_again_without_their_launch_look_afresh(made: Callable[..., Lake]):
    """A run that died before its checks is executed again from there: that the table is as its receipt says is not enough."""
    lake = made("from failure")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    assert lake.launch(DAY_1, DAY_2).succeeded
    lake.export(DAY_2, orders(DAY_2, customer="changed since"))
    job = lake.definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=frozenset({key_of(ORDERS)})
    )
    run = lake.instance.create_run_for_job(
        job_def=job,
        execution_plan=create_execution_plan(job, step_keys_to_execute=["bronze_orders_checks"]),
        tags={RANGE_START: DAY_1, RANGE_END: DAY_2},
        asset_selection=job.asset_selection,
    )
    again = lake.execute(job, run)
    assert "bronze__orders" not in again.steps
    assert again.verdicts() == {DAY_1: True, DAY_2: False}


@pytest.mark.prove
def test_checks_in_another_process_go_by_what_the_launch_has_told(made: Callable[..., Lake], monkeypatch: Any):
    """As where each step has a process: what was published is held against its receipt, what was left out is not judged."""
    lake = made("another process")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    assert lake.launch(DAY_1, DAY_2).succeeded
    monkeypatch.setattr(Lakehouse, "seen", lambda *_: Seen())
    lake.export(DAY_1, orders(DAY_1, customer="changed since"))
    folder_of(lake.root / "landing/orders", DAY_2).rename(lake.root / "late")
    found = lake.launch(DAY_1, DAY_2, may_find_nothing=True)
    assert found.succeeded, "the source of one day is not complete, which is no failure"
    assert found.recorded() == [DAY_1]
    assert found.verdicts() == {DAY_1: True, DAY_2: False}
    assert found.evaluations()[DAY_2].severity == dg.AssetCheckSeverity.WARN
