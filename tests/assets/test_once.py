"""Once-flows in Dagster: each loads its range once, says so, stays done, and runs again after a reset."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.lake.evolution import evolve
from backfill_assets.runs import killed as runs
from backfill_assets.runs.check_history import failed_comparisons
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from tests.assets.flows import (
    DAYS,
    EARLY,
    FLOW,
    RANGES,
    command,
    run_flow,
    said,
    states,
    table_of,
    version,
    with_days,
)
from tests.support.launching import ORDERS, Lake, Ran, key_of, new_lake
from tests.support.shop import COLUMNS, orders, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


# -- the life of a flow ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """One flow: run, run again, after a correction, in a new Dagster, reset by its config, reset by the command."""

    lake: Lake
    first: Ran
    content_first: Any
    second: Ran
    corrected: Ran
    elsewhere: Ran
    again: Ran
    content_again: Any
    retried: Ran
    versions: dict[str, int]
    listed: dict[str, Any]
    reset: dict[str, Any]
    after_launch: dict[str, Any]
    after_reset: Ran
    remade: Ran


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    lake = with_days(tmp_path_factory.mktemp("life"), *DAYS)
    versions: dict[str, int] = {}

    def then(name: str, ran: Ran) -> Ran:
        versions[name] = version(lake)
        return ran

    first = then("first", run_flow(lake, max_partitions_per_chunk=2, reason="history for the model"))
    content_first = lake.content()
    second = then("second", run_flow(lake))
    lake.export(DAYS[1], orders(DAYS[1], customer="corrected"))
    then("correction", lake.launch(DAYS[1]))
    corrected = then("corrected", run_flow(lake))
    without_history = new_lake(lake.root / "elsewhere").instance
    elsewhere = then("elsewhere", run_flow(Lake(lake.root, without_history, lake.changes)))
    again = then("again", run_flow(lake, again=True, reason="once more"))
    content_again = lake.content()
    job = lake.definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=frozenset({key_of(f"bronze/{FLOW}")})
    )
    retried = then(
        "retried", lake._execute(job, None, None, {"ops": {f"bronze__{FLOW}": {"config": {"again": True}}}}, again)
    )
    listed = command(lake)
    reset = command(lake, "--reset", "all")
    versions["reset"] = version(lake)
    lake.launch(DAYS[4])  # fills the copy of the receipts beyond the reset
    after_launch = command(lake)
    after_reset = then("after_reset", run_flow(lake))
    shutil.rmtree(lake.path())
    remade = then("remade", run_flow(lake))
    return Life(
        lake, first, content_first, second, corrected, elsewhere, again, content_again, retried, versions, listed, reset,
        after_launch, after_reset, remade,
    )  # fmt: skip


def test_a_flow_publishes_its_range_and_nothing_else(life: Life):
    """The partitions of the range are in the table as another reader sees them; those of other flows are not."""
    assert life.first.succeeded, life.first.failure
    assert life.content_first == table_of(*EARLY)


def test_the_table_has_the_events_and_checks_of_an_ordinary_launch(life: Life):
    """Each partition of the table is recorded once, with its metadata, and its check is evaluated."""
    assert life.first.recorded(ORDERS) == list(EARLY)
    assert life.first.metadata(EARLY[0])["dagster/partition_row_count"] == 3
    assert life.first.metadata(EARLY[0])["reason"] == "history for the model"
    assert life.first.verdicts() == dict.fromkeys(EARLY, True)


@pytest.mark.prove
def test_a_flow_says_what_it_did(life: Life):
    """Its own materialization has rows, partitions, commits, and who did it when."""
    found = said(life.first)
    assert (found["state"], found["dagster/row_count"], found["partitions"], found["commits"]) == ("done", 9, 3, 2)
    assert (found["done_by"], found["range"]) == (life.first.run.run_id, RANGES[FLOW])
    assert found["done_at"].endswith("+00:00")
    assert "| published |" in found["launch"]


def test_a_second_run_makes_no_commit(life: Life):
    """The table's version stays; log and metadata say that it is done already, since when and by which run."""
    assert life.second.succeeded
    assert life.versions["second"] == life.versions["first"]
    assert life.second.recorded(ORDERS) == []
    found = said(life.second)
    assert (found["state"], found["commits"], found["done_by"]) == ("already done", 0, life.first.run.run_id)
    assert found["done_at"] == said(life.first)["done_at"]
    assert f"by run {life.first.run.run_id}. It is done already: this run has written nothing." in life.second.log


