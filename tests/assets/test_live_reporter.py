"""When a running writer tells Dagster of its batches, whatever the database and the clock do."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace

import dagster as dg
import pytest

from backfill_assets.assets import live
from backfill_assets.assets.live import LiveReporter
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.live.writer import BatchReport

ORDERS, LIVE = "bronze/orders", dg.AssetKey(["bronze", "orders_live"])


def batch(number: int) -> BatchReport:
    receipt = LiveReceipt(f"r{number}", ORDERS, "a1", 1, number, "2024-01-03T00:00:00+00:00", rows=10)
    return BatchReport(receipt, 1.5, 0.5, committed_at=datetime.now(UTC))


class Unreachable:
    """A history whose database is away; it counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def report_runless_asset_event(self, _: object) -> None:
        self.asked += 1
        raise ConnectionError


def test_batches_do_not_wait_for_a_database_that_is_away():
    """A writer that cannot tell Dagster tries again when it is time, not with every batch, and then tells of them all."""
    history = Unreachable()
    reporter = LiveReporter(lambda: history, LIVE, every_seconds=3600)
    for number in range(3):
        with suppress(ConnectionError):
            reporter.saw(batch(number))
    assert history.asked == 1
    told: list[dg.AssetMaterialization] = []
    history.report_runless_asset_event = told.append
    reporter.record()
    assert [event.metadata["batches"].value for event in told] == [3]


def test_a_slow_failure_is_tried_later():
    """A locked database costs a writer a tenth of its time, however often batches come."""
    asked: list[float] = []

    def locked() -> dg.DagsterInstance:
        asked.append(time.monotonic())
        time.sleep(0.05)
        raise ConnectionError

    reporter = LiveReporter(locked, LIVE, every_seconds=0)
    until = time.monotonic() + 2
    while len(asked) < 2 and time.monotonic() < until:
        with suppress(ConnectionError):
            reporter.saw(batch(0))
    first, second = asked
    assert second - first > 0.5


def test_a_clock_that_is_set_back_does_not_silence_a_writer(monkeypatch: pytest.MonkeyPatch):
    """How long ago Dagster was told does not depend on the time of day."""
    told: list[dg.AssetMaterialization] = []
    reporter = LiveReporter(lambda: SimpleNamespace(report_runless_asset_event=told.append), LIVE, every_seconds=0)
    for number, hour in enumerate((12, 11)):
        today = SimpleNamespace(now=lambda zone, hour=hour: datetime(2024, 1, 3, hour, tzinfo=zone))
        monkeypatch.setattr(live, "datetime", today)
        reporter.saw(batch(number))
    assert len(told) == 2
