"""The processes of the soak: a writer, launches one after the other, and a reader that is not Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import deltalake
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from backfill_assets.demo.orders import write_orders
from benchmarks.processes import REPOSITORY, environment, launch_command

FIRST_DAY, LIVE_FROM = date(2023, 1, 1), "2026-01-01"
TABLE = "bronze/orders"
MODULE = "soak_definitions"
DEFINITIONS = f"""
from pathlib import Path

import yaml

import backfill_assets
from backfill_assets import TableSpec, build_lakehouse_table, lakehouse_definitions

text = (Path(backfill_assets.__file__).parent / "defs/{TABLE}/defs.yaml").read_text(encoding="utf-8")
facts = yaml.safe_load(text)["attributes"]
facts["live"] = facts["live"] | {{"starts": "{LIVE_FROM}", "trigger_seconds": 1}}
defs = lakehouse_definitions(build_lakehouse_table(TableSpec.model_validate(facts)))
"""
"""The shop's own table with another trigger."""

BATCH = re.compile(
    r"batch (\d+): ([\d,]+) rows(?:, ([\d,]+) late)?(?:, ([\d,]+) quarantined)?.*?(?:([\d.]+) s behind)?$"
)
SAVE = re.compile(r"Chunk \d+ of .* save ([\d.]+)")
CONFLICT = re.compile(r"overtaken|is tried again|Tried again")


@dataclass(frozen=True)
class Soak:
    """Where everything lies."""

    folder: Path
    days: int
    orders_per_day: int

    @property
    def root(self) -> Path:
        return self.folder / "lakehouse"

    @property
    def table(self) -> Path:
        return self.root / "tables" / TABLE

    @property
    def export(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def events(self) -> Path:
        return self.root / "landing" / "order_events"

    @property
    def last_day(self) -> date:
        return FIRST_DAY + timedelta(days=self.days - 1)

    def prepare(self) -> None:
        write_orders(self.export, first_day=FIRST_DAY, days=self.days, orders_per_day=self.orders_per_day, seed=1)
        self.events.mkdir(parents=True)
        home = self.folder / "dagster_home"
        home.mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", home)
        (self.folder / f"{MODULE}.py").write_text(DEFINITIONS, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        paths = {"PYTHONPATH": f"{self.folder}{os.pathsep}{REPOSITORY}", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        return environment(self.root, self.folder / "dagster_home", **paths)

    def start(self, name: str, command: list[str]) -> Process:
        log = self.folder / f"{name}.log"
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment(), stdout=out, stderr=out, start_new_session=True
            )
        return Process(name, process, log)

    def writer(self) -> Process:
        command = [sys.executable, "-m", "backfill_assets.cli", "live", TABLE, "--definitions", MODULE]
        return self.start("writer", command)

    def launch(self, number: int, only: str) -> Process:
        config = json.dumps({"ops": {TABLE.replace("/", "__"): {"config": {"only": only}}}})
        whole = ("--partition-range", f"{FIRST_DAY}...{self.last_day}", "--config-json", config)
        return self.start(f"launch {number}", launch_command(MODULE, TABLE, *whole))


@dataclass(frozen=True)
class Process:
    """One process that runs, and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def conflicts(self) -> list[str]:
        return [line for line in self.lines() if CONFLICT.search(line)]

    def must_end(self) -> None:
        if code := self.process.wait():
            tail = "\n".join(self.lines()[-40:])
            sys.exit(f"{tail}\n\n{self.name} ended with exit code {code}.")

    def wait_until(self, what: Callable[[], bool], seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while not what():
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit("\n".join(self.lines()[-40:]) + f"\n\n{self.name} does not get further.")
            time.sleep(0.2)


@dataclass(frozen=True)
class Batch:
    """What the writer said of one batch."""

    live: int
    late: int
    quarantined: int
    behind_seconds: float

    @property
    def rows(self) -> int:
        return self.live + self.late + self.quarantined


def batches_of(lines: Iterable[str]) -> dict[int, Batch]:
    found = [match for line in lines if (match := BATCH.search(line))]
    count = lambda text: int((text or "0").replace(",", ""))  # noqa: E731 (three uses, one line)
    return {int(m[1]): Batch(count(m[2]), count(m[3]), count(m[4]), float(m[5] or 0)) for m in found}


@dataclass
class Reader:
    """Reads keys with delta-rs while everything runs, and counts those that come twice."""

    path: Path
    recent_from: date
    whole_every_seconds: float = 30.0
    reads: int = 0
    duplicates: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        whole_at = time.monotonic() + self.whole_every_seconds
        while not self.ended.wait(1.0):
            whole = time.monotonic() >= whole_at
            try:
                self.read(whole=whole)
            except TableNotFoundError:  # the writer has not made it yet
                continue
            if whole:
                whole_at = time.monotonic() + self.whole_every_seconds

    def read(self, *, whole: bool) -> None:
        wanted = None if whole else [("dt", ">=", self.recent_from)]
        keys = deltalake.DeltaTable(str(self.path)).to_pyarrow_table(columns=["order_id"], filters=wanted)["order_id"]
        self.duplicates += len(keys) - pc.count_distinct(keys).as_py()
        self.reads += 1
