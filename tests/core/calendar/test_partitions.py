"""Partitions: their keys, their hours, the instants in them, and ranges of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.calendar.partitions import Grid, runs_of
from backfill_assets.core.calendar.windows import Grain, Window, first_day
from backfill_assets.core.sql import replace_where
from backfill_assets.errors import WindowError
from tests.core.calendar.grids import DAILY, MICROSECOND, ranges

# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_partition_is_named_by_its_first_local_day():
    """The key is the ISO date of the first local day; the window is in UTC."""
    partition = Grid(Grain.DAILY, date(2024, 1, 1), "Asia/Kolkata").partition("2024-02-29")
    assert partition.key == "2024-02-29"
    assert (partition.value, partition.next_value) == (date(2024, 2, 29), date(2024, 3, 1))
    assert partition.window == Window(
        datetime(2024, 2, 28, 18, 30, tzinfo=UTC), datetime(2024, 2, 29, 18, 30, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("grain", "key", "why"),
    [
        ("daily", "2023-02-29", "it is not a date in the form `YYYY-MM-DD`"),
        ("daily", "", "it is not a date in the form `YYYY-MM-DD`"),
        ("daily", "20240101", "it is not a date in the form `YYYY-MM-DD`"),
        ("daily", "2024-W01-1", "it is not a date in the form `YYYY-MM-DD`"),
        ("daily", "2022-12-31", "the table starts at `2023-01-02`"),
        ("weekly", "2024-01-02", "no weekly partition starts on it; the one that holds it is `2024-01-01`"),
        ("monthly", "2024-02-29", "no monthly partition starts on it; the one that holds it is `2024-02-01`"),
    ],
)
def test_a_key_off_the_grid_is_refused(grain, key, why):
    """A key that is no date, not on the grain or before the start is refused in words that say which."""
    grid = Grid(Grain(grain), date(2023, 1, 2), "Europe/Berlin")
    with pytest.raises(WindowError) as caught:
        grid.partition(key)
    assert str(caught.value) == (
        f"There is no partition `{key}`: {why}. Nothing was written. "
        f"Keys are the first days of {grain} partitions in `Europe/Berlin`, from `2023-01-02` on."
    )
    assert caught.value.facts == {"key": key}


def test_what_was_named_before_a_moved_start_is_left_out():
    """Keys of an earlier start are of no partition any more; a key that is none of the grain is an error all the same."""
    assert [p.key for p in DAILY.from_start(["2023-01-02", "2022-12-31", "2023-01-01"])] == ["2023-01-01", "2023-01-02"]
    assert DAILY.from_start([]) == []
    monthly = Grid(Grain.MONTHLY, date(2023, 1, 1))
    with pytest.raises(WindowError, match="no monthly partition starts on it"):
        monthly.from_start(["2022-12-31"])


def test_a_day_that_clocks_skip_is_no_partition():
    """Samoa had no 30 December 2011: the key says so, and the days around it follow each other."""
    samoa = Grid(Grain.DAILY, date(2011, 12, 1), "Pacific/Apia")
    with pytest.raises(
        WindowError, match="There is no partition `2011-12-30`: the clocks of `Pacific/Apia` skip that day"
    ):
        samoa.partition("2011-12-30")
    assert [p.key for p in samoa.between("2011-12-29", "2011-12-31")] == ["2011-12-29", "2011-12-31"]


# -- hours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "key", "start", "value"),
    [
        ("UTC", "2024-02-29-23:00", "2024-02-29T23:00:00+00:00", "2024-02-29-23"),
        ("Europe/Berlin", "2024-03-31-01:00", "2024-03-31T00:00:00+00:00", "2024-03-31-00"),
        ("Europe/Berlin", "2024-03-31-03:00", "2024-03-31T01:00:00+00:00", "2024-03-31-01"),
        ("Europe/Berlin", "2024-10-27-02:00", "2024-10-27T00:00:00+00:00", "2024-10-27-00"),
        ("Europe/Berlin", "2024-10-27-02:00+0100", "2024-10-27T01:00:00+00:00", "2024-10-27-01"),
        ("America/New_York", "2024-11-03-01:00-0500", "2024-11-03T06:00:00+00:00", "2024-11-03-06"),
        ("Asia/Kolkata", "2024-01-01-00:00", "2023-12-31T18:30:00+00:00", "2023-12-31-18"),
        ("Asia/Kathmandu", "2024-01-01-00:00", "2023-12-31T18:15:00+00:00", "2023-12-31-18"),
    ],
)
def test_an_hour_is_named_by_the_local_clock_and_kept_in_utc(zone, key, start, value):
    """The key shows the local hour, the second one of a doubled hour its offset; the table holds the hour in UTC."""
    grid = Grid(Grain.HOURLY, date(2023, 1, 1), zone)
    partition = grid.partition(key)
    assert partition.window == Window(datetime.fromisoformat(start), datetime.fromisoformat(start) + timedelta(hours=1))
    assert (partition.key, partition.value, grid.key_of(value)) == (key, value, key)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("2024-01-01", "it is not an hour in the form `YYYY-MM-DD-HH:00`"),
        ("2024-01-01-24:00", "it is not an hour in the form `YYYY-MM-DD-HH:00`"),
        ("2024-01-01-05:30", "it is not an hour in the form `YYYY-MM-DD-HH:00`"),
        (
            "2024-03-31-02:00",
            "the clocks of `Europe/Berlin` do not show that hour so; the one at that instant is `2024-03-31-03:00`",
        ),
        (
            "2024-10-27-03:00+0100",
            "the clocks of `Europe/Berlin` do not show that hour so; the one at that instant is `2024-10-27-03:00`",
        ),
        ("2022-12-31-23:00", "the table starts at `2023-01-01`"),
    ],
)
def test_an_hour_that_is_none_is_refused(key, why):
    """A key in another form, of an hour that the clocks skip, or before the start is refused in words that say which."""
    with pytest.raises(WindowError) as caught:
        Grid(Grain.HOURLY, date(2023, 1, 1), "Europe/Berlin").partition(key)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("day", "hours"), [("2024-03-30", 24), ("2024-03-31", 23), ("2024-10-27", 25), ("2024-02-29", 24)]
)
def test_odd_days_have_their_hours(day, hours):
    """The day on which Berlin's clocks go forward has 23 hours, the one on which they go back 25."""
    whole = Grid(Grain.DAILY, date(2023, 1, 1), "Europe/Berlin").partition(day)
    found = Grid(Grain.HOURLY, date(2023, 1, 1), "Europe/Berlin").covering(whole.window)
    assert (len(found), len({p.key for p in found}), len({p.value for p in found})) == (hours, hours, hours)
    assert all(f"'{hour.value}'" in replace_where("hour", found) for hour in found)


