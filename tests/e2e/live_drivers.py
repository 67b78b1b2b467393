"""Whoever gives the orders to the processes of `live_world.py`, and kills them at a point."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.live_world import MARK, ROOT
from tests.support.killing import kill_group

PROCESS = Path(__file__).with_name("live_world.py")
ANSWER_SECONDS = 180.0


class WasKilled(Exception):  # noqa: N818 (what happened, not what went wrong)
    """The process was killed, as it was meant to be."""


@dataclass
class Driver:
    """One such process."""

    process: subprocess.Popen[str]
    errors: Path
    is_warm: bool = False
    lines: queue.Queue[str | None] = field(default_factory=queue.Queue)

    @classmethod
    def start(cls, folder: Path) -> Driver:
        handle, errors = tempfile.mkstemp(dir=folder, prefix="driver-", suffix=".log")
        process = subprocess.Popen(
            [sys.executable, str(PROCESS)], cwd=folder, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=handle,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LAKEHOUSE_ROOT": str(folder), "DAGSTER_HOME": ""},
        )  # fmt: skip
        os.close(handle)
        driver = cls(process, Path(errors))
        threading.Thread(target=driver._read, daemon=True).start()
        return driver

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                self.lines.put(line.removeprefix(MARK))
        self.lines.put(None)

    def hear(self) -> dict[str, Any]:
        """Return what it tells next."""
        line = self.lines.get(timeout=ANSWER_SECONDS)
        if line is None:
            self.process.wait()
            raise AssertionError(f"the driver ended: {self.errors.read_text(encoding='utf-8')[-4000:]}")
        return json.loads(line)

    def order(self, order: Mapping[str, Any], at: Callable[[Driver, str], None]) -> dict[str, Any]:
        """Let it do something; return its answer.

        Args:
            at: Called at each point; it may kill.

        Raises:
            WasKilled: It was killed before it had an answer.
        """
        self._send(json.dumps(dict(order)))
        while True:
            try:
                told = self.hear()
            except AssertionError:
                if self.process.returncode == -signal.SIGKILL:
                    raise WasKilled from None
                raise
            if "done" in told:
                return told
            at(self, told["at"])
            self._send("")

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it was killed; `hear` finds out

    def kill(self) -> None:
        """Kill it and its JVM, as when the machine goes down."""
        kill_group(self.process)


@dataclass
class Drivers:
    """Drivers that are started when they are needed.

    Args:
        ahead: How many are started before, so that a long series of schedules does not wait for JVMs.
    """

    folder: Path
    ahead: int = 0
    started: list[Driver] = field(default_factory=list)
    ready: list[Driver] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, count: int) -> None:
        for _ in range(count):
            driver = Driver.start(self.folder)
            self.started.append(driver)
            self.ready.append(driver)

    def take(self) -> Driver:
        with self.lock:
            if not self.ready:
                self.start(1)
            driver = self.ready.pop(0)
        if not driver.is_warm:
            assert driver.hear() == {"done": "start"}
            driver.is_warm = True
        return driver

    def replace(self) -> Driver:
        """Take another one in the place of one that was killed."""
        with self.lock:
            self.start(self.ahead)
        return self.take()

    def give_back(self, driver: Driver) -> None:
        with self.lock:
            self.ready.insert(0, driver)

    def stop(self) -> None:
        for driver in self.started:
            driver.kill()


@dataclass
class Fate:
    """Kills the driver of a role at the so manieth point that it reaches, or a moment later.

    Args:
        kills: Number of the point, counted over all of the role's drivers, and seconds to wait.
    """

    kills: dict[int, float]
    reached: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)

    def __call__(self, driver: Driver, point: str) -> None:
        self.reached.append(point)
        after = self.kills.pop(len(self.reached), None)
        if after is None:
            return
        self.killed.append(point if after == 0 else f"{after:.2f} s after: {point}")
        if after == 0:
            driver.kill()
        else:
            self.timers.append(threading.Timer(after, driver.kill))
            self.timers[-1].start()

    def settle(self) -> None:
        """Wait until whoever is to be killed has been."""
        for timer in self.timers:
            timer.join()
