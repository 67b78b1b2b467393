"""Once-flows: which a spec makes, which it is refused, and what the receipts say of each; over fakes."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from pydantic import ValidationError

from backfill_assets.core.history.once import progress_of, reset_receipt
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.ports import Effects
from backfill_assets.core.history.publish import Published, materialize
from backfill_assets.core.spec.lakehouse import check_together
from backfill_assets.core.spec.once import OnceFlow
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PartitionReceipt
from tests.support.fake_lake import FakeLake
from tests.support.fakes import FakeSource, files_of, receipt_of, spec_with

FIRST, LAST = "2024-02-26", "2024-03-02"
KEYS = ["2024-02-26", "2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"]
NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
PLAIN = {
    "key": "bronze/visits",
    "columns": {"visit_id": "bigint not null", "visited_at": "timestamp not null"},
    "event_time": "visited_at",
    "grain": "daily",
    "start": "2022-01-01",
    "source": {"kind": "files", "path": "visits", "format": "json"},
}
LIVE = {"path": "visit_events", "starts": "2024-07-01", "late": "keep"}


def visits(once, **changes):
    return TableSpec.model_validate({**PLAIN, "once": once, **changes})


def refusal_of(once, **changes):
    with pytest.raises(ValidationError) as caught:
        visits(once, **changes)
    (error,) = caught.value.errors()
    return error["msg"].removeprefix("Value error, ")


# -- which flows there are ---------------------------------------------------------------------------------------------


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
        ({"years": ""}, "`` is not a year: write four digits each"),
        ({"years": [24]}, "`24` is not a year"),
        ({"years": True}, "`True` is not a year"),
        ({"years": "2023-2024"}, "`2023-2024` is not a year"),
        ({}, "once: there is neither a year nor a range; write for example `years: [2023, 2024]`"),
        (
            {"years": [2024], "name": "visits_once"},
            "`visits_once` does not contain `{year}` exactly once, so years would share a name",
        ),
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
            {"years": [2023], "ranges": {"inside": "2023-05-01...2023-05-02"}},
            "once.ranges: `inside` (2023-05-01...2023-05-02) overlaps `visits_2023` (2023-01-01...2023-12-31)",
        ),
        (
            {"ranges": {"a": "2022-06-30...2022-01-01"}},
            "once.ranges: `a`: The range `2022-06-30...2022-01-01` is reversed",
        ),
        ({"ranges": {"a": "2022-06-31...2022-07-01"}}, "once.ranges: `a`: There is no partition `2022-06-31`"),
        (
            {"ranges": {"a": "2022-06-30"}},
            "once.ranges: `a`: `2022-06-30` is not a range; write first and last partition",
        ),
        ({"ranges": {"a": "2021-12-31...2022-07-01"}}, "the table starts at `2022-01-01`"),
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
    assert says in refusal_of(once)


def test_a_flow_that_reaches_into_the_stream_is_refused():
    """What the live stream owns from the beginning is not history's to load."""
    assert refusal_of({"years": [2024]}, live=LIVE) == (
        "once.years: `visits_2024` (2024-01-01...2024-12-31) reaches into what the live stream owns: `live.starts` is `2024-07-01`; "
        "a flow ends before it, so name the part before it under `ranges`"
    )


def test_the_day_of_the_stream_is_one_of_the_tables_zone():
    """The refusal names the local day, though the fence is an instant in UTC."""
    assert "`live.starts` is `2024-07-01`" in refusal_of({"years": [2024]}, live=LIVE, time_zone="Asia/Tokyo")


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


def test_a_spec_with_flows_survives_json():
    """A spec with once-flows is read back the same from its JSON."""
    made = visits({"years": "2023,2022", "begin": "2022-01-01", "ranges": {"a": "2024-01-01...2024-01-02"}})
    assert TableSpec.model_validate_json(made.model_dump_json()) == made
    assert made.once is not None
    assert (made.once.years, made.once.begin) == ([2023, 2022], date(2022, 1, 1))


# -- what was done -----------------------------------------------------------------------------------------------------


class Shop:
    """A table over lists with one flow of the first four days."""

    def __init__(self):
        self.spec = spec_with()
        self.source = FakeSource(self.spec, files_of(self.spec, FIRST, LAST))
        self.lake = FakeLake(self.spec)
        self.flow = OnceFlow("bronze/first_days", tuple(self.spec.grid.partition(key) for key in KEYS[:4]), "ranges")

    @property
    def progress(self):
        return progress_of(self.flow, self.lake.receipts())

    def publish(self, partitions, *, flow="", run_id="run", stop_after=None):
        launch = Launch(run_id, run_id, flow=flow, max_partitions_per_chunk=1)
        outcomes = materialize(
            self.spec, list(partitions), self.source, self.lake, launch, effects=Effects(now=lambda: NOW)
        )
        for number, outcome in enumerate(outcomes, 1):
            assert isinstance(outcome, Published)
            if number == stop_after:
                outcomes.close()
                break

    def load(self, **how):
        self.publish(self.progress.left, flow=self.flow.name, **how)

    def reset(self, flow=None):
        receipt = reset_receipt(
            flow or self.flow,
            self.spec.key,
            version=self.lake.version(),
            run_id="",
            root_run_id="",
            reason="why",
            now=NOW,
        )
        self.lake.add_version({}, metadata=receipt.to_json())


