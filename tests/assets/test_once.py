"""Once-flows in Dagster: each loads its range once, says so, stays done, and runs again after a reset."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.runs import killed as runs
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
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


# -- the life of a flow ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """One flow: run, run again, reset by its config, reset by the command."""

    first: Ran
    content_first: Any
    second: Ran
    again: Ran
    content_again: Any
    versions: dict[str, int]
    listed: dict[str, Any]
    reset: dict[str, Any]
    after_reset: Ran


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
    again = then("again", run_flow(lake, again=True, reason="once more"))
    content_again = lake.content()
    listed = command(lake)
    reset = command(lake, "--reset", "all")
    versions["reset"] = version(lake)
    after_reset = then("after_reset", run_flow(lake))
    return Life(first, content_first, second, again, content_again, versions, listed, reset, after_reset)


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


def test_again_runs_it_again(life: Life):
    """`again: true` makes one commit without rows that resets the flow, and loads the whole range from the source as it is now."""
    assert life.again.succeeded, life.again.failure
    assert life.again.recorded(ORDERS) == list(EARLY)
    assert life.versions["again"] == life.versions["second"] + 2
    assert life.content_again == table_of(EARLY[0], EARLY[2]) + table_of(EARLY[1], customer="corrected")
    assert said(life.again)["done_by"] == life.again.run.run_id


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
    assert life.versions["reset"] == life.versions["again"] + 1
    assert states(life.reset) == dict.fromkeys(RANGES, "never run")


def test_a_flow_runs_again_after_a_reset(life: Life):
    """The next launch of a flow that was reset publishes its whole range."""
    assert life.after_reset.recorded(ORDERS) == list(EARLY)


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
