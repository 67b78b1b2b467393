"""`undo` of a launch of which a table is not the project's any more, or of one that was taken back already."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.undo import UNDO_JOB, UNDO_OP
from backfill_assets.lake.table import LakeTable
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, copied
from tests.support.launching import ORDERS, TOTALS, Ran

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Any) -> Place:
    return copied(shop_with_totals, tmp_path / "place")


def undo(place: Place, launch: str, definitions: dg.Definitions, **config: Any) -> Ran:
    job = definitions.resolve_job_def(UNDO_JOB)
    run = place.lake.instance.create_run_for_job(
        job, run_config={"ops": {UNDO_OP: {"config": {"launch": launch, **config}}}}
    )
    return place.lake.execute(job, run)


@pytest.mark.prove
def test_an_undo_that_is_stopped_says_what_it_did(place, monkeypatch):
    """By Ctrl-C, or in the UI: one table is back, the other is named; the same command does the rest."""
    (launched,) = place.lake.instance.get_runs()
    restore, commits = LakeTable.restore, count(1)

    def stopped(*arguments: Any, **more: Any) -> Any:
        if next(commits) == 2:
            raise dg.DagsterExecutionInterruptedError
        return restore(*arguments, **more)

    monkeypatch.setattr(LakeTable, "restore", stopped)
    done = place.run("undo", launched.run_id, "--json")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert "It ended half-way: It was stopped." in told["failure"]
    actions = {one["table"]: {p["action"] for p in one["partitions"]} for one in told["tables"]}
    assert sorted(map(sorted, actions.values())) == [["kept"], ["restored"]]
    assert place.run("undo", launched.run_id).exit_code == 0
    assert not place.lake.content()


@pytest.mark.prove
def test_a_table_that_has_no_definition_any_more_is_named(place):
    """The totals were launched too, and left the project: the orders go back alone if somebody says so."""
    (launched,) = place.lake.instance.get_runs()
    orders_alone = lakehouse_definitions(
        build_lakehouse_table(place.lake.spec), lakehouse=Lakehouse(root=str(place.lake.root))
    )
    before = place.lake.content(), place.lake.content(TOTALS)
    refused = undo(place, launched.run_id, orders_alone)
    assert not refused.succeeded
    assert (
        f"is of `{TOTALS}` too, which has no definition in this project any more. Nothing was written."
        in refused.failure
    )
    assert (place.lake.content(), place.lake.content(TOTALS)) == before
    assert undo(place, launched.run_id, orders_alone, tables=[ORDERS]).succeeded
    assert not place.lake.content()
    assert place.lake.content(TOTALS) == before[1]