@pytest.fixture
def shop():
    return Shop()


def test_a_flow_that_never_ran(shop):
    """Without a receipt of its own a flow has all of its partitions left, whoever else published them."""
    shop.publish(shop.flow.partitions)
    assert (shop.progress.state, shop.progress.left, shop.progress.rows) == ("never run", list(shop.flow.partitions), 0)
    assert shop.progress.in_words() == "`first_days` never ran."


def test_a_flow_that_is_done(shop):
    """When each partition has a receipt of the flow nothing is left; who did it, when, and how many rows is known."""
    shop.load(run_id="the run")
    progress = shop.progress
    assert (progress.state, progress.left) == ("done", [])
    assert progress.rows == sum(len(shop.source.files[key]) for key in KEYS[:4])
    assert progress.newest is not None
    assert (progress.newest.version, progress.newest.receipt.run_id) == (4, "the run")
    assert progress.in_words().endswith("the last at 2025-06-01T12:00:00+00:00 in version 4 by run the run.")


def test_a_flow_that_was_killed_goes_on_with_the_rest(shop):
    """What was published before the kill is not left; the next run does the others, each once."""
    shop.load(stop_after=3)
    assert (shop.progress.state, [p.key for p in shop.progress.left]) == ("partly", KEYS[3:4])
    shop.load()
    assert shop.progress.state == "done"
    assert [list(receipt.partitions) for _, receipt in sorted(shop.lake.receipts().items())] == [
        [key] for key in KEYS[:4]
    ]


def test_a_correction_by_somebody_else_does_not_make_it_run_again(shop):
    """An ordinary launch, or another flow, writes the same partitions later: the flow stays done, with what it did."""
    shop.load(run_id="the run")
    rows = shop.progress.rows
    shop.source.files[KEYS[1]] = shop.source.files[KEYS[1]][:1]
    shop.publish(shop.flow.partitions[1:2], run_id="a correction")
    shop.publish(shop.flow.partitions[2:3], flow="another")
    assert (shop.progress.state, shop.progress.rows, shop.progress.newest.receipt.run_id) == ("done", rows, "the run")


def test_after_a_reset_it_runs_again(shop):
    """A reset counts from its version on; the flow of another name is not reset by it; rows stay as they are."""
    shop.load()
    content = shop.lake.content()
    shop.reset(OnceFlow("bronze/another", shop.flow.partitions, "ranges"))
    assert shop.progress.state == "done"
    shop.reset()
    assert (shop.progress.state, len(shop.progress.left), shop.lake.content()) == ("never run", 4, content)
    assert shop.progress.in_words() == "`first_days` never ran since it was reset."
    shop.load()
    assert (shop.progress.state, shop.lake.content()) == ("done", content)


def test_a_reset_of_a_flow_that_was_killed(shop):
    """A reset takes back what a flow did so far, and no more: what follows counts."""
    shop.load(stop_after=2)
    shop.reset()
    shop.load(stop_after=1)
    assert [p.key for p in shop.progress.left] == KEYS[1:4]


def test_a_reset_is_no_publish(shop):
    """The newest publish of each partition is the same after a reset, and a launch that asks for what is missing writes nothing."""
    shop.load()
    before = shop.lake.published()
    shop.reset()
    assert shop.lake.published() == before


def test_what_was_put_back_is_left():
    """A publish whose content was lost in the write, and put back, was not done."""
    flow = Shop().flow
    day = PartitionReceipt(3, "ff", 1, 2, "f")
    publish = receipt_of({KEYS[0]: day, KEYS[1]: day}, flow=flow.name)
    restore = receipt_of({KEYS[1]: day}, flow=flow.name, kind="put_back")
    assert set(progress_of(flow, {1: publish}).published) == set(KEYS[:2])
    assert set(progress_of(flow, {1: publish, 2: restore}).published) == {KEYS[0]}
    assert set(progress_of(flow, {1: publish, 2: restore, 3: publish}).published) == set(KEYS[:2])


def test_a_flow_whose_range_was_made_longer(shop):
    """A range that is changed in the spec keeps what was done of it; the rest is left."""
    shop.load()
    longer = OnceFlow(shop.flow.key, tuple(shop.spec.grid.partition(key) for key in KEYS), "ranges")
    progress = progress_of(longer, shop.lake.receipts())
    assert (progress.state, [p.key for p in progress.left]) == ("partly", KEYS[4:])
