"""The shop's events, as a process that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BEHIND_A_SHELL = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
"""What a shell does with commands that it runs behind it: they are started so that interrupts are ignored."""


@pytest.mark.parametrize("stopped_by", [signal.SIGINT, signal.SIGTERM])
def test_events_are_counted_when_they_are_stopped(tmp_path: Path, stopped_by: signal.Signals):
    """Also behind a shell, and by whatever ends processes: the last line says how many have landed, which are in the files."""
    landing = tmp_path / "lakehouse/landing/order_events"
    with subprocess.Popen(
        [*BEHIND_A_SHELL, sys.executable, "-m", "backfill_assets.cli", "demo", "events", "--rate", "50"],
        env={**os.environ, "LAKEHOUSE_ROOT": str(tmp_path / "lakehouse"), "DAGSTER_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not any(landing.rglob("*.json")):
            time.sleep(0.05)
        process.send_signal(stopped_by)
        try:
            said = process.communicate(timeout=20)[0]
        finally:
            process.kill()
    lines = [line for file in landing.rglob("*.json") for line in file.read_text().splitlines()]
    assert (process.returncode, said.splitlines()[-1].split()[0]) == (0, f"{len(lines):,}")
