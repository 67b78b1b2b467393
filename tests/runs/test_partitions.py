"""Dagster's partitions and the core's are the same, and a run names what it says."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from dagster import PartitionKeyRange

from backfill_assets.core.calendar.windows import Grain, Window, first_day, midnight_utc
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known
from backfill_assets.errors import WindowError
from backfill_assets.runs.partitions import (
    before_start,
    partition_mapping,
    partitions_definition,
    partitions_of,
    shared_definitions,
    to_be_judged,
)
from tests.support.shop import orders_spec

ZONES = (
    "UTC",
    "Europe/Berlin",  # 23 and 25 hours, in the middle of the night
    "Asia/Kolkata",  # half an hour off
    "Australia/Lord_Howe",  # its clocks move by half an hour
    "America/Sao_Paulo",  # its clocks went forward at midnight: some days had no 00:00
)
EDGES = {
    "leap day": date(2024, 2, 29),
    "no leap day": date(2023, 2, 28),
    "spring in Europe": date(2024, 3, 31),
    "autumn in Europe": date(2024, 10, 27),
    "spring in America": date(2024, 3, 10),
    "autumn in America": date(2024, 11, 3),
    "no midnight in Sao Paulo": date(2018, 11, 4),
    "midnight twice in Sao Paulo": date(2019, 2, 16),
    "autumn in Lord Howe": date(2024, 4, 7),
    "end of a year": date(2023, 12, 31),
    "start of a year": date(2024, 1, 1),
    "week that belongs to two years": date(2020, 12, 30),
}
START = date(2018, 1, 1)  # a Monday and the first of a month


def spec_of(grain: str, zone: str, start: date = START) -> TableSpec:
    return orders_spec(grain=grain, time_zone=zone, start=start)


def run_with(**tags: str) -> Any:
    """As much of Dagster's context as names the partitions."""
    return SimpleNamespace(run=SimpleNamespace(tags={f"dagster/{name}": value for name, value in tags.items()}))


def range_run(first: str, last: str) -> Any:
    return run_with(asset_partition_range_start=first, asset_partition_range_end=last)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("grain", [grain for grain in Grain if grain is not Grain.HOURLY])
@pytest.mark.parametrize("day", EDGES.values(), ids=EDGES.keys())
def test_windows_equal_dagsters(grain: Grain, zone: str, day: date):
    """Around every edge of the calendar Dagster's window of a key is the core's, to the second."""
    spec = spec_of(grain, zone)
    theirs = partitions_definition(spec)
    middle = spec.grid.partition(first_day(day, grain).isoformat())
    for partition in (spec.grid.previous(middle), middle, spec.grid.following(middle)):
        window = theirs.time_window_for_partition_key(partition.key)
        found = (
            datetime.fromtimestamp(window.start.timestamp(), tz=UTC),
            datetime.fromtimestamp(window.end.timestamp(), tz=UTC),
        )
        assert found == (partition.window.start_utc, partition.window.end_utc), partition.key


@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone != "Australia/Lord_Howe"])
@pytest.mark.parametrize("day", EDGES.values(), ids=EDGES.keys())
def test_hours_equal_dagsters(zone: str, day: date):
    """Every hour of the three days around an edge of the calendar is Dagster's: its key and its window, to the second."""
    spec = spec_of(Grain.HOURLY, zone)
    theirs = partitions_definition(spec)
    hours = spec.grid.covering(
        Window(
            midnight_utc(day - timedelta(days=1), spec.grid.zone), midnight_utc(day + timedelta(days=2), spec.grid.zone)
        )
    )
    keys = theirs.get_partition_keys_in_range(PartitionKeyRange(hours[0].key, hours[-1].key))
    assert [p.key for p in hours] == list(keys)
    for hour in hours:
        window = theirs.time_window_for_partition_key(hour.key)
        found = (
            datetime.fromtimestamp(window.start.timestamp(), tz=UTC),
            datetime.fromtimestamp(window.end.timestamp(), tz=UTC),
        )
        assert found == (hour.window.start_utc, hour.window.end_utc), hour.key
        assert spec.grid.partition(hour.key) == hour


