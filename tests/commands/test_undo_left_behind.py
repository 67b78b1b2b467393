"""`undo` of a launch of which a table is not the project's any more, or of one that was taken back already."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import Any

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.undo import UNDO_JOB, UNDO_OP
from backfill_assets.core.state.current_versions import Switch
from backfill_assets.lake.table import LakeTable
from backfill_assets.runs import undoing
from backfill_assets.runs.check_history import failed_comparisons, not_passed
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from tests.commands.places import Place, copied
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, TOTALS, Ran, key_of
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = ["2024-01-30", "2024-01-31"]


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Any) -> Place:
    return copied(shop_with_totals, tmp_path / "place")


def undo(place: Place, launch: str, definitions: dg.Definitions, **config: Any) -> Ran:
    job = definitions.resolve_job_def(UNDO_JOB)
    run = place.lake.instance.create_run_for_job(
        job, run_config={"ops": {UNDO_OP: {"config": {"launch": launch, **config}}}}
    )
    return place.lake.execute(job, run)


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
def test_a_launch_by_a_job_of_ones_own_leaves_no_table_behind_either(place):
    """Dagster notes no selection of such a run; what it was to make is in its log."""
    mine = dg.define_asset_job("mine", selection=[key_of(ORDERS), key_of(TOTALS)])
    job = dg.Definitions.merge(place.lake.definitions, dg.Definitions(jobs=[mine])).resolve_job_def("mine")
    tags = {RANGE_START: DAYS[0], RANGE_END: DAYS[0]}
    config = {"ops": {"bronze__orders": {"config": {"rewrite_identical": True}}}}
    run = place.lake.instance.create_run_for_job(job, run_config=config, tags=tags)
    assert run.asset_selection is None
    assert place.lake.execute(job, run).succeeded
    orders_alone = lakehouse_definitions(
        build_lakehouse_table(place.lake.spec), lakehouse=Lakehouse(root=str(place.lake.root))
    )
    refused = undo(place, run.run_id, orders_alone)
    assert f"is of `{TOTALS}` too, which has no definition" in refused.failure


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


@pytest.mark.prove
def test_an_undo_that_is_repeated_says_nothing_of_what_was_compared_since(place):
    """What was found then is what counts, passed or failed, and no table that follows is launched once more."""
    lake = place.lake
    launched = lake.launch(DAYS[0], DAYS[1], rewrite_identical=True)
    assert lake.undo(launched.run.run_id).succeeded
    lake.export(DAYS[1], orders(DAYS[1], 9))
    lake.reconcile(DAYS[0], DAYS[1])
    again = lake.undo(launched.run.run_id)
    assert again.succeeded, again.failure
    assert (again.recorded(), again.verdicts()) == ([], {})
    assert not_passed(lake.instance, Table(lake.spec)).keys() == {DAYS[1]}
    assert failed_comparisons(lake.instance, Table(lake.spec)).keys() == {DAYS[1]}


@pytest.mark.prove
def test_what_a_repeated_undo_tells_of(place, monkeypatch):
    """Of what was put back by a run that could not tell of it, that which was not compared since."""
    lake = place.lake
    launched = lake.launch(DAYS[0], DAYS[1], rewrite_identical=True)
    with monkeypatch.context() as ended:
        ended.setattr(undoing, "record_put_back", lambda *of: {}[KeyError] if of[2] else None)
        assert not lake.undo(launched.run.run_id).succeeded
    lake.export(DAYS[1], orders(DAYS[1], 9))
    time.sleep(1.1)  # receipts have whole seconds
    lake.reconcile(DAYS[1])
    again = lake.undo(launched.run.run_id)
    assert again.succeeded, again.failure
    assert again.recorded() == [DAYS[0]]
    assert not_passed(lake.instance, Table(lake.spec))[DAYS[0]] is None
    assert failed_comparisons(lake.instance, Table(lake.spec)).keys() == {DAYS[1]}


@pytest.mark.prove
def test_a_retired_version_is_not_written_by_an_undo(place):
    """Nobody reads it, and nothing is written into it: it is named, and what was made of it goes back alone."""
    (launched,) = place.lake.instance.get_runs()
    keys, paths = {ORDERS: f"{ORDERS}__v2"}, {f"{ORDERS}__v2": "/elsewhere"}
    given_up = Switch("s", keys, {ORDERS: ORDERS}, paths, "", "", "", (ORDERS,))
    Lakehouse(root=str(place.lake.root)).current_table().switch(given_up)
    before = place.lake.content()
    result = place.run("undo", launched.run_id)
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2, result.output
    assert f"is of `{ORDERS}` too, which is a version that was retired: nothing is written into it any more" in said
    done = place.run("undo", launched.run_id, "--table", TOTALS)
    assert done.exit_code == 0, done.output
    assert (place.lake.content(), place.lake.content(TOTALS)) == (before, type(before)())
