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
    StorageError,
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
        pytest.param([LANDS, *[FAILS] * 10, LANDS, *[FAILS] * 6], "", id="two short ones"),
        pytest.param([LANDS, *[FAILS] * 14, LANDS, FAILS], "", id="one that is over"),
        pytest.param([LANDS, *[FAILS] * 14, Run(HELD)], ASKS_AGAIN, id="its lock is held"),
        pytest.param([*[LANDS, *[FAILS] * 14] * 2], ASKS_AGAIN, id="two long ones"),
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


def test_what_somebody_else_lands_is_no_outage(tmp_path, monkeypatch):
    """Another capture of the same name has the lock, and lands: nobody is told."""
    (tmp_path / f"{0:016X}-{16:016X}.idle").touch()
    note_caught_up(tmp_path, time.time())
    runs = [LANDS, *[Run(HELD)] * 20]
    played(tmp_path, clock := Clock(ends_after=len(runs)), monkeypatch, *runs)
    assert clock.now > 1_300
    assert feed_state(tmp_path).stopped == ""


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
    """It ends in the midst of a wait for the server, and of one for the lock."""
    assert len(played(tmp_path, Clock(ends_after=2), monkeypatch, LANDS, FAILS, Run(None))) == 2
    assert len(played(tmp_path, Clock(), monkeypatch, LANDS, *[FAILS] * 14, Run(None))) == 15
    assert feed_state(tmp_path).stopped == "", "it was stopped while it waited for its lock"
    shop, stop = Shop(tmp_path), threading.Event()
    shop.land()
    one, other = shop.new_capture(), shop.new_capture(lock_wait_seconds=300)
    with one.database.connected() as connection, one._alone(connection, stop), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.run, once=False, pause_seconds=0.02, stop=stop)
        time.sleep(0.3)
        stop.set()
        assert waiting.result(timeout=5) is None


def lost(shop: Shop, *, once: bool) -> str:
    """Capture until somebody ends the session; return why it ended, as its folder has it."""
    ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{shop.name}' AND pid <> pg_backend_pid()"
    capture = shop.new_capture()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Capture, "_prepare", lambda *_: shop.execute(ended))
        with pytest.raises(SourceUnavailableError, match="nothing is lost. See that the server runs"):
            capture.run(once=once, pause_seconds=0.01, stop=threading.Event())
    return feed_state(shop.folder).stopped


def test_an_outage_is_no_end_yet(tmp_path, monkeypatch):
    """Why a capture ended is kept, but not of a database that is asked again; `--once` and a first start do not ask again."""
    shop = Shop(tmp_path)
    shop.land()
    assert lost(shop, once=False) == ""
    assert lost(shop, once=True).startswith(f"`capture {shop.name}`: the database of ")
    monkeypatch.setenv(shop.variable, "postgresql://nobody@127.0.0.1:1/shop")
    first = shop.new_capture()
    first.folder = tmp_path / "not yet there"
    with pytest.raises(SourceUnavailableError):
        capture_until_stopped(first, pause_seconds=0.01, stop=threading.Event())
    assert "did not answer" in feed_state(first.folder).stopped


def test_a_disk_that_is_full_is_an_end_that_is_noted(tmp_path, monkeypatch):
    """Whatever ends a capture, `status` says it."""
    shop = Shop(tmp_path)
    monkeypatch.setattr(Capture, "land", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError) as error:
        capture_until_stopped(shop.new_capture(), pause_seconds=0.01, stop=threading.Event())
    assert str(error.value) == (
        f"The changes cannot land in `{shop.folder}`: No space left on device. What has landed stays, and the server "
        "keeps what has not: nothing is lost. Make room there, or give this user the right to write, and start the "
        "capture again."
    )
    assert feed_state(shop.folder).stopped == error.value.what


def test_connections_that_break_lose_and_double_nothing(tmp_path, monkeypatch):
    """One process, whose session is ended between any two steps and at any time: each change lands once, in order."""
    monkeypatch.setattr(outages, "FIRST_WAIT_SECONDS", 0.01)
    shop = Shop(tmp_path)
    shop.land()
    others = f"WHERE datname = '{shop.name}' AND application_name = 'backfill_assets'"
    broken, begun = set[str](), threading.Event()

    def breaks(step: str) -> None:
        if begun.is_set() and step not in broken:
            broken.add(step)
            shop.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity {others}")

    def breaks_around(name: str) -> None:
        real = getattr(Capture, name)

        def broken_once(*args: Any) -> Any:
            breaks(f"before {name}")
            found = real(*args)
            breaks(f"after {name}")
            return found

        monkeypatch.setattr(Capture, name, broken_once)

    for name in ("_prepare", "_start", "_flushed", "_write", "_heartbeat", "_advance"):
        breaks_around(name)
    capture, stop, reported = shop.new_capture(), threading.Event(), list[Landed]()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(capture_until_stopped, capture, pause_seconds=0.01, stop=stop, report=reported.append)
        for number in range(60):
            shop.execute(f"INSERT INTO customers VALUES ({number}, 'n{number}', 1, NULL, true, '2024-01-01Z')")
            while number == 0 and not running.done() and not shop.said():
                time.sleep(0.05)
            begun.set()
            if number % 7 == 6:
                shop.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity {others}")
            time.sleep(0.02)
        until = time.monotonic() + 60
        while (len(shop.said()) < 60 or len(broken) < 12) and not running.done() and time.monotonic() < until:
            time.sleep(0.05)
        stop.set()
        assert running.result(timeout=30) is None
    assert [after for _, _, after in shop.said()] == [f"n{number}" for number in range(60)]
    assert len(broken) == 12
    assert any(one.changes for one in reported)
    assert not list(shop.folder.glob("*.tmp"))


def test_a_connection_may_break_before_the_first_file_is_confirmed(tmp_path, monkeypatch):
    """The server has given what it had: that is no database that did not answer at the start."""
    monkeypatch.setattr(outages, "FIRST_WAIT_SECONDS", 0.01)
    shop, stop, real, broken = Shop(tmp_path), threading.Event(), Capture._advance, list[int]()
    shop.land()
    shop.execute("INSERT INTO customers VALUES (1, 'a', 1, NULL, true, '2024-01-01Z')")

    def advance(capture: Capture, connection: Any, position: int) -> None:
        if broken:
            stop.set()
        else:
            connection.close()
        broken.append(position)
        real(capture, connection, position)

    monkeypatch.setattr(Capture, "_advance", advance)
    capture_until_stopped(shop.new_capture(), pause_seconds=0.01, stop=stop)
    assert len(broken) == 2
    assert [after for _, _, after in shop.said()] == ["a"]


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
