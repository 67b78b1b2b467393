"""What the next launch records of runs that died before they could say what they published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
import deltalake
import pytest

from backfill_assets.core.history.outcomes import Published
from backfill_assets.runs import killed as runs
from backfill_assets.runs import undoing, unrecorded
from backfill_assets.runs.check_history import failed_comparisons, not_passed
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from tests.runs.scenes import DAY_1, DAY_2, DAY_3
from tests.support.launching import ORDERS, Lake, Ran, key_of
from tests.support.shop import launch as publish_directly
from tests.support.shop import multiset, orders
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


@pytest.mark.prove
def test_a_killed_write_of_other_rows_is_not_recorded(made: Callable[..., Lake], spark: Any):
    """A run that was killed before it could put a wrong write back published nothing: its day fails its check, and is launched again."""
    lake = made("wrong_write")
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    named = lake.spec.grid.between(DAY_1, DAY_1)
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    lake.export(DAY_1, orders(DAY_1, customer="lost"))
    lake.export(DAY_2, orders(DAY_2))
    publish_directly(table, source, named, run_id="before Dagster")
    lake.export(DAY_1, orders(DAY_1))
    (right,) = publish_directly(table, source, named, run_id="before Dagster")
    assert isinstance(right, Published)
    run_id = under_way(lake.instance, GONE)
    claims = replace(right.receipt, receipt_id="claims", run_id=run_id, root_run_id=run_id, staged_from_version=2)
    table.restore(named, version=1, receipt=claims)  # as many rows, and others

    ran = lake.launch(DAY_2)
    assert ran.recorded() == [DAY_2]
    assert (
        "did not write what was audited, or somebody has changed it since: 2024-01-01: rows_match_source: both"
        in ran.log
    )
    assert lake.launch(DAY_1, DAY_2, only="MISSING").metadata(DAY_1)["table_version"] == 5
    assert lake.content() == multiset([*orders(DAY_1), *orders(DAY_2)])


@pytest.mark.prove
def test_what_is_recorded_now_and_refused_is_shown_as_failed(made: Callable[..., Lake], spark: Any):
    """A refusal is about what a killed run has published, too: Dagster hears of both from the same launch."""
    lake = made("recorded_and_refused")
    lake.export(DAY_1, orders(DAY_1))
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    publish_directly(table, source, lake.spec.grid.between(DAY_1, DAY_1), run_id=under_way(lake.instance, GONE))
    lake.export(DAY_1, orders(DAY_1)[:1] * 2)  # a key twice

    refused = lake.launch(DAY_1)
    assert (refused.recorded(), refused.verdicts()) == ([DAY_1], {DAY_1: False})
    assert lake.shown_of_check(DAY_1) == {DAY_1: "failed"}


@pytest.mark.prove
def test_what_was_put_back_is_not_recorded(made: Callable[..., Lake], spark: Any):
    """A run whose first publish had to be put back published nothing: no later launch says so, and its day stays missing."""
    lake = made("put_back")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    named = lake.spec.grid.between(DAY_1, DAY_1)
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    (wrong,) = publish_directly(table, source, named, run_id=under_way(lake.instance, GONE))
    assert isinstance(wrong, Published)
    back = replace(
        wrong.receipt,
        receipt_id="back",
        kind="put_back",
        staged_from_version=1,
        source={"kind": "version", "version": 0},
    )
    table.restore(named, version=0, receipt=back)

    assert lake.launch(DAY_2).recorded() == [DAY_2]
    assert lake.shown(DAY_1, DAY_2) == {DAY_1: "missing", DAY_2: "materialized"}
    assert table.published().keys() == {DAY_2}
    assert lake.launch(DAY_1, DAY_2, only="MISSING").metadata(DAY_1)["table_version"] == 4


def newest_event(lake: Lake, day: str) -> Any:
    (record,) = lake.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key_of(ORDERS), asset_partitions=[day]), limit=1
    ).records
    assert record.asset_materialization is not None
    return record.asset_materialization.metadata


@pytest.mark.prove
def test_an_old_version_is_not_recorded_after_a_newer_one(
    made: Callable[..., Lake], spark: Any, monkeypatch: pytest.MonkeyPatch
):
    """A run failed after it had published; a day of it was corrected; then others were looked at again and again."""
    monkeypatch.setattr(unrecorded, "_PAGE", 4)
    lake = made("corrected_since")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    lake.export(DAY_3, orders(DAY_3)[:1] * 2)  # a key twice: refused
    assert not lake.launch(DAY_1, DAY_3).succeeded
    lake.export(DAY_1, orders(DAY_1, 9))
    assert lake.launch(DAY_1).succeeded
    for _ in range(6):
        ran = lake.launch(DAY_2, only="MISSING")
        assert "recorded now" not in ran.log
    found = newest_event(lake, DAY_1)
    assert (found["table_version"].value, found["dagster/partition_row_count"].value) == (2, 9)


@pytest.mark.prove
def test_a_table_that_was_made_again_counts_its_versions_again(made: Callable[..., Lake], spark: Any):
    """Events of the table that was deleted say nothing of the one that has its name now."""
    lake = made("made_again")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
        assert lake.launch(day).succeeded
    for name in (ORDERS, f"{ORDERS}_receipts"):
        shutil.rmtree(lake.path(name))
    lakehouse = Lakehouse(root=str(lake.root))
    table = lakehouse.table(lake.spec, lambda _: None)
    table.create()
    lake.export(DAY_1, orders(DAY_1, 9))
    source = lakehouse.source(lake.spec, {}, None, lambda _: None)
    dead = under_way(lake.instance, GONE)
    publish_directly(table, source, lake.spec.grid.between(DAY_1, DAY_1), run_id=dead)
    ran = lake.launch(DAY_2)
    assert ran.succeeded, ran.failure
    assert sorted(filter(None, ran.recorded())) == [DAY_1, DAY_2]
    assert newest_event(lake, DAY_1)["dagster/partition_row_count"].value == 9


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


@pytest.mark.prove
def test_what_a_dead_undo_has_put_back_may_be_anything(made: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch):
    """Rows of somebody else with a key twice, of before what is looked through: nobody had audited them."""
    monkeypatch.setattr(unrecorded, "RECENT_COMMITS", 1)
    lake = made("somebody_elses")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    assert lake.launch(DAY_1).succeeded
    rows = deltalake.DeltaTable(str(lake.path())).to_pyarrow_table()
    deltalake.write_deltalake(str(lake.path()), rows, mode="append")
    lake.export(DAY_1, orders(DAY_1, 9))
    undo_that_died(lake, lake.launch(DAY_1))
    log = lake.launch(DAY_2).log
    assert "put back 1 partitions" in log
    assert "did not write what was audited" not in log
    assert not_passed(lake.instance, Table(lake.spec)) == {DAY_1: None}


@pytest.mark.prove
def test_what_was_found_since_a_dead_undo_counts(made: Callable[..., Lake]):
    """The rows that it put back were held against the source, and are not the source's."""
    lake = made("compared_since")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    assert lake.launch(DAY_1).succeeded
    lake.export(DAY_1, orders(DAY_1, 9))
    undo_that_died(lake, lake.launch(DAY_1))
    assert lake.reconcile(DAY_1).verdicts() == {DAY_1: False}
    assert lake.launch(DAY_2).succeeded
    assert failed_comparisons(lake.instance, Table(lake.spec)).keys() == {DAY_1}
