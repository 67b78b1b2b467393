"""A launch that skips partitions fails, unless it may skip them; what lies before a table's start is no partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg
import pytest

from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.partitions import materialized_partitions
from backfill_assets.runs.resources import Lakehouse
from tests.runs.scenes import DAY_1, DAY_2, DAY_3, DAY_4
from tests.support.launching import ORDERS, TOTALS, TOTALS_SPEC, Lake, Ran, key_of
from tests.support.shop import opened, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@dataclass
class LateLake(Lake):
    """The totals start on the third day, and the orders on the first."""

    totals_start: str = DAY_3

    @property
    def definitions(self) -> dg.Definitions:
        late = TableSpec.model_validate({**TOTALS_SPEC.model_dump(exclude_unset=True), "start": self.totals_start})
        return lakehouse_definitions(
            build_lakehouse_table(self.spec),
            build_lakehouse_table(late, self.transform, inputs={ORDERS: self.spec}),
            lakehouse=Lakehouse(root=str(self.root)),
        )


@pytest.fixture
def skipping(made: Callable[..., Lake]) -> Lake:
    """The source has two of three days."""
    lake = made("skipping")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    return lake


@pytest.fixture(scope="module")
def late(made: Callable[..., Lake]) -> LateLake:
    lake = made("late")
    for day in (DAY_1, DAY_2, DAY_3, DAY_4):
        lake.export(day, orders(day))
    return LateLake(lake.root, lake.instance, lake.changes, lake.transform)


@pytest.fixture(scope="module")
def both(late: LateLake) -> Ran:
    """One launch of both tables, over all four days."""
    return late.launch(DAY_1, DAY_4, tables=(ORDERS, TOTALS))


def test_a_skipped_day_fails_the_run(skipping: Lake):
    """The run publishes the complete days, then fails with the skipped day, the reason and what to launch."""
    ran = skipping.launch(DAY_1, DAY_3)
    assert not ran.succeeded
    assert ran.failure == (
        f"`bronze/orders`: 1 of 3 partitions were skipped: 1 from `{DAY_3}` to `{DAY_3}`: the source is not complete "
        "for them yet; they stay missing. The table has the other partitions as their source has them. Launch a range "
        "without the skipped partitions, and launch these when the reason is gone."
    )
    assert ran.recorded() == [DAY_1, DAY_2]
    assert ran.verdicts() == {DAY_1: True, DAY_2: True, DAY_3: False}


@pytest.mark.prove
def test_published_days_do_not_fail_a_run(skipping: Lake):
    """`only: MISSING` succeeds over published days, and commits nothing; a day that is not complete fails it."""
    assert skipping.launch(DAY_1, DAY_2).succeeded
    version = opened(skipping.path()).version()
    again = skipping.launch(DAY_1, DAY_2, only="MISSING")
    assert again.succeeded, again.failure
    assert again.recorded() == [DAY_1, DAY_2]
    assert "1 of 3 partitions were skipped" in skipping.launch(DAY_1, DAY_3, only="MISSING").failure
    assert opened(skipping.path()).version() == version


@pytest.mark.parametrize(
    ("tags", "succeeds"), [pytest.param({}, True, marks=pytest.mark.prove), ({"dagster/backfill": "one"}, False)]
)
def test_a_backfill_may_skip_nothing(skipping: Lake, tags: dict[str, str], succeeds: bool):
    """A schedule's run may skip days; a run of a backfill may not, because the backfill fails too."""
    ran = skipping.launch(DAY_1, DAY_3, may_find_nothing=True, tags=tags)
    assert ran.succeeded is succeeds
    assert ran.recorded() == [DAY_1, DAY_2]


def test_a_launch_covers_tables_with_different_starts(late: LateLake, both: Ran):
    """Each table gets its own partitions of the range, and the events of the others claim no rows."""
    assert both.succeeded, both.failure
    assert both.recorded() == [DAY_1, DAY_2, DAY_3, DAY_4]
    assert both.recorded(TOTALS) == [DAY_1, DAY_2, DAY_3, DAY_4]
    assert both.verdicts(table=TOTALS) == {DAY_3: True, DAY_4: True}
    assert late.files(TOTALS).keys() == {DAY_3, DAY_4}
    assert both.metadata(DAY_1, TOTALS) == {"before_start": f"The table starts at {DAY_3}. Nothing was written."}
    assert f"`{TOTALS}` starts at {DAY_3}: it has no partition from {DAY_1} to {DAY_2}." in both.log


def test_days_before_a_start_are_not_published(late: LateLake, both: Ran):
    """A start that is moved earlier finds its new days unpublished."""
    assert materialized_partitions(late.instance, key_of(TOTALS)) == {DAY_3, DAY_4}
    assert materialized_partitions(late.instance, key_of(ORDERS)) == {DAY_1, DAY_2, DAY_3, DAY_4}


@pytest.mark.prove
def test_a_range_before_the_start_is_refused(late: LateLake):
    """A launch of one table over days before its start fails with a sentence; beside another table it succeeds."""
    alone = late.launch(DAY_1, DAY_2, tables=(TOTALS,))
    assert alone.failure == (
        f"`{TOTALS}` starts at `{DAY_3}`, and the run names `{DAY_1}...{DAY_2}`. Nothing was written. "
        f"Launch partitions from `{DAY_3}` on, or give the table an earlier `start`."
    )
    assert late.launch(DAY_1, DAY_2, tables=(ORDERS, TOTALS)).succeeded
    check_alone = late.reconcile(DAY_1, DAY_2, table=TOTALS)
    assert f"`{TOTALS}` starts at `{DAY_3}`" in check_alone.failure
