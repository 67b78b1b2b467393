"""What an earlier version held, in the columns that the table has now; and launches taken back in any grain."""

from __future__ import annotations

import os
import time
from decimal import Decimal

import pytest

from backfill_assets.lake.table import LakeTable
from tests.commands.places import new_place
from tests.support.launching import ORDERS, copied, new_lake
from tests.support.shop import COLUMNS, content, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = ["2024-01-01", "2024-01-02"]
HALF = Decimal("0.50")


@pytest.mark.prove
def test_a_column_that_was_added_since_is_null(tmp_path):
    """A launch is taken back although the table had fewer columns before it: its old rows have none in the new one."""
    place = new_place(tmp_path)
    for day in DAYS:
        place.lake.export(day, orders(day))
    assert place.lake.launch(DAYS[0], DAYS[-1]).succeeded
    wider = {**COLUMNS, "note": {"type": "string", "optional": True}}
    place.lake.changes = {"columns": wider}
    assert place.run("schema", ORDERS, "--apply").exit_code == 0
    for day in DAYS:
        place.lake.export(day, orders(day, amount=HALF))
    bad = place.lake.launch(DAYS[0], DAYS[-1])
    assert bad.succeeded, bad.failure
    assert place.lake.undo(bad.run.run_id).succeeded
    rows = content(place.lake.path(), wider)
    assert rows == {(*row.values(), None): 1 for day in DAYS for row in orders(day)}


@pytest.mark.prove
def test_what_a_launch_replaced_may_be_old(spark, tmp_path):
    """Delta reads no version older than it keeps replaced files, although what that held was replaced a moment ago."""
    lake = new_lake(tmp_path / "first")
    for day in DAYS:
        lake.export(day, orders(day))
    assert lake.launch(DAYS[0], DAYS[-1]).succeeded
    lake = copied(lake, tmp_path / "lake")
    for commit in (lake.path() / "_delta_log").glob("*.json"):
        os.utime(commit, (time.time() - 400 * 86_400,) * 2)
    old = lake.content()
    lake.export(DAYS[0], orders(DAYS[0], amount=HALF))
    bad = lake.launch(DAYS[0])
    table = LakeTable(spark, lake.spec, str(lake.path()))
    (day,) = lake.spec.grid.between(DAYS[0], DAYS[0])
    (before,) = table.tally([day], version=table.version() - 1).values()
    assert before.rows == len(orders(DAYS[0]))
    assert lake.undo(bad.run.run_id).succeeded
    assert lake.content() == old


@pytest.mark.prove
def test_hours_of_a_zone_are_taken_back(tmp_path):
    """The partition column has UTC's hours there: exactly those of the launch hold what they held before."""
    lake = new_lake(tmp_path, grain="hourly", time_zone="Europe/Berlin")
    for day in DAYS:
        lake.export(day, orders(day, 20))
    hours = "2024-01-01-06:00", "2024-01-02-01:00"
    first = lake.launch(*hours)
    assert first.succeeded, first.failure
    old = lake.content()
    lake.export(DAYS[0], orders(DAYS[0], 20, amount=HALF))
    bad = lake.launch("2024-01-01-08:00", "2024-01-01-18:00")
    assert bad.succeeded, bad.failure
    assert lake.content() != old
    assert lake.undo(bad.run.run_id).succeeded
    assert lake.content() == old
