"""Checks of a launch that are run again without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dagster._core.execution.api import create_execution_plan

from tests.runs.scenes import DAY_1, DAY_2
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, Lake, key_of
from tests.support.shop import orders

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
