"""Launches that wait between chunks: for off-peak hours, and so that the source is spared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from backfill_assets.core.history.outcomes import NextChunk
from backfill_assets.core.spec.pace import LaunchPace, OffPeak
from backfill_assets.runs import pacing
from backfill_assets.runs.pacing import OFF_PEAK, Pacing, opens_at, wait_in_words
from tests.runs.scenes import DAY_1, DAY_2, DAY_3
from tests.support.launching import ORDERS, Lake
from tests.support.shop import orders, orders_spec

NIGHTS = OffPeak(cron="0 22 * * *", hours=8)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2025-01-15 12:00", "2025-01-15 21:00"),
        ("2025-01-15 21:00", "2025-01-15 21:00"),
        ("2025-01-16 04:59", "2025-01-16 04:59"),
        ("2025-01-16 05:00", "2025-01-16 21:00"),
        ("2025-07-15 12:00", "2025-07-15 20:00"),
        ("2025-03-30 04:30", "2025-03-30 04:30"),
        ("2025-03-30 05:00", "2025-03-30 20:00"),
    ],
)
def test_hours_are_those_of_the_tables_zone(now: str, opens: str):
    """From ten in the evening in Berlin for eight hours, whatever the clocks do that night; the end is not in it."""
    assert opens_at(NIGHTS, "Europe/Berlin", at(now)) == at(opens)


def test_whoever_waits_is_told_until_when():
    """A command that would wait for hours says so first; within the hours, and without any, it says nothing."""
    spec = orders_spec(pace={"off_peak": NIGHTS.model_dump()})
    assert "which begin at 2025-01-15 22:00 UTC" in wait_in_words(spec, at("2025-01-15 12:00"))
    assert wait_in_words(spec, at("2025-01-15 23:00")) == wait_in_words(orders_spec(), at("2025-01-15 12:00")) == ""


class Clock:
    """A clock that goes on only when somebody sleeps."""

    def __init__(self, now: str):
        self.start, self.seconds = at(now), 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)


def paced(clock: Clock, **pace: object) -> tuple[Pacing, list[str]]:
    said: list[str] = []
    made = Pacing(
        LaunchPace.model_validate(pace),
        "UTC",
        lambda sentence, waiting: said.append(f"{sentence} [{waiting}]"),
        sleep=clock.sleep,
        clock=lambda: clock.seconds,
        now=clock.now,
    )
    return made, said


def test_a_chunk_waits_for_the_off_peak_hours():
    """A launch that begins before them, and one that is under way when they end; said once each."""
    clock = Clock("2025-01-15 21:59")
    made, said = paced(clock, off_peak=NIGHTS.model_dump())
    made.wait(NextChunk(1, 0, 0))
    assert clock.now() == at("2025-01-15 22:00")
    clock.sleep(7.9 * 3600)
    made.wait(NextChunk(2, 0, 0))
    assert clock.now() == at("2025-01-16 05:54")
    clock.sleep(600)
    made.wait(NextChunk(3, 0, 0))
    assert clock.now() == at("2025-01-16 22:00")
    assert [text[:8] for text in said] == ["Chunk 1 ", "Chunk 3 "]
    assert said[1].endswith("[waiting until 2025-01-16 22:00 UTC]")
    assert made.waited_seconds == {OFF_PEAK: 60.0 + 22 * 3600 - 6 * 3600 - 240.0}


def test_a_source_is_read_no_faster_than_it_may():
    """On average over the chunks; what was slow anyway waits no longer, and off-peak waits are no reading."""
    clock = Clock("2025-01-15 12:00")
    made, _ = paced(clock, max_rows_per_second=100, max_files_per_second=2)
    made.wait(NextChunk(1, 0, 0))
    clock.sleep(3)
    made.wait(NextChunk(2, 1_000, 4))
    assert clock.seconds == 10.0
    made.wait(NextChunk(3, 1_000, 30))
    assert clock.seconds == 15.0
    clock.sleep(100)
    made.wait(NextChunk(4, 2_000, 40))
    assert clock.seconds == 115.0
    assert made.waited_seconds == {"`max_rows_per_second`": 7.0, "`max_files_per_second`": 5.0}


def test_waits_for_hours_are_no_reading():
    """A night that was waited for does not let the next chunks read faster."""
    clock = Clock("2025-01-15 12:00")
    made, _ = paced(clock, off_peak=NIGHTS.model_dump(), max_rows_per_second=100)
    made.wait(NextChunk(1, 0, 0))
    made.wait(NextChunk(2, 1_000, 4))
    assert clock.now() == at("2025-01-15 22:00:10")


def test_without_a_pace_nothing_is_announced():
    """No launch pays for what its table does not ask for."""
    made, _ = paced(Clock("2025-01-15 12:00"))
    assert not made.is_needed


# -- in real launches --------------------------------------------------------------------------------------------------

DAYS = [DAY_1, DAY_2, DAY_3]
ONE = {"max_partitions_per_chunk": 1}


def shop(made: Callable[..., Lake], name: str, **changes: object) -> Lake:
    lake = made(name, **changes)
    for day in DAYS:
        lake.export(day, orders(day))
    return lake


@pytest.mark.prove
@pytest.mark.spark
def test_a_launch_spares_its_source_and_says_so(made: Callable[..., Lake]):
    """Three chunks of three rows at one a second: the last begins after six; and the launch says how long it waited."""
    lake = shop(made, "slow", pace={"max_rows_per_second": 1})
    ran = lake.launch(DAY_1, DAY_3, **ONE)
    assert ran.succeeded
    last = next(entry.timestamp for entry in ran.entries if "Chunk 3 of 3 is version" in entry.user_message)
    began = next(
        e.timestamp for e in ran.entries if e.dagster_event and e.dagster_event.event_type_value == "STEP_START"
    )
    assert last - began > 6.0
    assert "**Waited:**" in ran.launch
    assert "for `max_rows_per_second`" in ran.launch


@pytest.mark.spark
def test_a_launch_waits_for_its_hours_visibly_and_can_be_stopped(
    made: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
):
    """While it waits the list of runs says until when; a stop ends it at once, and nothing was written."""
    lake = shop(made, "nights", pace={"off_peak": NIGHTS.model_dump()})
    tags: list[str] = []

    def stopped(_: float) -> None:
        (record,) = lake.instance.get_run_records(limit=1)
        tags.append(record.dagster_run.tags[ORDERS])
        lake.instance.report_run_canceling(record.dagster_run)
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(pacing, "opens_at", lambda *_: at("2999-01-01 22:00"))
    monkeypatch.setattr(Pacing, "_until", lambda *_: stopped(0))
    ran = lake.launch(DAY_1, DAY_3, **ONE)
    monkeypatch.undo()
    assert ran.run.status == dg.DagsterRunStatus.CANCELED
    assert tags == ["0 of 3 published; waiting until 2999-01-01 22:00 UTC"]
    assert lake.instance.get_run_records(limit=1)[0].dagster_run.tags[ORDERS] == "0 of 3 published", "it waits no more"
    assert "Stopped. " in ran.log
    assert not lake.path().exists() or lake.content() == {}
    monkeypatch.setattr(pacing, "opens_at", lambda *_: at("2999-01-01 22:00"))
    assert lake.launch(DAY_1, DAY_3, ignore_off_peak=True).succeeded


@pytest.mark.prove
@pytest.mark.spark
def test_a_launch_ends_when_too_much_is_refused(made: Callable[..., Lake]):
    """What was published stays, what was not begun is left out and named, and the run has failed."""
    lake = shop(made, "budget")
    lake.export(DAY_1, orders(DAY_1) * 2)  # every key twice
    ran = lake.launch(DAY_1, DAY_3, max_refused=1, **ONE)
    assert not ran.succeeded
    assert "1 partitions were refused before them (`max_refused`: 1)" in ran.launch
    assert lake.shown(*DAYS) == dict.fromkeys(DAYS, "failed")
    assert not lake.content()
    assert not lake.launch(DAY_1, DAY_3, max_refused=2, **ONE).succeeded
    assert lake.shown(*DAYS)[DAY_3] == "materialized"
