"""The checks that watch over whole tables: which partitions are not reconciled, why, and since when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import deltalake
import pyarrow as pa
import pytest

from backfill_assets.assets.reconciliation import RECONCILIATION, check_name
from tests.support.launching import ORDERS, TOTALS, Lake, Ran, key_of, new_lake
from tests.support.shop import SCHEMA, folder_of, orders

pytestmark = [pytest.mark.spark, pytest.mark.prove, pytest.mark.usefixtures("spark")]

WITH_DAY = SCHEMA.append(pa.field("dt", pa.date32()))
DAY_1, DAY_2, DAY_3, DAY_4, DAY_5 = (f"2024-01-0{n}" for n in range(1, 6))


@dataclass(frozen=True)
class Watched:
    """What the table-wide checks found at three moments.

    Args:
        planned: Rows that Dagster's history had of these checks before the first of them was evaluated.
        gone: While the folder of the files was not there.
        shortened: While the files of the newest day were not there, and its folder was.
        outside: With rows of somebody else in a day before the table's start: a comparison, and the table-wide checks.
    """

    lake: Lake
    planned: int
    empty: Ran
    open: Ran
    failing_since: datetime
    mended: Ran
    gone: Ran
    shortened: Ran
    outside: tuple[Ran, Ran]


def without_source(lake: Lake) -> tuple[Ran, Ran]:
    """What is seen without the source's folder, and without the newest day's file; then all is back."""
    landing = lake.root / "landing/orders"
    landing.rename(landing.with_name("elsewhere"))
    gone = lake.watch()
    landing.with_name("elsewhere").rename(landing)
    (newest,) = folder_of(landing, DAY_5).iterdir()
    newest.rename(lake.root / "kept")
    shortened = lake.watch()
    (lake.root / "kept").rename(newest)
    return gone, shortened


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Watched:
    """One day was refused, one changed at the source, one behind our back, and one was never launched; then all is put right."""
    lake = new_lake(tmp_path_factory.mktemp("watched"))
    empty = lake.watch()
    before = len(evaluations(lake))
    for day in (DAY_1, DAY_2, DAY_3, DAY_4, DAY_5):
        lake.export(day, orders(day) + (orders(day, 1, customer="again") if day == DAY_2 else []))
    lake.launch(DAY_1, DAY_4)
    planned = len(evaluations(lake)) - before

    lake.export(DAY_3, orders(DAY_3, customer="corrected"))
    where = "dt = '2024-01-04' AND customer = 'customer 1'"
    deltalake.DeltaTable(str(lake.path())).update({"customer": "'somebody else'"}, predicate=where)
    failing_since = datetime.now(tz=UTC)
    lake.reconcile(DAY_4)
    found = lake.watch()

    lake.export(DAY_2, orders(DAY_2))
    lake.launch(DAY_1, DAY_5, only="MISSING")
    mended = lake.watch()

    gone, shortened = without_source(lake)

    stray = pa.Table.from_pylist([{**orders("2023-12-31", 1)[0], "dt": date(2023, 12, 31)}], schema=WITH_DAY)
    deltalake.write_deltalake(str(lake.path()), stray, mode="append")
    outside = lake.reconcile(DAY_1), lake.watch()
    deltalake.DeltaTable(str(lake.path())).delete("dt = '2023-12-31'")
    return Watched(
        lake=lake,
        planned=planned,
        empty=empty,
        open=found,
        failing_since=failing_since,
        mended=mended,
        gone=gone,
        shortened=shortened,
        outside=outside,
    )


def evaluations(lake: Lake, table: str = ORDERS) -> list[Any]:
    key = dg.AssetCheckKey(dg.AssetKey(RECONCILIATION), check_name(table))
    return list(lake.instance.event_log_storage.get_asset_check_execution_history(key, limit=100))


def evaluation_of(ran: Ran, table: str = ORDERS) -> dg.AssetCheckEvaluation:
    (found,) = ran.evaluations(check_name(table), "reconciliation").values()
    return found


def test_a_table_without_a_source_yet_is_fine(watched: Watched):
    """Before there is anything to publish, nothing is missing."""
    assert watched.empty.succeeded
    assert evaluation_of(watched.empty).passed
    assert evaluation_of(watched.empty, TOTALS).passed


def test_ranged_launches_plan_no_row_for_it(watched: Watched):
    """A launch over a range leaves no row of the table-wide check in Dagster's history."""
    assert watched.planned == 0


