"""The past that a table reads by itself: which partitions lack, and when its database may be asked for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.spec.pace import LaunchPace, OffPeak
from backfill_assets.live.changes.history_pace import HistoryPace
from backfill_assets.live.changes.refresh import Refresh
from backfill_assets.live.changes.table import Reach
from backfill_assets.sources.database.connection import Database
from tests.live.changes.world import customers_spec
from tests.support import postgres

NOON = datetime(2024, 1, 8, 12, tzinfo=UTC)
EVENING = datetime(2024, 1, 8, 22, tzinfo=UTC)


@dataclass
class Scene:
    """A table of which nothing was launched, and a database that counts who asks it.

    Args:
        others: Whether another table is reading its past.
        until: Up to when the source is complete.
    """

    others: bool = False
    until: datetime | None = NOON
    now: datetime = NOON
    seconds: float = 100.0
    launched: list[int] = field(default_factory=list[int])
    log: list[str] = field(default_factory=list[str])
    rows: int = 0

    @contextmanager
    def turn(self) -> Iterator[bool]:
        yield not self.others

    def refresh(self, **pace: Any) -> Refresh:
        spec = customers_spec("SHOP", "shop", changes={"backfill": "automatic"})
        reach = Reach(0, 1, NOON)
        lake = SimpleNamespace(published=dict, version=int, history=SimpleNamespace(undone=set))
        source = SimpleNamespace(
            spec=spec, feed=spec.changes, settled={}, reader=SimpleNamespace(read=lambda: reach, changes=None),
            lake=lake, behind=lambda *_: [], positions=lambda *_: {},
            complete_until=lambda: self.until, database=SimpleNamespace(turn=self.turn), keys_behind=lambda *_: [],
            refreshed_from=lambda *_: {}, now=lambda: self.now,
        )  # fmt: skip
        paced = HistoryPace(LaunchPace(**pace), lambda now: max(now, EVENING), lambda: self.now, lambda: self.seconds)
        return Refresh(source, self.log.append, lambda: self.now, pace=paced)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()

    def overwritten(_: Refresh, partitions: list[Any], *, pinned: object) -> list[Any]:
        assert pinned is None
        made.launched.append(len(partitions))
        source = SimpleNamespace(source={"rows": made.rows})
        return [Published(1, 1, tuple(partitions), source, None, {})]

    monkeypatch.setattr(Refresh, "_overwritten", overwritten)
    return made


def test_the_past_waits_for_the_off_peak_hours(scene):
    """It is said once; the refresh goes on meanwhile, and what is missing is read when they begin."""
    refresh = scene.refresh(off_peak=OffPeak(cron="0 22 * * *", hours=8))
    assert [refresh.once().launched, refresh.once().launched] == [0, 0]
    assert scene.log == [
        "7 partitions are still to be read from the database; that waits for the off-peak hours, which begin at "
        "2024-01-08 22:00 UTC."
    ]
    scene.now = EVENING + timedelta(minutes=5)
    assert refresh.once().launched == 7
    assert scene.launched == [7]


def test_the_past_is_read_no_faster_than_the_spec_says(scene):
    """After a piece of 600 rows, ten a second, the next one waits for a minute from when that began."""
    scene.rows = 600
    refresh = scene.refresh(max_rows_per_second=10)
    assert refresh.once().launched == 7
    scene.seconds += 59
    assert refresh.once().launched == 0
    assert "`max_rows_per_second`, 1 s more" in scene.log[-1]
    scene.seconds += 2
    assert refresh.once().launched == 7
    assert scene.launched == [7, 7]


def test_one_session_of_a_database_has_the_turn(monkeypatch):
    """The others are told so at once, and whoever ends, however, lets go of it."""
    name, variable = postgres.new_database()
    monkeypatch.setenv(variable, postgres.shared_server().address(name))
    one, two = Database(variable, "a"), Database(variable, "b")
    with one.turn() as of_one, two.turn() as of_two:
        assert [of_one, of_two] == [True, False]
    with two.turn() as of_two:
        assert of_two