def test_a_run_of_a_flow_is_signed_before_it_reads(life: Life):
    """One that finds it done has launched nothing, and is found dead all the same if it is killed meanwhile."""
    assert life.second.run.tags[runs.PID] == str(os.getpid())


def test_a_correction_does_not_make_it_run_again(life: Life):
    """After an ordinary launch has rewritten one of its partitions the flow is still done."""
    assert life.versions["corrected"] == life.versions["correction"] == life.versions["first"] + 1
    assert said(life.corrected)["state"] == "already done"


def test_what_was_done_does_not_depend_on_dagsters_database(life: Life):
    """A Dagster without any history finds in the table's log that the flow is done."""
    assert life.versions["elsewhere"] == life.versions["corrected"]
    assert said(life.elsewhere)["done_by"] == life.first.run.run_id


def test_again_runs_it_again(life: Life):
    """`again: true` makes one commit without rows that resets the flow, and loads the whole range from the source as it is now."""
    assert life.again.succeeded, life.again.failure
    assert life.again.recorded(ORDERS) == list(EARLY)
    assert life.versions["again"] == life.versions["elsewhere"] + 2
    assert life.content_again == table_of(EARLY[0], EARLY[2]) + table_of(EARLY[1], customer="corrected")
    assert said(life.again)["done_by"] == life.again.run.run_id


@pytest.mark.prove
def test_a_retry_of_again_does_not_begin_anew(life: Life):
    """When Dagster executes such a run again, what the first attempt has done is not done twice."""
    assert life.versions["retried"] == life.versions["again"]
    assert said(life.retried)["state"] == "already done"


def test_the_command_lists_the_flows(life: Life):
    """Each flow with its state, when, which run and how many rows."""
    early, later = life.listed["flows"]
    assert (early["state"], early["rows"], early["published"], early["run_id"]) == ("done", 9, 3, life.again.run.run_id)
    assert (early["asset"], early["range"]) == (f"bronze/{FLOW}", RANGES[FLOW])
    assert early["at"] >= early["reset_at"]
    assert (later["state"], later["rows"], later["partitions"], later["at"]) == ("never run", 0, 2, None)


def test_the_command_resets(life: Life):
    """A reset is one commit for each flow that had run; no row is touched, and the flow counts as never run."""
    assert life.reset["reset"] == [FLOW]
    assert life.versions["reset"] == life.versions["retried"] + 1
    assert states(life.reset) == dict.fromkeys(RANGES, "never run")


def test_a_reset_outlives_the_copy_of_the_receipts(life: Life):
    """The copy has the reset as a row without a partition, and a launch that fills it further does not hide it."""
    assert states(life.after_launch) == dict.fromkeys(RANGES, "never run")
    resets = [row for row in rows_in(f"{life.lake.path()}_receipts") if row["kind"] == "reset"]
    assert [(row["flow"], row["partition"], row["rows"]) for row in resets] == [(FLOW, None, None)] * 2


def test_a_flow_runs_again_after_a_reset(life: Life):
    """The next launch of a flow that was reset publishes its whole range."""
    assert life.after_reset.recorded(ORDERS) == list(EARLY)


@pytest.mark.prove
def test_a_flow_runs_again_for_a_table_that_is_made_again(life: Life):
    """When the table is deleted and made again the flow runs by itself: the receipts of the old table do not count."""
    assert life.remade.recorded(ORDERS) == list(EARLY)
    assert said(life.remade)["state"] == "done"
    assert life.lake.content() == table_of(EARLY[0], EARLY[2]) + table_of(EARLY[1], customer="corrected")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_a_flow_that_failed_half_way_continues_with_the_rest(tmp_path: Path):
    """A refused partition fails the flow; what passed is published and stays; the next run does the rest only."""
    lake = with_days(tmp_path, EARLY[0], EARLY[2])
    failed = run_flow(lake)
    assert not failed.succeeded
    assert "1 of 3 partitions were refused (2024-01-02)" in failed.failure
    assert failed.recorded(ORDERS) == [EARLY[0], EARLY[2]]
    assert failed.recorded(f"bronze/{FLOW}") == []
    assert states(command(lake))[FLOW] == "partly"

    lake.export(EARLY[1], orders(EARLY[1]))
    ran = run_flow(lake)
    assert ran.succeeded, ran.failure
    assert ran.recorded(ORDERS) == [EARLY[1]]
    assert ran.verdicts() == dict.fromkeys(EARLY, True)
    assert (said(ran)["state"], said(ran)["commits"], said(ran)["partitions"]) == ("done", 1, 3)
    assert "has published 2 of its 3 partitions" in ran.log
    assert lake.content() == table_of(*EARLY)


