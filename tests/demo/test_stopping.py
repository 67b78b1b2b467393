"""The shop's events, as a process that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STORY = """
import os, signal, sys
from backfill_assets.commands.demo import _end_as_by_ctrl_c
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
_end_as_by_ctrl_c()
try:
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
except KeyboardInterrupt:
    print("what runs behind it is ended")
else:
    print("goes on")
"""


@pytest.mark.parametrize(
    ("how", "number", "says"),
    [
        ("shell", "SIGHUP", "what runs behind it is ended"),
        ("shell", "SIGTERM", "what runs behind it is ended"),
        ("nohup", "SIGHUP", "goes on"),
    ],
)
def test_a_story_ends_what_runs_behind_it(how: str, number: str, says: str):
    """Also where its terminal is closed; unless somebody said that it is to outlive that."""
    done = subprocess.run([sys.executable, "-c", STORY, how, number], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == says


BEHIND_A_STORY = """
import signal
from rich.console import Console
from backfill_assets.demo.processes import Behind, ending_all
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run behind a shell
with ending_all():
    Behind.start(Console(quiet=True), "demo", "events").wait_for("the end", seconds=60)
"""


def test_what_a_story_started_ends_with_it(tmp_path: Path):
    """Ctrl-C reaches the story alone; what runs behind it has ended when the story has."""
    landing = tmp_path / "landing/order_events"
    environment = {**os.environ, "LAKEHOUSE_ROOT": str(tmp_path), "DAGSTER_HOME": str(tmp_path / "home")}
    with subprocess.Popen([sys.executable, "-c", BEHIND_A_STORY], env=environment, stderr=subprocess.PIPE) as story:
        while story.poll() is None and not any(landing.glob("*.json")):
            time.sleep(0.05)
        story.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in story.communicate(timeout=30)[1]
    landed = len([*landing.iterdir()])
    time.sleep(1.5)  # a file lands each second
    assert len([*landing.iterdir()]) == landed


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
