"""An earlier version as a source: up to when it is complete. What its stream has not drained is left for later."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.state.fence import Fence
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.sources import version
from backfill_assets.sources.version import RetiredSource, VersionSource, build
from backfill_assets.spark.expressions import kept_columns
from tests.contracts.sources import built
from tests.contracts.tables import filled
from tests.live.test_version_of_a_stream import second_spec, two
from tests.support.live_shop import event, live_spec
from tests.support.shop import files_by_partition, orders_spec

T = datetime(2024, 2, 1, tzinfo=UTC)
"""The boundary of the new version; the stream of the one before began at its fence on the fourth of January."""


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2024-{text}").replace(tzinfo=UTC)


def source(monkeypatch: pytest.MonkeyPatch, *, now: datetime, landed: str | None, written: str | None) -> VersionSource:
    """The version before, of which some files landed, and its stream has written some."""
    before: Any = SimpleNamespace(
        spec=live_spec(),
        exists=lambda: True,
        refuse_other_facts=lambda: None,
        fence=lambda: Fence(at("01-04")),
        published=lambda: {"2024-01-02": None, "2024-01-03": None},
        landed_until=lambda: written and at(written),
    )
    monkeypatch.setattr(version, "newest_change", lambda *_: landed and at(landed))
    monkeypatch.setattr(VersionSource, "_has_lines_since", lambda *_: True)
    return VersionSource(SimpleNamespace(spec=second_spec(time_zone="UTC"), spark=None), before, "", now=lambda: now)


@pytest.mark.parametrize(
    ("now", "landed", "written", "until"),
    [
        ("02-03", "02-02T12:00", "02-02T12:00", "02-03"),  # all that landed is written
        ("02-03", "02-02T12:00", "02-02T13:00", "02-03"),
        ("02-03", None, None, "02-03"),  # nothing ever landed
        ("02-03", "02-02T12:00", "01-31T23:59", "01-31T23:59"),  # a file waits: up to the newest that is written
        ("01-20", "01-19T12:00", "01-19T12:00", "01-20"),  # before the boundary: up to now, and no further
        ("02-03", "01-20", None, "01-04"),  # the stream has written nothing: history alone
        ("02-03", "01-20", "01-03", "01-04"),
    ],
)
def test_a_version_is_complete_up_to_what_its_stream_has_drained(monkeypatch, now, landed, written, until):
    """The partition before the boundary is copied when nothing waits that may belong to it, and not before."""
    of_stream = source(monkeypatch, now=at(now), landed=landed, written=written)
    found = of_stream.complete_until()
    assert found == at(until)
    (january,) = of_stream.context.spec.grid.until(T)
    assert (found is not None and january.window.end_utc <= found) == (at(until) >= T)


@pytest.mark.prove
@pytest.mark.spark
def test_a_file_that_waits_is_seen_whatever_its_time(spark, tmp_path):
    """It landed after all that is written, and is older than that, or of another century: by its time nothing would wait."""
    first, later = two(spark, tmp_path)
    lakehouse = Lakehouse(root=str(tmp_path))
    of_first = {"checkpoint": lakehouse.checkpoint_path(first.spec.key)}

    def until(clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> datetime | None:
        source: Any = lakehouse.source(later.spec, {first.spec.key: first.spec}, None, print)
        source.now = clock
        return source.complete_until()

    def land(number: int, time: datetime) -> None:
        os.utime(first.land(event(number, "2024-01-05T10:00:00")), (time.timestamp(), time.timestamp()))

    def is_now(found: datetime | None) -> bool:
        return found is not None and abs(datetime.now(UTC) - found) < timedelta(minutes=1)

    land(1, at("02-02T10:00"))
    first.stream(**of_first)
    assert is_now(until())
    land(2, at("02-02T09:00"))
    assert until() == at("02-02T09:00")
    first.stream(**of_first)
    assert is_now(until())
    land(5, landed := datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1))
    times = iter([landed - timedelta(seconds=1)])
    assert until(lambda: next(times, datetime.now(UTC))) == landed, "it has landed since the look began"
    first.stream(**of_first)
    land(3, datetime(2200, 1, 1, tzinfo=UTC))
    assert until() is None, "since when it waits nobody knows, so that it is history alone, and there is none"
    first.stream(**of_first)
    assert is_now(until())
    land(4, at("02-02T09:00"))
    assert until() == at("02-02T09:00")
    first.landing.rename(tmp_path / "away")
    assert is_now(until()), "nothing is left to wait for"


def test_a_retired_version_has_nothing_more():
    """Nothing of it is complete, so nothing is missing, stale or launched; what was copied is as it was."""
    retired: Any = second_spec(version_of={"table": "bronze/orders", "renamed": {"total": "amount"}, "retired": True})
    found = build(retired.source, SimpleNamespace(spec=retired, inputs=()))
    assert isinstance(found, RetiredSource)
    assert found.complete_until() is None


@pytest.mark.prove
def test_a_survey_says_how_many_bytes_the_version_before_has(spark, tmp_path):
    """Of a day's file an hour has its share, so that what a chunk reads is the sum of its partitions."""
    below, _ = filled(spark, tmp_path)
    spec = orders_spec(
        key="bronze/orders__v2",
        grain="hourly",
        source={"kind": "version", "table": "bronze/orders"},
        version_of={"table": "bronze/orders"},
    )
    january = spec.grid.covering(Window(at("01-01"), at("02-01")))
    sizes = {key: found.size_bytes for key, found in built(spark, spec, tmp_path, below)().survey(january).items()}
    files = {
        day: sum(Path(below.path, name).stat().st_size for name in names)
        for day, names in files_by_partition(below.path).items()
    }
    assert len(sizes) == 31 * 24
    assert sum(sizes.values()) == pytest.approx(sum(files.values()), abs=len(sizes))
    day, size = next(iter(files.items()))
    assert sum(size for key, size in sizes.items() if key.startswith(day)) == pytest.approx(size, abs=24)


@pytest.mark.prove
@pytest.mark.parametrize("day", ["timestamp_seconds(253402300800)", "TIMESTAMP'0001-01-01'"])
def test_a_day_beyond_the_calendar_keeps_no_version_from_being_made(spark, tmp_path, day):
    """Somebody's row of a day that no partition has says nothing of how far the version before goes."""
    below, _ = filled(spark, tmp_path)
    spec = orders_spec(
        key="bronze/orders__v2",
        latest_wins_by=["amount"],
        source={"kind": "version", "table": "bronze/orders"},
        version_of={"table": "bronze/orders"},
    )
    made = built(spark, spec, tmp_path, below)
    before = made().complete_until()
    stray = spark.sql(f"SELECT 1L order_id, 'x' customer, CAST(1 AS DECIMAL(18,2)) amount, {day} ordered_at")
    stray.select(*kept_columns(below.spec)).write.format("delta").mode("append").save(below.path)
    assert made().complete_until() == before
    assert sum(below.rows_outside_grid().values()) == 1
