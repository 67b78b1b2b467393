"""Grids of partitions, made and drawn, for the tests of the calendar."""

from __future__ import annotations

from datetime import date, timedelta

from hypothesis import strategies as st

from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.calendar.windows import Grain, first_day

DAILY = Grid(Grain.DAILY, date(2023, 1, 1))
YEARS = DAILY.between("2023-01-01", "2025-12-31")
MICROSECOND = timedelta(microseconds=1)
ZONES = [
    "UTC",
    "Europe/Berlin",
    "Asia/Kolkata",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "America/Havana",
    "Pacific/Auckland",
    "Asia/Kathmandu",
]


@st.composite
def grids(draw):
    """Any grid that starts between 2015 and 2026, when São Paulo's clocks still changed at midnight."""
    grain = draw(st.sampled_from(list(Grain)))
    start = draw(st.dates(date(2015, 1, 1), date(2025, 12, 31)))
    zones = [zone for zone in ZONES if grain is not Grain.HOURLY or zone != "Australia/Lord_Howe"]
    return Grid(grain, first_day(start, grain), draw(st.sampled_from(zones)))


@st.composite
def ranges(draw):
    """A grid and the partitions of a range on it."""
    grid = draw(grids())
    partition = grid.partition_of(grid.start_utc)
    found = [partition]
    for _ in range(draw(st.integers(0, 40))):
        found.append(grid.following(found[-1]))
    return grid, found