def test_a_day_is_made_of_its_hours():
    """A daily table of Berlin lies over exactly the 25 hours of its longest day in the hourly table it is made of."""
    hours, days = (partitions_definition(spec_of(grain, "Europe/Berlin")) for grain in ("hourly", "daily"))
    mapped = partition_mapping(Input(table="bronze/orders")).get_upstream_mapped_partitions_result_for_partitions(
        days.subset_with_partition_keys(["2024-10-27"]), days, hours, current_time=datetime(2025, 6, 1, tzinfo=UTC)
    )
    keys = list(mapped.partitions_subset.get_partition_keys())
    assert (keys[0], keys[-1], len(keys)) == ("2024-10-27-00:00", "2024-10-27-23:00", 25)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo"])
@pytest.mark.parametrize("grain", list(Grain))
def test_keys_equal_dagsters(grain: Grain, zone: str):
    """Over two years of edges, 2018 to 2019, both have the same keys in the same order."""
    spec = spec_of(grain, zone)
    theirs = partitions_definition(spec)
    until = datetime(2020, 1, 1, 12, tzinfo=UTC)
    keys = list(theirs.get_partition_keys(current_time=until))
    ours = [p.key for p in spec.grid.until(until) if p.window.end_utc <= until]
    assert keys == ours


def test_weeks_start_on_monday():
    """A weekly partition is an ISO week: Monday to Sunday."""
    spec = spec_of("weekly", "UTC", start=date(2024, 1, 1))
    window = partitions_definition(spec).time_window_for_partition_key("2024-02-26")
    assert (window.start.weekday(), window.end - window.start) == (0, timedelta(days=7))
    assert partitions_definition(spec).get_partition_keys(current_time=datetime(2024, 1, 16, tzinfo=UTC)) == [
        "2024-01-01",
        "2024-01-08",
    ]


@pytest.mark.parametrize(
    ("run", "keys"),
    [
        pytest.param(run_with(partition="2024-02-29"), ["2024-02-29"], id="one key"),
        pytest.param(range_run("2024-02-28", "2024-03-01"), ["2024-02-28", "2024-02-29", "2024-03-01"], id="a range"),
        pytest.param(range_run("2024-02-29", "2024-02-29"), ["2024-02-29"], id="a range of one"),
    ],
)
def test_a_run_names_its_partitions(run: Any, keys: list[str]):
    """A single key and a range, both ends included, become the core's partitions in order."""
    assert [p.key for p in partitions_of(run, spec_of("daily", "Europe/Berlin"))] == keys


@pytest.mark.parametrize(
    ("run", "what"),
    [
        pytest.param(
            range_run("2024-01-03", "2024-01-01"), "The range `2024-01-03...2024-01-01` is reversed", id="reversed"
        ),
        pytest.param(
            range_run("2017-12-30", "2017-12-31"),
            "`bronze/orders` starts at `2018-01-01`, and the run names `2017-12-30...2017-12-31`",
            id="before the start",
        ),
        pytest.param(range_run("yesterday", "2018-01-02"), "There is no partition `yesterday`", id="no date"),
        pytest.param(range_run("2024-01-01", ""), "the run names no partition", id="no end"),
        pytest.param(run_with(), "`bronze/orders`: the run names no partition", id="none"),
        pytest.param(run_with(partition="2024-02-30"), "There is no partition `2024-02-30`", id="no such day"),
    ],
)
def test_a_run_without_a_usable_range_is_refused(run: Any, what: str):
    """What Dagster lets through and would call a success is an error that says what to launch instead."""
    with pytest.raises(WindowError, match="Nothing was written") as refused:
        partitions_of(run, spec_of("daily", "UTC"))
    assert what in refused.value.what