def test_three_years_of_hours():
    """26,304 hours, each with a key and a value of its own, in an order that is the same for time, for text and for both."""
    for zone in ("UTC", "Europe/Berlin", "Asia/Kolkata"):
        grid = Grid(Grain.HOURLY, date(2023, 1, 1), zone)
        hours = grid.covering(Window(grid.start_utc, grid.start_utc + timedelta(days=1096)))
        assert len({p.key for p in hours}) == len(hours) == 26_304
        assert [p.value for p in hours] == sorted(p.value for p in hours)
        assert [grid.key_of(p.value) for p in hours] == [p.key for p in hours]


# -- instants ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "instant", "key"),
    [
        ("UTC", "2024-02-29T23:59:59.999999+00:00", "2024-02-29"),
        ("Europe/Berlin", "2024-03-30T22:59:59.999999+00:00", "2024-03-30"),
        ("Europe/Berlin", "2024-03-30T23:00:00+00:00", "2024-03-31"),
        ("America/Sao_Paulo", "2018-11-04T02:59:59.999999+00:00", "2018-11-03"),
        ("America/Sao_Paulo", "2018-11-04T03:00:00+00:00", "2018-11-04"),
        ("Asia/Kolkata", "2024-01-01T00:00:00+05:30", "2024-01-01"),
    ],
)
def test_an_instant_lies_in_the_partition_of_its_local_day(zone, instant, key):
    """An instant belongs to the local day of the table's zone, whatever zone it is written in."""
    assert Grid(Grain.DAILY, date(2018, 1, 1), zone).partition_of(datetime.fromisoformat(instant)).key == key


