"""Checks of a launch, and checks that run alone, on tables that somebody changed behind our back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import deltalake
import pyarrow as pa
import pytest

from backfill_assets.assets import checks
from backfill_assets.runs import launch as launches
from backfill_assets.runs.check_history import failed_comparisons
from backfill_assets.runs.comparisons import compare_with_receipts
from backfill_assets.runs.table import Table
from tests.runs.scenes import DAY_1, DAY_2, DAY_3
from tests.support.launching import ORDERS, RANGE_END, RANGE_START, TOTALS, Lake, Ran, key_of
from tests.support.shop import folder_of, opened, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def add_a_row(lake: Lake, day: str, *, to: str = ORDERS, **values: Any) -> None:
    """Write a row into a table behind everybody's back, with another writer."""
    rows = [{**row, "dt": row["ordered_at"].date()} for row in orders(day, 1, **values)]
    schema = opened(lake.path(to)).to_pyarrow_table().schema
    deltalake.write_deltalake(str(lake.path(to)), pa.Table.from_pylist(rows, schema=schema), mode="append")


@pytest.fixture
def a_writer_in_between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let something happen after a launch and before its checks."""

    def happens(what: Callable[[], None]) -> None:
        launch = launches.run

        def run_then(*args: Any) -> Any:
            result = launch(*args)
            what()
            return result

        monkeypatch.setattr(launches, "run", run_then)

    return happens


def test_checks_inside_a_launch_compare_with_the_receipt(made: Callable[..., Lake], a_writer_in_between: Any):
    """The checks of a launch hold what was committed against its receipt: a row of somebody else is found, the source is not read again."""
    lake = made("receipt")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))

    def behind_our_back() -> None:
        add_a_row(lake, DAY_2, order_id=1, customer="nobody")
        lake.export(DAY_1, orders(DAY_1, 1, customer="changed since"))

    a_writer_in_between(behind_our_back)
    ran = lake.launch(DAY_1, DAY_2, tables=(ORDERS, TOTALS))

    assert ran.verdicts() == {DAY_1: True, DAY_2: False}
    assert (
        ran.evaluations()[DAY_2].metadata["rows_match_source"].value
        == "the table has 4 rows, 1 more than its source (3)."
    )
    assert not ran.succeeded
    assert ran.recorded() == [DAY_1, DAY_2]  # it was published; that is not what is wrong
    assert ran.recorded(TOTALS) == []


@pytest.mark.prove
def test_a_check_shows_the_partitions_that_it_is_about(made: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch):
    """The check's own list of partitions has those green that were checked since they were published, and red that differ.

    A partition that is published between the reading and the recording is neither: nobody has looked at what it has now.
    """
    lake = made("shown")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    lake.launch(DAY_1, DAY_2)
    assert lake.shown_of_check(DAY_1, DAY_2, DAY_3) == {DAY_1: "succeeded", DAY_2: "succeeded", DAY_3: "missing"}

    lake.export(DAY_2, [])
    assert not lake.launch(DAY_2).succeeded
    assert lake.shown_of_check(DAY_1, DAY_2) == {DAY_1: "succeeded", DAY_2: "failed"}

    def read_and_publish(*args: Any) -> Any:
        compared = compare_with_receipts(*args)
        lake.instance.report_runless_asset_event(dg.AssetMaterialization(key_of(ORDERS), partition=DAY_1))
        return compared

    monkeypatch.setattr(checks, "compare_with_receipts", read_and_publish)
    lake.export(DAY_2, orders(DAY_2))
    assert lake.launch(DAY_1, DAY_2).verdicts() == {DAY_1: True, DAY_2: True}
    assert lake.shown_of_check(DAY_1, DAY_2) == {DAY_1: "missing", DAY_2: "succeeded"}


@pytest.mark.prove
def test_what_a_run_finds_that_has_waited_is_shown(made: Callable[..., Lake]):
    """A comparison that was queued first and carried out last counts, although Dagster goes by when a run was made."""
    lake = made("waited")
    lake.export(DAY_1, orders(DAY_1))
    job = lake.definitions.resolve_job_def("reconcile_bronze_orders")
    waits = lake.instance.create_run_for_job(
        job_def=job, tags={RANGE_START: DAY_1, RANGE_END: DAY_1}, asset_selection=job.asset_selection
    )
    assert lake.launch(DAY_1).succeeded
    deltalake.DeltaTable(str(lake.path())).delete(f"dt = '{DAY_1}'")

    assert lake.execute(job, waits).verdicts() == {DAY_1: False}
    assert lake.shown_of_check(DAY_1) == {DAY_1: "failed"}
    assert failed_comparisons(lake.instance, Table(lake.spec)).keys() == {DAY_1}, "`only: MISSING` sees it"


@pytest.mark.prove
def test_what_a_source_has_lost_stays_red(made: Callable[..., Lake]):
    """A launch leaves such a day out, and that it is as it was published proves nothing; that it is not is found all the same."""
    lake = made("lost")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    assert lake.launch(DAY_1, DAY_2).succeeded
    (lost,) = folder_of(lake.root / "landing/orders", DAY_2).iterdir()
    lost.unlink()
    assert lake.reconcile(DAY_1, DAY_2).verdicts() == {DAY_1: True, DAY_2: False}
    for how in ({"only": "MISSING"}, {"rewrite_identical": True}):
        again = lake.launch(DAY_1, DAY_3, may_find_nothing=True, **how)
        assert again.succeeded, again.failure
        assert "**Left out:** 2 from `2024-01-02` to `2024-01-03`" in again.launch
        assert "; they stay as they are." in again.launch
        assert again.verdicts() == {DAY_1: True, DAY_2: False, DAY_3: False}
        assert {again.evaluations()[day].severity for day in (DAY_2, DAY_3)} == {dg.AssetCheckSeverity.WARN}
        assert failed_comparisons(lake.instance, Table(lake.spec)).keys() == {DAY_2}
    add_a_row(lake, DAY_2, customer="nobody")
    again = lake.launch(DAY_1, DAY_2, may_find_nothing=True)
    assert not again.succeeded
    assert "the table has 4 rows" in str(again.evaluations()[DAY_2].description)


@dataclass(frozen=True)
class Checked:
    """The same table, changed behind our back, under checks that only warn and under checks that stop."""

    warn: Ran
    error: Ran


@pytest.fixture(scope="module")
def checked(made: Callable[..., Lake]) -> Checked:
    found = {}
    for severity in ("warn", "error"):
        lake = made(severity, checks={"severity": severity, "separate": ["keys_are_unique", "rows_match_source"]})
        for day in (DAY_1, DAY_2):
            lake.export(day, orders(day))
        assert lake.launch(DAY_1, DAY_2).succeeded
        add_a_row(lake, DAY_2, customer="nobody")
        found[severity] = lake.reconcile(DAY_1, DAY_3)
    return Checked(**found)


def test_a_check_alone_finds_what_changed_behind_our_back(checked: Checked):
    """Run alone, the check reads both sides afresh, finds the difference and names the row on the side that has it."""
    found = checked.error.evaluations()[DAY_2]
    assert not found.passed
    (difference,) = [d for d in found.metadata["differences"].value if d["rule"] == "rows_match_source"]
    assert (difference["rows"], len(difference["examples"])) == (1, 1)
    assert difference["examples"][0].startswith("1 in the source, 2 in the table, one differs in customer: order_id=")
    assert difference["examples"][0] in checked.error.log
    assert not any("nobody" in str(entry) for entry in checked.error.entries), "a value of the row is in the history"


def test_a_check_alone_writes_nothing(checked: Checked):
    """Comparing leaves no materialization."""
    assert checked.error.recorded() == []


@pytest.mark.prove
def test_rules_can_be_checks_of_their_own(checked: Checked):
    """A rule that the spec separates has its own verdict for each partition, beside `reconciled`."""
    assert checked.error.verdicts("keys_are_unique") == {DAY_1: True, DAY_2: False}
    assert checked.error.verdicts("rows_match_source") == {DAY_1: True, DAY_2: False}
    assert checked.error.verdicts() == {DAY_1: True, DAY_2: False, DAY_3: False}
    assert checked.error.evaluations()[DAY_3].severity == dg.AssetCheckSeverity.WARN


@pytest.mark.prove
def test_severity_decides_whether_a_difference_stops(checked: Checked):
    """With `severity: error` a difference fails the run; with `warn` it shows, and the run goes on."""
    assert (checked.error.succeeded, checked.warn.succeeded) == (False, True)
    assert checked.warn.evaluations()[DAY_2].severity == dg.AssetCheckSeverity.WARN
    assert checked.warn.verdicts() == checked.error.verdicts()