@pytest.mark.parametrize(
    ("grain", "first", "last", "before", "found"),
    [
        ("daily", "2017-12-30", "2018-01-02", ["2017-12-30", "2017-12-31"], ["2018-01-01", "2018-01-02"]),
        ("weekly", "2017-12-25", "2018-01-01", ["2017-12-25"], ["2018-01-01"]),
        ("hourly", "2017-12-31-23:00", "2018-01-01-00:00", ["2017-12-31-23:00"], ["2018-01-01-00:00"]),
        ("daily", "2018-01-01", "2018-01-02", [], ["2018-01-01", "2018-01-02"]),
    ],
)
def test_range_is_split_at_the_start(grain: str, first: str, last: str, before: list[str], found: list[str]):
    """A range that begins before a table's start names its partitions from there on, in any zone."""
    for zone in ("Europe/Berlin", "America/New_York"):
        run, spec = range_run(first, last), spec_of(grain, zone)
        assert [p.key for p in before_start(run, spec)] == before
        assert [p.key for p in partitions_of(run, spec)] == found


def test_one_grain_and_zone_start_together():
    """Tables of one grain and zone have equal definitions from the earliest start on; the others keep their own."""
    late = {"start": date(2024, 5, 1)}
    specs = {
        "old": spec_of("daily", "UTC"),
        "new": spec_of("daily", "UTC", **late),
        "other zone": spec_of("daily", "Europe/Berlin", **late),
        "other grain": spec_of("monthly", "UTC", **late),
    }
    shared = shared_definitions(specs)
    assert shared["old"] == shared["new"] == partitions_definition(specs["old"])
    assert shared["other zone"] == partitions_definition(specs["other zone"])
    assert shared["other grain"] == partitions_definition(specs["other grain"])


def test_a_month_is_made_of_its_days():
    """A monthly table lies over exactly the days of its months in the daily table it is made of."""
    days, months = partitions_definition(spec_of("daily", "UTC")), partitions_definition(spec_of("monthly", "UTC"))
    mapped = partition_mapping(Input(table="bronze/orders")).get_upstream_mapped_partitions_result_for_partitions(
        months.subset_with_partition_keys(["2024-02-01"]), months, days, current_time=datetime(2024, 6, 1, tzinfo=UTC)
    )
    keys = list(mapped.partitions_subset.get_partition_keys())
    assert (keys[0], keys[-1], len(keys)) == ("2024-02-01", "2024-02-29", 29)


def test_offsets_widen_what_a_table_is_made_of():
    """`start_offset: -1` lays a day over itself and the day before, also where that lies before the input's start."""
    days = partitions_definition(spec_of("daily", "UTC"))
    now = datetime(2024, 6, 1, tzinfo=UTC)
    mapping = partition_mapping(Input(table="bronze/orders", start_offset=-1))
    for key, upstream in (("2024-03-01", ["2024-02-29", "2024-03-01"]), ("2018-01-01", ["2018-01-01"])):
        mapped = mapping.get_upstream_mapped_partitions_result_for_partitions(
            days.subset_with_partition_keys([key]), days, days, current_time=now
        )
        assert list(mapped.partitions_subset.get_partition_keys()) == upstream


@pytest.mark.parametrize("grain", ["hourly", "daily", "weekly", "monthly"])
def test_what_is_judged_is_what_dagster_has(grain: str):
    """What is not over is not missing, whatever files there are of it; what was published all the same is looked at."""
    now = datetime(2024, 3, 13, 14, 30, tzinfo=UTC)
    start = first_day((now - timedelta(days=40)).date(), Grain(grain))
    spec = orders_spec(grain=grain, start=start.isoformat())
    named = spec.grid.until(now + timedelta(days=40))
    bounds = Known(dict.fromkeys([named[-1].key]), complete_until=named[-1].window.end_utc, is_source_known=True)
    judged = {partition.key for partition in to_be_judged(spec, bounds, now)}
    known = {*partitions_definition(spec).get_partition_keys(current_time=now)}
    assert judged - known == {named[-1].key}
    assert known - judged == set()