def test_what_is_not_reconciled_is_counted_and_named(watched: Watched):
    """The check fails and says how many partitions are not reconciled, which, and why each."""
    found = evaluation_of(watched.open)
    assert not found.passed
    assert (found.metadata["unreconciled"].value, found.metadata["partitions"].value) == (4, 5)
    assert found.description is not None
    assert found.description.startswith(
        f"4 of 5 partitions are not reconciled, from {DAY_2} to {DAY_5}; the oldest since"
    )
    which = rows_of(str(found.metadata["which"].value))
    why_refused = next(why for day, why, _ in which if day == DAY_2)
    assert re.match(r"refused on .* UTC: keys_are_unique: 1 row repeats a key", why_refused)
    assert {day: why for day, why, _ in which if day != DAY_2} == {
        DAY_3: "its source changed after it was published",
        DAY_4: "published in version 1, and somebody else wrote it in version 2",
        DAY_5: "never published",
    }


def test_it_says_since_when(watched: Watched):
    """A missing partition is open since its end, a failing one since the comparison that found it, a changed one since its files changed."""
    since = {day: instant for day, _, instant in rows_of(str(evaluation_of(watched.open).metadata["which"].value))}
    assert (since[DAY_2], since[DAY_5]) == (datetime(2024, 1, 3, tzinfo=UTC), datetime(2024, 1, 6, tzinfo=UTC))
    for day in (DAY_3, DAY_4):
        assert abs(since[day] - watched.failing_since) < timedelta(minutes=5)


@pytest.mark.prove
def test_what_was_put_right_is_reconciled_again(watched: Watched):
    """After the sources are corrected a launch of what is missing repairs all of it, and the check is green."""
    found = evaluation_of(watched.mended)
    assert found.passed, found.description
    assert found.description == "All 5 partitions are reconciled."


def test_a_source_that_is_gone_is_not_green(watched: Watched):
    """What was published cannot be held against a source that is not there: the check fails and says so."""
    found = evaluation_of(watched.gone)
    assert not found.passed
    assert "is not there, or cannot be listed" in str(found.description)


def test_what_a_source_has_lost_is_not_green(watched: Watched):
    """Partitions that are published and that the source has no more are named, though it is complete for none of them."""
    found = evaluation_of(watched.shortened)
    assert not found.passed
    assert (found.metadata["unreconciled"].value, found.metadata["partitions"].value) == (1, 5)
    which = rows_of(str(found.metadata["which"].value))
    assert {day: why for day, why, _ in which} == {DAY_5: "published, and its source has it no more"}
    for _, _, since in which:
        assert abs(since - watched.failing_since) < timedelta(minutes=5), "it was there when it was published"


def test_rows_that_lie_in_no_partition_are_named(watched: Watched):
    """A value of the partition column that is no partition fails the table's checks; those of its partitions stay green."""
    says = (
        "1 rows of `bronze/orders` lie in values that are no partition of it: `2023-12-31` (1). No launch replaces "
        "them, and no check covers them. Delete them; if they are history, let `start` in the spec be where they begin."
    )
    compared, found = watched.outside
    assert compared.verdicts() == {DAY_1: True, "None": False}
    assert compared.evaluations()["None"].description == says
    assert not evaluation_of(found).passed
    assert evaluation_of(found).description == f"All 5 partitions are reconciled. {says}"


def test_a_derived_table_lacks_what_its_input_has(watched: Watched):
    """A table made of another is not reconciled for the days that only its input has."""
    found = evaluation_of(watched.mended, TOTALS)
    assert not found.passed
    assert found.metadata["unreconciled"].value == 5


def test_checks_alone_without_a_range_compare_everything(watched: Watched):
    """A run of the checks that names no partition compares all that the source is complete for, and says so of the whole table."""
    lake = watched.lake
    ran = lake._execute(lake.definitions.resolve_job_def("reconcile_bronze_orders"), None, None, {}, None)
    assert ran.succeeded
    assert ran.verdicts() == {**dict.fromkeys((DAY_1, DAY_2, DAY_3, DAY_4, DAY_5), True), "None": True}
    assert ran.evaluations()["None"].description == "All 5 partitions are as they should be."
    newest = lake.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(key_of(ORDERS), "reconciled"), limit=6
    )
    assert {record.status.value for record in newest} == {"SUCCEEDED"}, "nothing that was planned is left open"


def rows_of(markdown: str) -> list[tuple[str, str, datetime]]:
    """Read the table of partitions back."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()[2:]]
    return [(day, why, datetime.strptime(since, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)) for day, why, since in cells]
