"""Once-flows: which a spec makes, and which it is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.spec.lakehouse import check_together
from tests.core.spec.specs import refusal_of, spec

LIVE = {"path": "visit_events", "starts": "2024-07-01", "late": "keep"}


def visits(once, **changes):
    return spec(**{"key": "bronze/visits", "start": "2022-01-01", "once": once, **changes})


@pytest.mark.parametrize(
    "years", [[2022, 2023, 2024], [2024, 2022, 2023], ["2023", "2024", "2022"], "2024,2023,2022", " 2024, 2023,2022 "]
)
def test_one_flow_for_each_year(years):
    """Years in any order, as a list or as Lakeflow's one text, make one flow each: unique names, whole years, in order."""
    flows = visits({"years": years}).once_flows
    assert [(flow.key, flow.range, len(flow.partitions)) for flow in flows] == [
        ("bronze/visits_2022", "2022-01-01...2022-12-31", 365),
        ("bronze/visits_2023", "2023-01-01...2023-12-31", 365),
        ("bronze/visits_2024", "2024-01-01...2024-12-31", 366),
    ]


def test_what_a_template_makes_of_a_text():
    """Dagster's resolver makes a number of the text `2024`, and a tuple of `2024,2023`: they are years all the same."""
    assert [flow.name for flow in visits({"years": 2024}).once_flows] == ["visits_2024"]
    assert [flow.name for flow in visits({"years": (2024, 2023)}).once_flows] == ["visits_2023", "visits_2024"]


@pytest.mark.parametrize(
    ("grain", "start", "zone", "expected"),
    [
        ("daily", "2022-01-01", "Asia/Kolkata", "2024-01-01...2024-12-31"),
        ("weekly", "2022-01-03", "UTC", "2024-01-01...2024-12-30"),
        ("monthly", "2022-01-01", "Europe/Berlin", "2024-01-01...2024-12-01"),
    ],
)
def test_a_year_is_the_partitions_that_begin_in_it(grain, start, zone, expected):
    """A year has the partitions whose first local day lies in it, on every grain and in every zone."""
    (flow,) = visits({"years": [2024]}, grain=grain, start=start, time_zone=zone).once_flows
    assert flow.range == expected


def test_weeks_that_lie_in_two_years_belong_to_one_flow():
    """On a weekly grid the flows of all years have every partition once."""
    spec = visits({"years": [2022, 2023, 2024]}, grain="weekly", start="2022-01-03")
    in_flows = [p for flow in spec.once_flows for p in flow.partitions]
    assert in_flows == spec.grid.between("2022-01-03", "2024-12-30")


def test_names_and_ranges():
    """A template names the years' flows; ranges bring their own names and may lie between the years."""
    spec = visits({"name": "load_{year}_again", "years": [2024], "ranges": {"migration_a": "2022-03-05...2023-06-30"}})
    assert [(flow.name, flow.range) for flow in spec.once_flows] == [
        ("migration_a", "2022-03-05...2023-06-30"),
        ("load_2024_again", "2024-01-01...2024-12-31"),
    ]


def test_a_flow_may_end_where_the_stream_begins():
    """The boundary is one half-open instant: the last partition of a flow ends at it."""
    (flow,) = visits({"ranges": {"before": "2024-01-01...2024-06-30"}}, live=LIVE).once_flows
    assert flow.partitions[-1].window.end_utc == datetime(2024, 7, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("once", "says"),
    [
        ({"years": "2024,2023,2024"}, "`2024` comes twice; a year has one flow"),
        ({"years": [2023, "20x4"]}, "`20x4` is not a year: write four digits each"),
        ({"years": "2023-2024"}, "`2023-2024` is not a year"),
        ({"years": [2024], "name": "visits_once"}, "`visits_once` does not contain `{year}` exactly once"),
        ({"ranges": {"a": "2022-06-30"}}, "once.ranges: `a`: `2022-06-30` is not a range"),
        ({}, "once: there is neither a year nor a range; write for example `years: [2023, 2024]`"),
        (
            {"years": [2024], "name": "Visits {year}"},
            "once.name: `Visits 2024`: a flow's name has small letters, digits and `_`",
        ),
        ({"ranges": {"visits": "2024-01-01...2024-01-31"}}, "once.ranges: `visits` is the table's own name"),
        (
            {"years": [2024], "ranges": {"visits_2024": "2022-01-01...2022-01-31"}},
            "two flows have the name `visits_2024`",
        ),
        (
            {"ranges": {"a": "2022-01-01...2022-06-30", "b": "2022-06-30...2022-12-31"}},
            "once.ranges: `b` (2022-06-30...2022-12-31) overlaps `a` (2022-01-01...2022-06-30); a partition belongs to one flow",
        ),
        (
            {"ranges": {"a": "2022-06-30...2022-01-01"}},
            "once.ranges: `a`: The range `2022-06-30...2022-01-01` is reversed",
        ),
        ({"ranges": {"a": "2022-06-31...2022-07-01"}}, "once.ranges: `a`: There is no partition `2022-06-31`"),
        (
            {"years": [2021, 2022]},
            "once.years: `visits_2021` (2021-01-01...2021-12-31) begins before the table's start, `2022-01-01`; move `start`",
        ),
        (
            {"years": [2022, 2023], "begin": "2022-01-02"},
            "once.years: `visits_2022` (2022-01-01...2022-12-31) begins before `begin`, `2022-01-02`",
        ),
    ],
)
def test_flows_that_cannot_be(once, says):
    """Bad ranges, overlaps, names and years before a guard are refused, with the value and what would be right."""
    assert says in refusal_of(visits, once)


def test_a_flow_that_reaches_into_the_stream_is_refused():
    """What the live stream owns from the beginning is not history's to load."""
    assert refusal_of(visits, {"years": [2024]}, live=LIVE) == (
        "once.years: `visits_2024` (2024-01-01...2024-12-31) reaches into what the live stream owns: `live.starts` is `2024-07-01`; "
        "a flow ends before it, so name the part before it under `ranges`"
    )


def test_a_flow_may_not_have_a_name_that_is_taken():
    """A table, a live stream's asset, or another table's flow: each name stands for one asset."""
    others = {
        "bronze/visits_2022": visits(None, key="bronze/visits_2022"),
        "bronze/clicks": visits(None, key="bronze/clicks", live=LIVE),
        "bronze/pages": visits({"ranges": {"shared": "2022-01-01...2022-01-02"}}, key="bronze/pages"),
    }
    mine = visits(
        {"years": [2022], "ranges": {"clicks_live": "2023-01-01...2023-01-02", "shared": "2023-02-01...2023-02-02"}}
    )
    reports = []
    check_together({**others, "bronze/visits": mine}, lambda key, says: reports.append((key, says.split(";")[0])))
    assert reports == [
        ("bronze/visits", "once: the flow `visits_2022` has the name of the table `bronze/visits_2022`"),
        ("bronze/visits", "once: the flow `clicks_live` has the name of the live stream of `bronze/clicks`"),
        ("bronze/visits", "once: the flow `shared` has the name of a flow of `bronze/pages`"),
    ]
