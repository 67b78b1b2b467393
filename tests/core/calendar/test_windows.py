"""Windows and grains: calendar arithmetic, held against the tables in its own docstrings and a table of edges."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.calendar.windows import (
    Grain,
    Window,
    as_utc,
    first_day,
    midnight_utc,
    next_first_day,
    window_of,
)
from backfill_assets.errors import NaiveInstantError, WindowError
from tests.support.docstring_tables import table_of

UTC_ZONE = ZoneInfo("UTC")
GRAINS = st.sampled_from(list(Grain))
DAYS = st.dates(date(1990, 1, 1), date(2100, 12, 31))
MICROSECOND = timedelta(microseconds=1)


def cases(documented, key):
    """Return (input, grain, output) for each cell of a docstring's table."""
    return [(row[key], grain, row[grain]) for row in table_of(documented) for grain in row if grain != key]


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "share"),
    [((0, 24), 1), ((-5, 50), 1), ((6, 12), 0.25), ((-6, 6), 0.25), ((23, 30), 1 / 24), ((24, 30), 0), ((-9, 0), 0)],
)
def test_which_part_of_a_window_lies_in_another(other, share):
    """From none of it to all of it; a window that only touches it has none."""
    day = datetime(2024, 3, 1, tzinfo=UTC)
    first, last = (day + timedelta(hours=hours) for hours in other)
    assert Window(day, day + timedelta(hours=24)).share_in(Window(first, last)) == pytest.approx(share)


# -- grains ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("day", "grain", "first"), cases(first_day, "day"))
def test_first_day_is_what_its_docstring_says(day, grain, first):
    """Every cell of the table in `first_day` holds."""
    assert first_day(date.fromisoformat(day), Grain(grain)) == date.fromisoformat(first)


@pytest.mark.parametrize(("first", "grain", "following"), cases(next_first_day, "first"))
def test_next_first_day_is_what_its_docstring_says(first, grain, following):
    """Every cell of the table in `next_first_day` holds."""
    assert next_first_day(date.fromisoformat(first), Grain(grain)) == date.fromisoformat(following)


@given(DAYS, GRAINS)
def test_every_day_lies_in_the_partition_that_starts_on_its_first_day(day, grain):
    """`first_day` and `next_first_day` enclose every day, and agree on where partitions start."""
    first = first_day(day, grain)
    following = next_first_day(first, grain)
    assert first <= day < following
    assert first_day(first, grain) == first
    assert first_day(following, grain) == following
    assert first_day(following - timedelta(days=1), grain) == first


# -- zones -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", table_of(midnight_utc), ids=lambda row: f"{row['zone']} {row['day']}")
def test_midnight_is_what_its_docstring_says(row):
    """Every row of the table in `midnight_utc` holds."""
    assert midnight_utc(date.fromisoformat(row["day"]), ZoneInfo(row["zone"])) == datetime.fromisoformat(row["instant"])


@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        ("UTC", "2024-02-29", "2024-02-29T00:00+00:00", 24),
        ("Europe/Berlin", "2024-03-31", "2024-03-30T23:00+00:00", 23),
        ("Europe/Berlin", "2024-10-27", "2024-10-26T22:00+00:00", 25),
        ("America/New_York", "2024-03-10", "2024-03-10T05:00+00:00", 23),
        ("Asia/Kolkata", "2024-02-29", "2024-02-28T18:30+00:00", 24),
        ("Asia/Kathmandu", "2024-01-01", "2023-12-31T18:15+00:00", 24),
        ("Australia/Lord_Howe", "2024-04-07", "2024-04-06T13:00+00:00", 24.5),
        ("America/Sao_Paulo", "2018-11-03", "2018-11-03T03:00+00:00", 24),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00+00:00", 23),
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17T02:00+00:00", 25),
        ("America/Havana", "2024-11-03", "2024-11-03T04:00+00:00", 25),
    ],
)
def test_a_local_day_is_as_long_as_its_zone_makes_it(zone, day, start, hours):
    """Days in which the clocks change have 23, 25 or 24.5 hours, and start when the zone's midnight is."""
    window = window_of(date.fromisoformat(day), Grain.DAILY, ZoneInfo(zone))
    assert window.start_utc == datetime.fromisoformat(start)
    assert window.end_utc - window.start_utc == timedelta(hours=hours)


# -- windows -----------------------------------------------------------------------------------------------------------


def test_a_window_holds_its_start_and_not_its_end():
    """A window is half-open, to the microsecond."""
    window = window_of(date(2024, 2, 29), Grain.DAILY, UTC_ZONE)
    assert window.contains(window.start_utc)
    assert window.contains(window.end_utc - MICROSECOND)
    assert not window.contains(window.end_utc)
    assert not window.contains(window.start_utc - MICROSECOND)


def test_a_window_keeps_its_ends_in_utc():
    """Ends given in another zone are the same instants, written in UTC."""
    plus_two = timezone(timedelta(hours=2))
    window = Window(datetime(2024, 1, 1, 2, tzinfo=plus_two), datetime(2024, 1, 2, 2, tzinfo=plus_two))
    assert (window.start_utc.isoformat(), window.end_utc.isoformat()) == (
        "2024-01-01T00:00:00+00:00",
        "2024-01-02T00:00:00+00:00",
    )
    assert window == window_of(date(2024, 1, 1), Grain.DAILY, UTC_ZONE)


@pytest.mark.parametrize("length", [timedelta(0), -MICROSECOND, timedelta(days=-1)])
def test_an_empty_or_reversed_window_is_refused(length):
    """A window whose end is not after its start cannot be made."""
    start = datetime(2024, 1, 2, tzinfo=UTC)
    with pytest.raises(WindowError) as caught:
        Window(start, start + length)
    assert "is empty or reversed" in str(caught.value)
    assert caught.value.remedy == "Give a start that lies before the end."


def test_a_naive_instant_is_refused():
    """An instant without a zone is never taken for UTC; the message shows how to write it."""
    with pytest.raises(NaiveInstantError) as caught:
        as_utc(datetime(2024, 1, 1, 12))
    assert str(caught.value) == (
        "The instant `2024-01-01T12:00:00` has no time zone. Nothing was written. "
        "Write it with one, for example `2024-01-01T12:00:00+00:00`."
    )


@pytest.mark.parametrize("which", ["start", "end", "instant"])
def test_a_naive_instant_is_refused_wherever_it_comes_in(which):
    """Neither end of a window may be naive, nor what is asked of it."""
    aware, naive = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 12)
    with pytest.raises(NaiveInstantError):
        Window(naive if which == "start" else aware, naive if which == "end" else aware + timedelta(days=1)).contains(
            naive if which == "instant" else aware
        )
