"""What the names of files that nobody has described say of time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.calendar.layouts import FLAT, LAYOUTS, Layout, Unit
from backfill_assets.core.schema.first_layout import first_layout
from backfill_assets.core.spec.files import FilesSpec
from tests.support.docstring_tables import table_of

STARTS = {Unit.YEAR: datetime(2024, 1, 1, tzinfo=UTC), Unit.MONTH: datetime(2024, 2, 1, tzinfo=UTC),
          Unit.DAY: datetime(2024, 2, 29, tzinfo=UTC), Unit.HOUR: datetime(2024, 2, 29, 23, tzinfo=UTC)}  # fmt: skip


@pytest.mark.parametrize("row", table_of(first_layout), ids=lambda row: row["path"])
def test_a_layout_is_found(row: dict[str, str]):
    """It is one that a spec may name, and it reads the path as the time that it was made of."""
    found = first_layout([row["path"]])
    assert (found.template, found.misfits) == (row["layout"], ())
    if found.template == FLAT:
        return
    spec = FilesSpec.model_validate({"path": "x", "format": "json", "layout": found.template})
    window = Layout(spec.layout, "UTC").window_of(row["path"])
    assert (found.windows, window.start_utc, Layout(spec.layout, "UTC").unit) == (
        (window,),
        STARTS[found.unit],
        found.unit,
    )


def test_a_few_stray_files_decide_nothing():
    """Neither a backup, nor a note beside the months, nor names that say no time; what does not fit is told."""
    daily = [f"2024/01/{day:02}/part-{n}.json" for day in range(1, 31) for n in range(2)]
    stray = ["backup-2024-01-01/x.json", "2024/notes.json", "docs/x.json"]
    found = first_layout([*daily, *stray])
    assert (found.template, len(found.windows), found.misfits) == ("year/month/day", 30, tuple(stray))


def test_numbers_of_parts_are_no_hours():
    """Two digits below a day are an hour only if all of them can be one."""
    parts = [f"2024/01/{day:02}/{part:02}/x.json" for day in range(1, 5) for part in range(40)]
    assert first_layout(parts).template == "year/month/day"
    hours = [f"2024/01/{day:02}/{hour:02}/x.json" for day in range(1, 5) for hour in range(24)]
    assert first_layout(hours).unit is Unit.HOUR


@pytest.mark.parametrize(
    ("names", "template"),
    [
        (("eu/{}/a.csv", "us/{}/a.csv"), "*/{date}"),
        (("orders_eu_{}.csv", "orders_us_{}.csv"), "*{date}*"),
        (("orders_{}.csv", "orders_{}.CSV", "orders_{}.csv.gz"), "orders_{date}*"),
        (("shopA/{}.csv", "shopB/{}.csv"), "*/{date}.csv"),
    ],
)
def test_half_of_the_files_are_not_left_out(names: tuple[str, ...], template: str):
    """Where folders or names differ in more than their time, a layout takes all of them."""
    days = [f"2024-02-{day:02}" for day in range(1, 21)]
    found = first_layout([name.format(day) for day in days for name in names])
    assert (found.template, found.misfits, len(found.windows)) == (template, (), 20)


def test_random_names_behind_a_day():
    """Letters that are another word each time are no part of the layout."""
    found = first_layout([f"orders_2024-02-{day:02}_{'abcdefghijklmnopqrst'[day]}x.csv" for day in range(1, 20)])
    assert (found.template, found.misfits) == ("orders_{date}*", ())


def test_no_layout_fits_most_files():
    """One name with a day among a thousand without decides nothing; where it is many, those that do not fit are told."""
    parts = [f"part-{n}.csv" for n in range(1000)]
    assert first_layout(["old_2024-02-29.csv", *parts]).template == FLAT
    days = [f"dt=2024-02-{day:02}/a.csv" for day in range(1, 21)]
    found = first_layout([*days, *parts[:10]])
    assert (found.template, found.misfits) == ("dt={date}", tuple(parts[:10]))


def test_names_that_say_nothing():
    """They are flat, and every file belongs to any time."""
    for paths in (["a.json"], ["a/b/c.json", "x{y}.json"], ["20241399.json", "1/2/3.json"], ["run_4711.csv"]):
        found = first_layout(paths)
        assert (found.template, found.unit, found.misfits) == (FLAT, Unit.ANY, ())
    assert set(LAYOUTS) == {"year/month/day", "hive", FLAT}
