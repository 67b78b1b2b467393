"""The project's own commands, each in a session of its own: what they say while they run, and their end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.e2e.world import MODULE, ORDERS, ROOT, World
from tests.support.killing import kill_group


class Process:
    """One of the project's commands in a session of its own, and what it said."""

    def __init__(self, world: World, *command: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=world.root, env={**world.environment, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip() for line in iter(self.process.stdout.readline, ""))

    def said(self, what: str) -> list[str]:
        return [line for line in self.lines if re.search(what, line)]

    def wait_until(self, what: Callable[[], object], seconds: float = 240) -> None:
        """Wait until something holds; fail if the process ends before."""
        until = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, f"it ended: {self.text()}"
            assert time.monotonic() < until, f"after {seconds:.0f} s: {self.text()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and its JVM."""
        kill_group(self.process)

    def end(self, seconds: float = 300) -> int:
        """Wait for its end; return its exit code."""
        code = self.process.wait(timeout=seconds)
        self.reader.join(timeout=10)
        return code

    def text(self) -> str:
        return "\n".join(self.lines)[-6000:]


def live_writer(world: World) -> Process:
    return Process(world, "backfill_assets.cli", "live", ORDERS)


def history(world: World, first: str, last: str, **config: Any) -> Process:
    ops = json.dumps({"ops": {"bronze__orders": {"config": config}}})
    return Process(
        world, "dagster", "asset", "materialize", "-m", MODULE, "--select", f'key:"{ORDERS}"',
        "--partition-range", f"{first}...{last}", "--config-json", ops,
    )  # fmt: skip


BATCH = re.compile(r"batch (\d+): ([\d,]+) rows(?:, ([\d,]+) late)?(?:, ([\d,]+) quarantined)?")


def batches(*writers: Process) -> dict[int, tuple[int, int, int]]:
    """Return what writers said of each batch: rows in the table, late ones, quarantined ones."""
    found = [match for writer in writers for line in list(writer.lines) if (match := BATCH.search(line))]
    return {int(m[1]): tuple(int((part or "0").replace(",", "")) for part in m.groups()[1:]) for m in found}
