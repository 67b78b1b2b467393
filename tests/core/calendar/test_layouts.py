"""What the names of folders and files say of time: templates, windows in local zones, and the odd days."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from backfill_assets.core.calendar.layouts import ANY_TIME, Layout, Unit
from backfill_assets.core.calendar.windows import Grain, Window, window_of


def window(start, end):
    return Window(datetime.fromisoformat(start + "+00:00"), datetime.fromisoformat(end + "+00:00"))


def in_words(found):
    return found and f"{found.start_utc:%m-%dT%H:%M} {found.end_utc:%m-%dT%H:%M}"


@pytest.mark.parametrize(
    ("template", "unit", "names_files", "dates_files"),
    [
        ("{year}/{month}/{day}", Unit.DAY, False, False),
        ("{year}/{month}/{day}/{hour}", Unit.HOUR, False, False),
        ("{year}-{month}", Unit.MONTH, False, False),
        ("orders_{date}.csv", Unit.DAY, True, True),
        ("{date}/*.csv", Unit.DAY, True, False),
        ("flat", Unit.ANY, False, False),
    ],
)
def test_what_a_template_is_about(template, unit, names_files, dates_files):
    """The smallest field is the unit; a last part with a `.` or a `*` is a file's name."""
    layout = Layout(template, "UTC")
    assert (layout.unit, layout.names_files, layout.dates_files) == (unit, names_files, dates_files)


@pytest.mark.parametrize(
    ("template", "path", "found"),
    [
        ("{year}/{month}/{day}", "/2024/02/29/a.csv", "02-29T00:00 03-01T00:00"),
        ("{year}/{month}/{day}", "2023/02/29/a.csv", None),
        ("{year}/{month}/{day}", "2024/02/a.csv", None),
        ("{year}/{month}", "2024/12/a.csv", "12-01T00:00 01-01T00:00"),
        ("{year}/{month}/{day}", "9999/12/31/a.csv", None),
        ("{year}", "9999/a.csv", None),
        ("{date}/{hour}", "2024-02-29/23/a.csv", "02-29T23:00 03-01T00:00"),
        ("{date}/{hour}", "2024-02-29/24/a.csv", None),
        ("orders_{date}.csv", "orders_2024-02-29.csv", "02-29T00:00 03-01T00:00"),
        ("orders_{date}.csv", "orders_2024-02-29.csv.gz", None),
        ("orders_{date}.csv", "more/orders_2024-02-29.csv", None),
        ("*/orders_{date}*.csv*", "more/orders_2024-02-29_7.csv.gz", "02-29T00:00 03-01T00:00"),
        ("orders_{year}{month}{day}.csv", "orders_20240229.csv", "02-29T00:00 03-01T00:00"),
        ("orders_{year}{month}{day}.csv", "orders_2024229.csv", None),
        ("{year}/{month}/orders_{date}.csv", "2024/03/orders_2024-02-29.csv", None),
        ("a+(b)/{year}", "a+(b)/2024/x", "01-01T00:00 01-01T00:00"),
    ],
)
def test_what_a_path_says(template, path, found):
    """A path fits as a whole, with days that exist; where a field comes twice both must say the same."""
    assert in_words(Layout(template, "UTC").window_of(path)) == found


@pytest.mark.parametrize(("zone", "is_a_time"), [("Europe/Berlin", False), ("America/New_York", True)])
def test_the_first_day_of_the_calendar(zone, is_a_time):
    """East of UTC it began in a year that is none: such a folder fits no layout, and stops no launch."""
    assert (Layout("{date}", zone).window_of("0001-01-01/a.csv") is not None) == is_a_time


@pytest.mark.parametrize(
    ("zone", "path", "found"),
    [
        ("Europe/Berlin", "2024-03-31/02", "03-31T01:00 03-31T02:00"),
        ("Europe/Berlin", "2024-03-31/03", "03-31T01:00 03-31T02:00"),
        ("Europe/Berlin", "2024-10-27/02", "10-27T00:00 10-27T02:00"),
        ("Asia/Kolkata", "2024-01-01/00", "12-31T18:30 12-31T19:30"),
        ("Australia/Lord_Howe", "2024-04-07/01", "04-06T14:00 04-06T15:30"),
        ("Australia/Lord_Howe", "2024-10-06/02", "10-05T15:30 10-05T16:00"),
        ("America/Havana", "2024-11-03/00", "11-03T04:00 11-03T06:00"),
    ],
)
def test_hours_of_odd_days(zone, path, found):
    """The hour that clocks show twice spans both; a skipped one is taken for the hour that they show instead."""
    assert in_words(Layout("{date}/{hour}", zone).window_of(f"{path}/a.csv")) == found


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana", "America/Sao_Paulo"]
)
@pytest.mark.parametrize("template", ["{date}/{hour}", "{date}", "{year}/{month}", "{year}"])
def test_slots_meet_end_to_end(zone, template):
    """The folders of a year follow each other without a gap or an overlap, each is read back as itself, and cover every day."""
    layout, wanted = Layout(template, zone), Window(*(datetime(y, 1, 1, tzinfo=ZoneInfo(zone)) for y in (2018, 2019)))

    slots = layout.slots_in(wanted)

    assert (slots[0].window.start_utc, slots[-1].window.end_utc) == (wanted.start_utc, wanted.end_utc)
    assert all(a.window.end_utc == b.window.start_utc for a, b in pairwise(slots))
    assert all(
        layout.window_of(f"{name}/x") == slot.window
        for slot in slots
        for name in (slot.name, slot.unpadded)
        if "date" not in template or name == slot.name
    )
    if template == "{date}":
        days = [date(2018, 1, 1) + timedelta(days=i) for i in range(365)]
        assert [slot.window for slot in slots] == [window_of(day, Grain.DAILY, ZoneInfo(zone)) for day in days]


def test_a_day_that_clocks_skip_has_no_folder():
    """Samoa had no 30 December 2011: no folder is expected for it, and one that is there all the same is of the day after."""
    window = window_of(date(2011, 12, 1), Grain.MONTHLY, ZoneInfo("Pacific/Apia"))
    for template in ("{date}", "{date}/{hour}"):
        layout = Layout(template, "Pacific/Apia")
        slots = layout.slots_in(window)
        assert len({slot.name[:10] for slot in slots}) == 30
        assert all(one.window.end_utc == following.window.start_utc for one, following in pairwise(slots))
    days = Layout("{date}", "Pacific/Apia")
    assert days.window_of("2011-12-30/a") == days.window_of("2011-12-31/a")


def test_slots_of_another_zone_overlap_the_ends():
    """A day in Berlin needs two days of UTC folders, in summer as in winter; a day in UTC the hours of its own."""
    berlin = window_of(date(2024, 3, 31), Grain.DAILY, ZoneInfo("Europe/Berlin"))
    assert [slot.name for slot in Layout("{date}", "UTC").slots_in(berlin)] == ["2024-03-30", "2024-03-31"]
    assert len(Layout("{date}/{hour}", "Europe/Berlin").slots_in(berlin)) == 23
    assert len(Layout("{date}/{hour}", "UTC").slots_in(berlin)) == 23
    assert ANY_TIME.contains(datetime(2024, 1, 1, tzinfo=UTC))
