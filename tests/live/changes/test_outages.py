"""A capture whose database does not answer any more: when it is asked again, and when somebody is told."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.errors import (
    NOTHING_WRITTEN,
    CaptureRunningError,
    ChangeFeedError,
    SourceUnavailableError,
)
from backfill_assets.live.changes import outages
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import STOPPED, Landed, feed_state, note_caught_up
from backfill_assets.live.changes.outages import NOTED_AFTER, capture_until_stopped
from backfill_assets.sources.database.connection import Database
from tests.live.changes.capturing import Shop

AWAY = SourceUnavailableError("The database is away.", state="All is there.", remedy="Wait.")
HELD = CaptureRunningError("Another one is running.", state="All is there.", remedy="Wait.")
ASKS_AGAIN = "It asks again every half minute."
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


@dataclass(frozen=True)
class Run:
    """How one run of a capture goes.

    Args:
        seconds: How long it takes.
        lands: Whether the server gives what it has.
    """

    ends: BaseException | None = AWAY
    seconds: float = 0.0
    lands: bool = False


@dataclass(slots=True)
class Played(Capture):
    """A capture of which it is said beforehand how its runs go."""

    runs: Any = ()
    clock: Any = None

    def run(self, **_: Any) -> None:
        one = self.runs.pop(0)
        self.has_landed, self.clock.now = one.lands, self.clock.now + one.seconds
        if one.lands:
            (self.folder / STOPPED).unlink(missing_ok=True)
        if one.ends:
            raise one.ends


LANDS, FAILS = Run(lands=True, seconds=5), Run()
"""It captures for a while until the server is lost; it is not there."""


def played(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, *runs: Run, fails: Any = None) -> list[str]:
    """Capture as it is said; return what was logged."""
    monkeypatch.setattr(outages, "time", clock)
    said: list[str] = []
    database = Database.of_a_capture("NOWHERE", "shop")
    capture = Played("shop", database, [], folder, said.append, runs=list(runs), clock=clock)
    if fails:
        with pytest.raises(type(fails)):
            capture_until_stopped(capture, pause_seconds=1, stop=clock)
    else:
        capture_until_stopped(capture, pause_seconds=1, stop=clock)
    return said


def test_it_is_asked_again_ever_more_rarely(tmp_path, monkeypatch):
    """After 1, 2, 4 seconds and so on, at most 30; one that has captured for long begins with a second again."""
    clock = Clock()
    runs = [LANDS, *[FAILS] * 6, Run(lands=True, seconds=31), FAILS, LANDS, Run(None)]
    said = played(tmp_path, clock, monkeypatch, *runs)
    assert clock.waits == [1, 2, 4, 8, 16, 30, 30, 1, 2, 4]
    assert said[0] == "The database is away. All is there. It is asked again in 1 s."
    assert len(said) == len(clock.waits)


SLOW = Run(seconds=40)
"""It can be prepared, and fails when it is asked what it has."""


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        pytest.param([LANDS, *[FAILS] * 13], "", id="not yet five minutes"),
        pytest.param([LANDS, *[FAILS] * 14], ASKS_AGAIN, id="five minutes"),
        pytest.param([LANDS, *[SLOW] * 7], ASKS_AGAIN, id="it answers, and gives nothing"),
        pytest.param([LANDS, *[FAILS] * 14, LANDS, FAILS], "", id="one that is over"),
    ],
)
def test_of_a_long_outage_somebody_is_told(tmp_path, monkeypatch, runs, told):
    """After five minutes without anything, however it fails; not before, and not any more when it is over."""
    seen: list[str] = []

    class Looking(Clock):
        def wait(self, seconds: float) -> bool:
            seen.append(feed_state(tmp_path).stopped)
            return super().wait(seconds)

    (tmp_path / f"{0:016X}-{16:016X}.idle").touch()
    note_caught_up(tmp_path, time.time() - NOTED_AFTER.total_seconds())
    played(tmp_path, Looking(ends_after=len(runs)), monkeypatch, *runs)
    assert seen[-1] == (f"The database is away. {told}" if told else "")
    assert feed_state(tmp_path).stopped == "", "whoever has stopped it knows"


def test_what_does_not_pass_by_itself_ends_it(tmp_path, monkeypatch):
    """A database that does not answer at the start, or whose changes another one takes, and whatever needs a person."""
    assert played(tmp_path, Clock(), monkeypatch, FAILS, fails=AWAY) == []
    assert feed_state(tmp_path).stopped == "The database is away."
    (tmp_path / STOPPED).unlink()
    assert played(tmp_path, Clock(), monkeypatch, Run(HELD), fails=HELD) == []
    assert feed_state(tmp_path).stopped == "", "that one is well"
    assert played(tmp_path, Clock(), monkeypatch, Run(GONE, lands=True), fails=GONE) == []
    assert len(played(tmp_path, Clock(), monkeypatch, LANDS, Run(GONE), fails=GONE)) == 1


def test_whoever_stops_it_need_not_wait(tmp_path, monkeypatch):
    """It ends in the midst of a wait for the server."""
    assert len(played(tmp_path, Clock(ends_after=2), monkeypatch, LANDS, FAILS, Run(None))) == 2
    assert len(played(tmp_path, Clock(), monkeypatch, LANDS, *[FAILS] * 14, Run(None))) == 15
    assert feed_state(tmp_path).stopped == ""


def test_connections_that_break_lose_and_double_nothing(tmp_path, monkeypatch):
    """One process, whose session is ended at any time: each change lands once, in order."""
    monkeypatch.setattr(outages, "FIRST_WAIT_SECONDS", 0.01)
    shop = Shop(tmp_path)
    shop.land()
    others = f"WHERE datname = '{shop.name}' AND application_name = 'backfill_assets'"
    capture, stop, reported = shop.new_capture(), threading.Event(), list[Landed]()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(capture_until_stopped, capture, pause_seconds=0.01, stop=stop, report=reported.append)
        for number in range(60):
            shop.execute(f"INSERT INTO customers VALUES ({number}, 'n{number}', 1, NULL, true, '2024-01-01Z')")
            while number == 0 and not running.done() and not shop.said():
                time.sleep(0.05)
            if number % 7 == 6:
                shop.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity {others}")
            time.sleep(0.02)
        until = time.monotonic() + 60
        while len(shop.said()) < 60 and not running.done() and time.monotonic() < until:
            time.sleep(0.05)
        stop.set()
        assert running.result(timeout=30) is None
    assert [after for _, _, after in shop.said()] == [f"n{number}" for number in range(60)]
    assert any(one.changes for one in reported)
    assert not list(shop.folder.glob("*.tmp"))


def test_both_sides_notice_a_connection_that_broke(tmp_path, monkeypatch):
    """Within a minute; what the address says counts for this side."""
    shop = Shop(tmp_path)
    monkeypatch.setenv(shop.variable, f"{os.environ[shop.variable]}?keepalives_idle=7")
    with shop.new_capture().database.connected() as connection:
        (found,) = connection.execute(
            "SELECT current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'), "
            "current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout'), "
            "current_setting('client_connection_check_interval')"
        ).fetchall()
        given = connection.info.get_parameters()
    assert found == ("30", "10", "3", "60000", "10s")
    assert [given[name] for name in ("keepalives_idle", "tcp_user_timeout")] == ["7", "60000"]
