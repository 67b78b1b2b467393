"""A table that follows: its partitions are launched when those that they are made of were published."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from backfill_assets import TableSpec
from backfill_assets.assets.follow import AGAIN_AFTER_SECONDS, Followed, _requests
from tests.support.follow_office import DAYS, FOLLOWING, MONTHLY, Office, tags_of
from tests.support.launching import (
    ORDERS,
    TOTALS,
    Lake,
    key_of,
    new_lake,
)
from tests.support.shop import orders, orders_spec
from tests.support.under_way import requested


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def test_what_was_published_is_followed_once(instance: dg.DagsterInstance):
    """A request for each consecutive range; nothing at the next look, and nothing that was before the first."""
    office = Office(instance)
    office.published(DAYS[2])
    assert office.tick() == "Nothing is new."
    office.published(DAYS[0], DAYS[1], "2024-01-07")
    assert office.asked() == [(DAYS[0], DAYS[1]), ("2024-01-07", "2024-01-07")]
    assert office.tick() == "Nothing is new."


def test_the_month_follows_its_days(instance: dg.DagsterInstance):
    """Each day that was published asks for its month; the launch leaves it out until the last one is there."""
    office = Office(instance, MONTHLY)
    office.tick()
    office.published("2024-01-31", "2024-03-02")
    assert office.asked() == [("2024-01-01", "2024-01-01"), ("2024-03-01", "2024-03-01")]


def test_a_day_that_is_not_over_is_asked_for_when_it_is(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch):
    """Its input may be published all day long; a launch leaves the day out until it has ended, and none may come later."""
    office, today = Office(instance), f"{datetime.now(UTC):%Y-%m-%d}"
    office.tick()
    office.published(DAYS[0], today)
    assert office.asked() == [(DAYS[0], DAYS[0])]
    assert office.tick() == "1 partitions are launched when they are over."
    later(monkeypatch, 86_401)
    assert office.asked() == [(today, today)]
    assert office.tick() == "Nothing is new."


def test_a_copy_of_a_version_follows_all_day():
    """It takes a partition as it is, and is to be in step with a table that follows a database."""
    source = {"kind": "version", "table": ORDERS}
    copy = orders_spec(key=f"{ORDERS}__v2", version_of={"table": ORDERS}, source=source)
    noon = datetime(2024, 1, 5, 12, tzinfo=UTC)
    for spec, asked in ((copy, 1), (FOLLOWING, 0)):
        assert len(_requests(spec, Followed(waiting=["2024-01-05"]), noon)) == asked


@pytest.mark.parametrize("table", [ORDERS, TOTALS])
def test_it_waits_until_nothing_is_launched(instance: dg.DagsterInstance, table: str):
    """Neither what it is made of nor itself: then one run for all that was published meanwhile."""
    office = Office(instance)
    office.tick()
    run = office.launching(table)
    office.published(DAYS[0])
    assert office.tick() == f"1 partitions wait for run {run.run_id}."
    office.published(DAYS[1])
    assert office.tick() == f"2 partitions wait for run {run.run_id}."
    instance.report_run_canceled(run)
    assert office.asked() == [(DAYS[0], DAYS[1])]


def test_requested_backfill_holds_following(instance: dg.DagsterInstance):
    """It will publish more."""
    office = Office(instance)
    office.tick()
    backfill_id = requested(instance, key_of(ORDERS))
    office.published(DAYS[0])
    assert office.tick() == f"1 partitions wait for backfill {backfill_id}."


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the sensor's clock be ahead."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(UTC) + timedelta(seconds=seconds)

    monkeypatch.setattr("backfill_assets.assets.follow.datetime", Clock)


@pytest.mark.parametrize("ended", [dg.DagsterRunStatus.FAILURE, None], ids=["failed", "never began"])
def test_what_has_failed_is_asked_for_again(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, ended: Any):
    """After a while, without any new event; once that has succeeded, no more."""
    office = Office(instance)
    office.tick()
    office.published(*DAYS)
    assert office.asked(ended) == [(DAYS[0], DAYS[2])]
    assert "3 partitions are launched again at " in office.tick()
    assert "3 partitions are launched again at " in office.tick(), "not yet"
    later(monkeypatch, AGAIN_AFTER_SECONDS[0] + 1)
    assert office.asked() == [(DAYS[0], DAYS[2])]
    assert office.tick() == "Nothing is new."


def test_it_is_not_asked_for_without_end(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch):
    """Whoever was told has to look; what its inputs publish afterwards is followed as before."""
    office, ahead = Office(instance), 0.0
    office.tick()
    office.published(DAYS[0])
    for seconds in AGAIN_AFTER_SECONDS:
        assert office.asked(dg.DagsterRunStatus.FAILURE) == [(DAYS[0], DAYS[0])]
        assert "1 partitions are launched again at " in office.tick()
        ahead += seconds + 1
        later(monkeypatch, ahead)
    assert office.asked(dg.DagsterRunStatus.FAILURE) == [(DAYS[0], DAYS[0])]
    assert office.tick() == "Nothing is new."
    later(monkeypatch, 1_000_000)
    assert office.tick() == "Nothing is new."
    office.published(DAYS[0], DAYS[1])
    assert office.asked() == [(DAYS[0], DAYS[1])]


def test_a_newer_event_does_not_wait_for_the_next_attempt(instance: dg.DagsterInstance):
    """What failed and was published anew is launched at once; the rest of its range when its time has come."""
    office = Office(instance)
    office.tick()
    office.published(*DAYS)
    office.asked(dg.DagsterRunStatus.FAILURE)
    office.tick()
    office.published(DAYS[1])
    assert office.asked() == [(DAYS[1], DAYS[1])]
    assert "2 partitions are launched again at " in office.tick()


def test_what_somebody_has_stopped_is_not_asked_for_again(instance: dg.DagsterInstance):
    """He knows that it is not done."""
    office = Office(instance)
    office.tick()
    office.published(DAYS[0])
    assert office.asked(dg.DagsterRunStatus.CANCELED) == [(DAYS[0], DAYS[0])]
    assert office.tick() == "Nothing is new."


def test_what_has_not_changed_is_not_followed(instance: dg.DagsterInstance):
    """A launch records partitions that it found in the table, and those that it left out, too."""
    office = Office(instance)
    office.tick()
    office.published(DAYS[0], metadata={"identical": "they are in the table"})
    office.published(DAYS[1], metadata={"left_out": "their receipt names the content"})
    assert office.tick() == "Nothing is new."


@pytest.mark.parametrize(
    ("offset", "asked"),
    [({}, []), ({"start_offset": -1}, ["2024-01-04"]), ({"end_offset": 1}, ["2024-01-01"])],
    ids=str,
)
def test_what_lies_beside_a_launch_of_both_is_followed(
    instance: dg.DagsterInstance, offset: dict[str, int], asked: list[str]
):
    """A run that has launched both has launched its own range; who looks back or ahead is made of more than that."""
    source = {"kind": "delta", "tables": [{"table": ORDERS, **offset}]}
    office = Office(instance, TableSpec.model_validate({**FOLLOWING.model_dump(exclude_unset=True), "source": source}))
    office.tick()
    office.published_with_this_table(DAYS[1], DAYS[2])
    assert office.tick() == "Nothing is new." if not asked else office.asked() == [(day, day) for day in asked]


def test_a_table_of_files_has_nothing_to_follow():
    """Said when the definitions load."""
    with pytest.raises(ValidationError, match="without other tables as its source"):
        orders_spec(follow=True)


@pytest.mark.prove
@pytest.mark.usefixtures("spark")
def test_a_month_is_launched_when_it_is_whole(tmp_path: Path):
    """Not before its last day is published; and again when one of its days is corrected."""
    lake, days = new_lake(tmp_path), [f"2024-01-{day:02d}" for day in range(1, 32)]
    office = Office(lake.instance, MONTHLY, root=str(tmp_path))
    office.tick()
    for day in days:
        lake.export(day, orders(day))
    for first, last, corrected, expected in (
        (days[0], days[29], None, {}),
        (days[30], days[30], None, dict.fromkeys(days, 3)),
        (days[4], days[4], days[4], dict.fromkeys(days, 3) | {days[4]: 5}),
    ):
        if corrected:
            lake.export(corrected, orders(corrected, 5))
        assert lake.launch(first, last).succeeded
        (request,) = office.tick()
        execute(office, lake, request)
        assert (totals(lake) if lake.path(TOTALS).exists() else {}) == expected
    assert office.tick() == "Nothing is new."


@pytest.mark.prove
@pytest.mark.usefixtures("spark")
def test_the_whole_chain_follows(tmp_path: Path):
    """After a launch its totals are launched; after another of the same nothing; of one corrected day, that day."""
    lake = new_lake(tmp_path)
    office = Office(lake.instance, root=str(tmp_path))
    office.tick()
    for day in DAYS:
        lake.export(day, orders(day))
    assert lake.launch(DAYS[0], DAYS[-1]).succeeded
    for request in office.tick():
        execute(office, lake, request)
    assert totals(lake) == dict.fromkeys(DAYS, 3)
    assert lake.launch(DAYS[0], DAYS[-1]).succeeded
    assert office.tick() == "Nothing is new."
    lake.export(DAYS[1], orders(DAYS[1], 4))
    assert lake.launch(DAYS[0], DAYS[-1]).succeeded
    (request,) = office.tick()
    assert request.tags["dagster/asset_partition_range_start"] == DAYS[1]
    execute(office, lake, request)
    assert totals(lake) == {DAYS[0]: 3, DAYS[1]: 4, DAYS[2]: 3}
    assert lake.launch(DAYS[0], tables=(ORDERS, TOTALS), rewrite_identical=True).succeeded
    assert office.tick() == "Nothing is new.", "the same run has launched both"


def execute(office: Office, lake: Lake, request: Any) -> None:
    job = office.definitions.resolve_job_def("launch_silver_daily_totals")
    run = lake.instance.create_run_for_job(
        job, run_config=request.run_config, tags=tags_of(request), asset_selection=job.asset_selection
    )
    assert lake.execute(job, run).succeeded


def totals(lake: Lake) -> dict[str, int]:
    return {str(day): count for day, count, _ in lake.content(TOTALS)}
