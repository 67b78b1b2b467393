"""The sides of the comparison: a job written by hand, and launches of ours over the same files."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.explained import RangeLaunch, explained
from benchmarks.processes import REPOSITORY, Process, environment, launch_command

TABLE = "bronze/orders"
RECONCILE = "from backfill_assets.cli import main; main()"
SERVER_SECONDS = 120
SERVES = re.compile(r"^  export (\w+)=(.*)$", re.MULTILINE)
"""How a Connect server says with which settings it is reached."""


@dataclass(frozen=True)
class Bench:
    """Where everything lies while it is measured."""

    folder: Path
    first_day: date
    last_day: date

    @property
    def root(self) -> Path:
        return self.folder / "lakehouse"

    @property
    def landing(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def dagster_home(self) -> Path:
        return self.folder / "dagster_home"

    @property
    def hand_written_table(self) -> Path:
        return self.folder / "hand_written"

    @property
    def days(self) -> int:
        return (self.last_day - self.first_day).days + 1

    @property
    def range(self) -> str:
        return f"{self.first_day}...{self.last_day}"

    def clear(self) -> None:
        """Delete all that was written, but not the landing data, so that each run starts on an empty lakehouse."""
        for path in (*self.root.iterdir(), self.dagster_home, self.hand_written_table):
            if path.name != "landing":
                shutil.rmtree(path, ignore_errors=True)
        self.dagster_home.mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", self.dagster_home)
        os.sync()  # what one side left to be written to the disk is not paid by the next

    def process(self, *arguments: str, extra: Mapping[str, str] | None = None) -> Process:
        """Run Python with some arguments, in the bench's folder and with this repository's code."""
        return self.run([sys.executable, *arguments], extra)

    def run(self, command: list[str], extra: Mapping[str, str] | None = None) -> Process:
        started = time.time()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(self.root, self.dagster_home, **(extra or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Process(command, started, time.time() - started, done.returncode, done.stdout)

    # -- the sides -------------------------------------------------------------------------------------------------

    def hand_written(self, last_day: date | None = None) -> tuple[float, int]:
        """Return the seconds of the hand-written job, and the rows that it wrote."""
        script = str(Path(__file__).with_name("hand_written.py"))
        last = str(last_day or self.last_day)
        done = self.process(
            script, str(self.landing), str(self.hand_written_table), str(self.first_day), last
        ).must_succeed()
        return done.seconds, int(done.output.strip().rsplit("rows:", 1)[1])

    def launch(self, *partitions: str, extra: Mapping[str, str] | None = None) -> Process:
        """Launch partitions of the table, with the checks that Dagster runs along."""
        return self.run(launch_command("backfill_assets.definitions", TABLE, *partitions), extra).must_succeed()

    def launch_day(self, day: date, extra: Mapping[str, str] | None = None) -> RangeLaunch:
        return explained(self.launch("--partition", str(day), extra=extra), self.dagster_home)

    def launch_range(self, extra: Mapping[str, str] | None = None) -> RangeLaunch:
        return explained(self.launch("--partition-range", self.range, extra=extra), self.dagster_home)

    def commits(self) -> int:
        """Return how many commits the table has."""
        return len(list((self.root / "tables" / TABLE / "_delta_log").glob("*.json")))

    def reconcile(self) -> float:
        """Return the seconds of reconciling the range."""
        arguments = ("reconcile", TABLE, "--partition-range", self.range)
        return self.process("-c", RECONCILE, *arguments).must_succeed().seconds

    @contextmanager
    def warm_server(self) -> Iterator[dict[str, str]]:
        """Run a Connect server until the end of the block; return the settings with which launches use it."""
        command = [sys.executable, "-m", "backfill_assets.spark.connect_server", "--port", str(_free_port())]
        log = self.folder / "server.log"
        with log.open("w", encoding="utf-8") as said:
            settings = environment(self.root, self.dagster_home)
            server = subprocess.Popen(command, cwd=self.folder, env=settings, stderr=said)
        try:
            yield _reached(server, log)
        finally:
            server.terminate()
            server.wait(60)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _reached(server: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    """Wait until a server says how it is reached."""
    until = time.monotonic() + SERVER_SECONDS
    while server.poll() is None and time.monotonic() < until:
        settings = dict(SERVES.findall(log.read_text(encoding="utf-8")))
        if {"SPARK_REMOTE", "SPARK_MASTER"} <= settings.keys():
            return settings
        time.sleep(0.2)
    sys.exit(f"{log.read_text(encoding='utf-8')[-2000:]}\n\nThe Connect server did not start.")
