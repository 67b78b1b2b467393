"""What the schedule that catches up launches next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.calendar.partitions import runs_of
from backfill_assets.core.history.catch_up import AGAIN_AFTER, next_pieces
from backfill_assets.core.spec.table import CatchUp
from tests.support.shop import orders_spec

NOW = datetime(2024, 1, 11, 2, tzinfo=UTC)
LAST_NIGHT, THIS_NIGHT = NOW - timedelta(hours=21), NOW - timedelta(minutes=30)
SPEC = orders_spec()


def days(*numbers: int) -> set[str]:
    return {f"2024-01-{number:02d}" for number in numbers}


def pieces(
    present: set[str] = frozenset(),
    asked: dict[str, datetime] | None = None,
    until: datetime = NOW,
    now: datetime = NOW,
    **catch_up,
) -> list[list[int]]:
    """The days of January that are launched next, a list for each run."""
    found = next_pieces(
        SPEC,
        CatchUp(**{"cron": "0 2 * * *", **catch_up}),
        until_utc=until,
        present=present,
        asked_utc=asked or {},
        now_utc=now,
    )
    return [[int(partition.key[-2:]) for partition in run] for run in found]


@pytest.mark.parametrize(
    ("present", "asked", "settings", "expected"),
    [
        pytest.param((), {}, {}, [[*range(1, 11)]], id="everything, up to the last day that is over"),
        pytest.param((), {}, {"max_partitions": 3}, [[1, 2, 3]], id="the oldest"),
        pytest.param((), {}, {"max_partitions": 3, "newest_first": True}, [[8, 9, 10]], id="the newest"),
        pytest.param((3, 4), {}, {}, [[1, 2]], id="one consecutive piece"),
        pytest.param(range(1, 11), {}, {}, [], id="nothing is missing"),
        pytest.param(
            (), {1: THIS_NIGHT, 2: THIS_NIGHT}, {"max_partitions": 2}, [[3, 4]], id="asked for tonight: goes on"
        ),
        pytest.param((), dict.fromkeys(range(1, 11), THIS_NIGHT), {}, [], id="all asked for tonight"),
        pytest.param(
            (),
            dict.fromkeys(range(1, 6), LAST_NIGHT),
            {},
            [[6, 7, 8, 9, 10], [1, 2, 3, 4, 5]],
            id="never asked for comes first",
        ),
        pytest.param(
            (),
            dict.fromkeys(range(1, 11), LAST_NIGHT),
            {"max_partitions": 2, "newest_first": True},
            [[1, 2]],
            id="again: the oldest, always",
        ),
        pytest.param(
            (), {1: LAST_NIGHT} | dict.fromkeys(range(2, 11), THIS_NIGHT), {}, [[1]], id="a bad day: once a night"
        ),
    ],
)
def test_what_is_launched_next(present, asked, settings, expected):
    """One consecutive piece of what is missing; never asked for first, then what was asked for longer ago than a night."""
    assert pieces(days(*present), {key: at for n, at in asked.items() for key in days(n)}, **settings) == expected


def test_a_day_that_is_not_over_is_not_missing():
    """A partition that ends after the instant given, because it is not over or is live, is never launched."""
    assert pieces(until=datetime(2024, 1, 3, 23, 59, tzinfo=UTC)) == [[1, 2]]
    assert pieces(until=datetime(2024, 1, 1, tzinfo=UTC)) == []


@given(
    present=st.sets(st.integers(1, 10)),
    bad=st.sets(st.integers(1, 10)),
    limit=st.integers(1, 10),
    newest_first=st.booleans(),
)
def test_a_night_of_ticks_asks_for_each_missing_day_once(present, bad, limit, newest_first):
    """Whatever is missing or refused: ticks go on until each missing day was asked for once, in consecutive pieces, and then rest."""
    have, asked, seen = days(*present), {}, []
    for tick in range(20):
        now = NOW + timedelta(minutes=30 * tick)
        runs = next_pieces(
            SPEC, CatchUp(cron="* * * * *", max_partitions=limit, newest_first=newest_first),
            until_utc=NOW, present=have, asked_utc=asked, now_utc=now,
        )  # fmt: skip
        assert len(runs) <= 1
        found = [partition for run in runs for partition in run]
        assert len(list(runs_of(found))) <= 1
        assert len(found) <= limit
        seen += [partition.key for partition in found]
        asked |= {partition.key: now for partition in found}
        have |= {partition.key for partition in found} - days(*bad)
    assert sorted(seen) == sorted(days(*range(1, 11)) - days(*present))
    again = pieces(have, asked, now=NOW + timedelta(hours=10) + AGAIN_AFTER)
    assert bool(again) == bool(bad - present)


@pytest.mark.parametrize(("grain", "late"), [("daily", timedelta(hours=9)), ("hourly", timedelta(hours=2))])
def test_what_comes_late_is_asked_for_again_however_much_comes_anew(grain, late):
    """One tick for each new partition, whose export is late: each of them is there a day later, and is not forgotten for what is newer."""
    spec = orders_spec(grain=grain)
    step = timedelta(days=1) if grain == "daily" else timedelta(hours=1)
    have, asked = set[str](), dict[str, datetime]()
    for tick in range(1, 61):
        now = spec.grid.start_utc + step * tick
        runs = next_pieces(spec, CatchUp(cron="* * * * *"), until_utc=now, present=have, asked_utc=asked, now_utc=now)
        for partition in (partition for run in runs for partition in run):
            asked[partition.key] = now
            if partition.window.end_utc + late <= now:
                have.add(partition.key)
    due = {p.key for p in spec.grid.until(now) if p.window.end_utc + late + AGAIN_AFTER + step <= now}
    assert len(due) > 40
    assert due <= have
