"""A launch in whose middle newer code publishes a partition: the run says so and fails, the table keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backfill_assets.lake.table import LakeTable
from backfill_assets.runs.resources import Lakehouse
from tests.runs.scenes import DAY_1, DAY_2
from tests.support.launching import Lake
from tests.support.shop import launch as publish_directly
from tests.support.shop import multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
def test_what_newer_code_published_fails_the_older_run(
    made: Callable[..., Lake], spark: Any, monkeypatch: pytest.MonkeyPatch
):
    """The partition is not recorded by the older run and not replaced; the other one is published and compared."""
    lake = made("other_code")
    lakehouse = Lakehouse(root=str(lake.root))
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    stage, turns = LakeTable.stage, list[str]()

    def stage_while_another_publishes(self: LakeTable, *scan: Any, **known: Any) -> Any:
        staged = stage(self, *scan, **known)
        if not turns:
            turns.append("newer")
            source = lakehouse.source(lake.spec, {}, None, lambda _: None)
            table = lakehouse.table(lake.spec, lambda _: None)
            publish_directly(table, source, lake.spec.grid.between(DAY_2, DAY_2), run_id="B", code_version="newer")
        return staged

    monkeypatch.setattr(LakeTable, "stage", stage_while_another_publishes)
    ran = lake.launch(DAY_1, DAY_2)

    assert f"newer code has published 1 of 2 partitions (first `{DAY_2}`) since this launch began." in ran.failure
    assert ran.recorded() == [DAY_1]
    assert ran.verdicts() == {DAY_1: True}
    receipts = lakehouse.table(lake.spec, lambda _: None).published()
    assert (receipts[DAY_2].receipt.run.id, receipts[DAY_1].receipt.run.id) == ("B", ran.run.run_id)
    assert lake.content() == multiset([*orders(DAY_1), *orders(DAY_2)])