def test_an_instant_before_the_start_has_no_partition():
    """The microsecond before the first partition is refused."""
    with pytest.raises(WindowError, match="the table starts at `2023-01-01`"):
        DAILY.partition_of(datetime(2023, 1, 1, tzinfo=UTC) - MICROSECOND)


@given(ranges())
def test_partitions_tile_time(made):
    """On every grid each partition ends at the instant the next one starts, and none is empty."""
    grid, partitions = made
    for one, following in pairwise(partitions):
        assert one.window.end_utc == following.window.start_utc
        assert one.next_value == following.value
        assert one.window.start_utc < one.window.end_utc
        assert grid.previous(following) == one


@given(ranges(), st.data())
def test_every_instant_lies_in_exactly_one_partition(made, data):
    """Of consecutive partitions exactly one contains an instant: anywhere, and a microsecond around the edges."""
    grid, partitions = made
    edges = [p.window.start_utc for p in partitions] + [p.window.end_utc - MICROSECOND for p in partitions]
    first, last = partitions[0].window.start_utc, partitions[-1].window.end_utc - MICROSECOND
    anywhere = st.integers(0, int((last - first) / MICROSECOND)).map(lambda n: first + n * MICROSECOND)
    instant = data.draw(st.sampled_from(edges) | anywhere)
    assert [p for p in partitions if p.window.contains(instant)] == [grid.partition_of(instant)]


# -- ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grain", "first", "last", "keys"),
    [
        ("daily", "2024-02-28", "2024-03-01", ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("monthly", "2023-12-01", "2024-02-01", ["2023-12-01", "2024-01-01", "2024-02-01"]),
    ],
)
def test_a_range_includes_both_its_keys(grain, first, last, keys):
    """A range names its last partition too; a range of one is one partition."""
    grid = Grid(Grain(grain), first_day(date(2023, 1, 2), Grain(grain)))
    assert [p.key for p in grid.between(first, last)] == keys


def test_a_reversed_range_is_refused():
    """A range whose last key lies before its first is refused, and the message turns it round."""
    with pytest.raises(WindowError) as caught:
        DAILY.between("2024-01-02", "2024-01-01")
    assert "Launch `2024-01-01...2024-01-02`" in str(caught.value)


@given(ranges())
def test_covering_finds_the_partitions_of_a_window(made):
    """The partitions that cover the window of a range are the range; a microsecond less or more changes the ends."""
    grid, partitions = made
    start, end = partitions[0].window.start_utc, partitions[-1].window.end_utc
    assert grid.covering(Window(start, end)) == partitions
    assert grid.covering(Window(start, end + MICROSECOND)) == [*partitions, grid.following(partitions[-1])]
    assert grid.covering(Window(start - MICROSECOND, end)) == partitions, "nothing lies before the start"
    if len(partitions) > 1:
        assert grid.covering(Window(partitions[0].window.end_utc, end)) == partitions[1:]
        assert grid.covering(Window(partitions[0].window.end_utc - MICROSECOND, end)) == partitions


def test_runs_are_cut_where_a_partition_is_missing():
    """Consecutive partitions are one run."""
    days = DAILY.between("2024-01-01", "2024-01-07")
    chosen = [days[0], days[1], days[3], days[6]]
    assert [[p.value.day for p in run] for run in runs_of(chosen)] == [[1, 2], [4], [7]]
    assert list(runs_of([])) == []
