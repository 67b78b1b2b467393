"""What the next launch records of runs that died before they could say what they published."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from backfill_assets.core.history.outcomes import Published
from backfill_assets.runs import killed as runs
from backfill_assets.runs import undoing
from backfill_assets.runs.check_history import not_passed
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from tests.runs.scenes import DAY_1, DAY_2, DAY_3
from tests.support.launching import ORDERS, Lake, Ran, key_of
from tests.support.shop import launch as publish_directly
from tests.support.shop import orders
from tests.support.under_way import GONE, under_way

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DEAD, ALIVE, ELSEWHERE = "run of a process that is gone", "run of a process that lives", "run of another machine"


@dataclass(frozen=True)
class Aftermath:
    """A launch of one day after another day was committed without Dagster's knowledge."""

    lake: Lake
    ran: Ran
    direct: Published
    unfinished: dict[str, str]


@pytest.fixture(scope="module")
def aftermath(made: Callable[..., Lake], spark: Any) -> Aftermath:
    """A run published two days and was killed before it could say so; two other runs are under way; then a third day is launched."""
    lake = made("aftermath")
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day))
    unfinished = {
        DEAD: under_way(lake.instance, GONE),
        ALIVE: under_way(lake.instance, os.getpid()),
        ELSEWHERE: under_way(lake.instance, GONE, **{runs.HOST: "another-machine"}),
    }
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    (direct,) = publish_directly(table, source, lake.spec.grid.between(DAY_1, DAY_2), run_id=unfinished[DEAD])
    assert isinstance(direct, Published)
    return Aftermath(lake, lake.launch(DAY_3), direct, unfinished)


def test_a_commit_that_dagster_missed_is_recorded(aftermath: Aftermath):
    """The next launch records, from the commit's receipt, what a killed run published and could not say."""
    assert aftermath.ran.succeeded, aftermath.ran.failure
    assert sorted(filter(None, aftermath.ran.recorded())) == [DAY_1, DAY_2, DAY_3]
    for day in (DAY_1, DAY_2):
        metadata = aftermath.ran.metadata(day)
        assert metadata["recorded_from"] == f"receipt of version {aftermath.direct.commit.version}"
        assert metadata["checksum"] == aftermath.direct.receipt.partitions[day].checksum
        assert metadata["dagster/partition_row_count"] == 3
    assert aftermath.lake.shown(DAY_1, DAY_2, DAY_3) == dict.fromkeys((DAY_1, DAY_2, DAY_3), "materialized")


def test_a_commit_is_recorded_once(aftermath: Aftermath):
    """A launch after that finds nothing more to record."""
    again = aftermath.lake.launch(DAY_3)
    assert again.recorded() == [DAY_3]


@pytest.mark.prove
def test_all_that_a_deleted_run_published_is_recorded_again(made: Callable[..., Lake]):
    """Somebody deletes the run of a launch of several chunks, and with it all of its events."""
    lake = made("deleted")
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day))
    deleted = lake.launch(DAY_1, DAY_2, max_partitions_per_chunk=1)
    assert deleted.succeeded, deleted.failure
    lake.instance.delete_run(deleted.run.run_id)
    assert lake.instance.get_materialized_partitions(key_of(ORDERS)) == set()
    ran = lake.launch(DAY_3)
    assert ran.succeeded, ran.failure
    assert sorted(ran.recorded()) == [DAY_1, DAY_2, DAY_3]
    assert lake.shown(DAY_1, DAY_2, DAY_3) == dict.fromkeys((DAY_1, DAY_2, DAY_3), "materialized")
    assert lake.launch(DAY_3).recorded() == [DAY_3]


def test_dead_runs_are_reported_as_failed(aftermath: Aftermath):
    """A run whose process is gone is marked as failed; runs of living processes and of other machines are left alone."""
    status = {name: aftermath.lake.ran(run_id).run.status.value for name, run_id in aftermath.unfinished.items()}
    assert status == {DEAD: "FAILURE", ALIVE: "STARTED", ELSEWHERE: "STARTED"}
    assert f"Run {aftermath.unfinished[DEAD]} was killed on this machine; it is marked as failed" in aftermath.ran.log


@pytest.mark.prove
def test_a_run_that_is_under_way_speaks_for_itself(made: Callable[..., Lake], spark: Any):
    """What a living run has committed and is about to record is not recorded by another launch."""
    lake = made("under_way")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    living = under_way(lake.instance, os.getpid())
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    publish_directly(
        table,
        lakehouse.source(lake.spec, {}, None, lambda _: None),
        lake.spec.grid.between(DAY_1, DAY_1),
        run_id=living,
    )
    ran = lake.launch(DAY_2)
    assert ran.recorded() == [DAY_2]


def undo_that_died(lake: Lake, launch: Ran) -> None:
    """It has put back what it was to put back, and told nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undoing, "record_put_back", lambda *of: {}[KeyError] if of[2] else None)
        ran = lake.undo(launch.run.run_id)
    assert not ran.succeeded
    run = lake.instance.get_run_by_id(ran.run.run_id)
    assert run is not None
    assert run.tags[runs.PID] == str(os.getpid()), "it is found dead as a launch is"


@pytest.mark.prove
def test_a_dead_undo_of_a_first_publish_is_told_of(made: Callable[..., Lake]):
    """The partition has no rows any more: its check was green."""
    lake = made("first_taken_back")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    undo_that_died(lake, lake.launch(DAY_1))
    assert "put back 1 partitions" in lake.launch(DAY_2).log
    assert not_passed(lake.instance, Table(lake.spec)) == {DAY_1: None}
    assert "put back" not in lake.launch(DAY_2).log
