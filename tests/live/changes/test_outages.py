"""A capture whose database does not answer any more: when it is asked again, and when somebody is told."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.errors import NOTHING_WRITTEN, ChangeFeedError, SourceUnavailableError
from backfill_assets.live.changes import outages
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import feed_state
from backfill_assets.live.changes.outages import LOCK_WAIT_SECONDS, capture_until_stopped
from backfill_assets.sources.database.connection import Database
from tests.live.changes.capturing import Shop

AWAY = SourceUnavailableError("The database is away.", state="All is there.", remedy="Wait.")
GONE = ChangeFeedError("There is no such slot.", state=NOTHING_WRITTEN, remedy="Look.")


@dataclass
class Clock:
    """Seconds of a test; waiting passes them, and is written down."""

    now: float = 1_000.0
    waits: list[float] = field(default_factory=list)
    ends_after: int = 99

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return len(self.waits) >= self.ends_after


@dataclass(slots=True)
class Played(Capture):
    """A capture of which it is said beforehand how long each run captures, and how it ends."""

    runs: Any = ()
    clock: Any = None

    def run(self, **_: Any) -> None:
        captures_for, ends = self.runs.pop(0)
        self.begun_at = None
        if captures_for is not None:
            self.begun_at = self.clock.now
            self.clock.now += captures_for
        if ends:
            raise ends


def played(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, *runs: Any, fails: Any = None) -> list[str]:
    """Capture as it is said; return what was logged."""
    monkeypatch.setattr(outages, "time", clock)
    said: list[str] = []
    capture = Played(
        "shop", Database.of_a_capture("NOWHERE", "shop"), [], folder, said.append, runs=list(runs), clock=clock
    )
    if fails:
        with pytest.raises(type(fails)):
            capture_until_stopped(capture, pause_seconds=1, stop=clock)
    else:
        capture_until_stopped(capture, pause_seconds=1, stop=clock)
    assert capture.lock_wait_seconds == (LOCK_WAIT_SECONDS if clock.waits else 10)
    return said


def test_it_is_asked_again_ever_more_rarely(tmp_path, monkeypatch):
    """After 1, 2, 4 seconds and so on, at most 30; one that has captured for long begins with a second again."""
    clock = Clock()
    away = [(None, AWAY)] * 6
    said = played(tmp_path, clock, monkeypatch, (5, AWAY), *away, (31, AWAY), (None, AWAY), (5, AWAY), (0, None))
    assert clock.waits == [1, 2, 4, 8, 16, 30, 30, 1, 2, 4]
    assert said[0] == "The database is away. All is there. It is asked again in 1 s."
    assert len(said) == len(clock.waits)


def test_of_a_long_outage_somebody_is_told(tmp_path, monkeypatch):
    """After five minutes, and of one that lets itself be asked and fails each time too; not before, and not of two short ones."""
    for runs, waits, told in (
        ([(5, AWAY), *[(None, AWAY)] * 13], 14, False),
        ([(5, AWAY), *[(None, AWAY)] * 14], 15, True),
        ([(5, AWAY), *[(1, AWAY)] * 14], 15, True),
        ([(5, AWAY), *[(None, AWAY)] * 10, (31, AWAY), *[(None, AWAY)] * 10], 22, False),
    ):
        (tmp_path / str(waits)).mkdir(exist_ok=True)
        played(tmp_path / str(waits), clock := Clock(ends_after=waits), monkeypatch, *runs)
        assert len(clock.waits) == waits
        why = feed_state(tmp_path / str(waits)).stopped
        assert why == ("The database is away. It goes on by itself when the database answers." if told else ""), runs


def test_what_does_not_pass_by_itself_ends_it(tmp_path, monkeypatch):
    """A database that did not answer at the start, and whatever needs a person; also after an outage."""
    assert played(tmp_path, Clock(), monkeypatch, (None, AWAY), fails=AWAY) == []
    assert played(tmp_path, Clock(), monkeypatch, (5, GONE), fails=GONE) == []
    assert len(played(tmp_path, Clock(), monkeypatch, (5, AWAY), (None, GONE), fails=GONE)) == 1


def test_whoever_stops_it_need_not_wait(tmp_path, monkeypatch):
    """It ends in the midst of a wait."""
    assert len(played(tmp_path, Clock(ends_after=2), monkeypatch, (5, AWAY), (None, AWAY), (0, None))) == 2


def lost(shop: Shop, *, once: bool) -> str:
    """Capture until somebody ends the session; return why it ended, as its folder has it."""
    ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{shop.name}' AND pid <> pg_backend_pid()"
    capture = shop.new_capture()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Capture, "_prepare", lambda *_: shop.execute(ended))
        with pytest.raises(SourceUnavailableError, match="nothing is lost. See that the server runs"):
            capture.run(once=once, pause_seconds=0.01, stop=threading.Event())
    return feed_state(shop.folder).stopped


def test_an_outage_is_no_end_yet(tmp_path):
    """Why a capture ended is kept beside its files, but not of a database that is asked again; `--once` does not ask again."""
    shop = Shop(tmp_path)
    shop.land()
    assert lost(shop, once=False) == ""
    assert lost(shop, once=True).startswith(f"`capture {shop.name}`: the database of ")


def test_both_sides_notice_a_connection_that_broke(tmp_path):
    """Within a minute; what the address says counts for this side."""
    shop = Shop(tmp_path)
    with shop.new_capture().database.connected() as connection:
        (found,) = connection.execute(
            "SELECT current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'), "
            "current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout')"
        ).fetchall()
        given = connection.info.get_parameters()
    assert found == ("30", "10", "3", "60000")
    assert [given[name] for name in ("keepalives_idle", "tcp_user_timeout")] == ["30", "60000"]