@pytest.mark.prove
def test_a_flow_goes_on_after_a_column_was_added(tmp_path: Path):
    """What was published before has the rows of its receipt; its checksum is of fewer columns, and nobody is accused."""
    lake = with_days(tmp_path, EARLY[0], EARLY[2])
    assert not run_flow(lake).succeeded
    lake.changes = {**lake.changes, "columns": {**COLUMNS, "channel": {"type": "string", "optional": True}}}
    evolve(Lakehouse(root=str(lake.root)).table(lake.spec, lambda _: None))
    lake.export(EARLY[1], orders(EARLY[1]))
    ran = run_flow(lake)
    assert ran.succeeded, ran.failure
    assert ran.verdicts() == dict.fromkeys(EARLY, True)
    by_day = {day: ran.evaluations()[day].metadata["rows_match_source"].value for day in EARLY}
    assert by_day[EARLY[1]] == "holds"
    assert "holds by count alone: it was published with other columns" in by_day[EARLY[0]]


@pytest.mark.prove
def test_a_flow_that_goes_on_hides_no_difference(tmp_path: Path):
    """Of what an earlier run of it has published a day differs from its source since: that it is as published is no news."""
    lake = with_days(tmp_path, EARLY[0], EARLY[2])
    assert not run_flow(lake).succeeded
    lake.export(EARLY[0], orders(EARLY[0], 5))
    assert lake.reconcile(EARLY[0]).verdicts() == {EARLY[0]: False}
    lake.export(EARLY[1], orders(EARLY[1]))
    ran = run_flow(lake)
    assert ran.succeeded, ran.failure
    assert ran.verdicts() == {EARLY[1]: True, EARLY[2]: True}
    assert failed_comparisons(lake.instance, Table(lake.spec)).keys() == {EARLY[0]}


@pytest.mark.prove
def test_a_flow_whose_source_is_not_complete_is_not_done(tmp_path: Path):
    """What the source has is published; the flow fails, names what is left and why, and the next run goes on."""
    lake = with_days(tmp_path, *EARLY[:2])
    ran = run_flow(lake)
    assert "1 are left, the first `2024-01-03`: the source is not complete for them yet" in ran.failure
    assert (ran.recorded(ORDERS), ran.recorded(f"bronze/{FLOW}")) == (list(EARLY[:2]), [])
    lake.export(EARLY[2], orders(EARLY[2]))
    assert run_flow(lake).recorded(ORDERS) == [EARLY[2]]


# -- in the graph ------------------------------------------------------------------------------------------------------


def test_flows_stand_beside_their_table(tmp_path: Path):
    """A flow is an asset of the table's layer without partitions and without an edge: no launch of the table drags it along."""
    lake = with_days(tmp_path)
    graph = lake.definitions.resolve_asset_graph()
    node = graph.get(key_of(f"bronze/{FLOW}"))
    assert (node.group_name, node.is_partitioned, node.parent_keys, node.child_keys) == ("bronze", False, set(), set())
    assert "dagster/kind/once" in node.tags
    assert node.description
    assert "from `2024-01-01` to `2024-01-03`, both included, exactly once" in node.description


def test_flows_do_not_decide_the_code_version(tmp_path: Path):
    """Adding a flow leaves published partitions as fresh as they were."""

    def code_version(made: Callable[[], Lake]) -> str | None:
        return made().definitions.resolve_asset_graph().get(key_of(ORDERS)).code_version

    assert code_version(lambda: with_days(tmp_path / "with")) == code_version(lambda: new_lake(tmp_path / "without"))
