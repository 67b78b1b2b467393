"""A run that is stopped leaves when Spark has ended, however often it is stopped."""

from __future__ import annotations

import subprocess
import sys

import pytest

STOPPED_TWICE = """
import os, signal, threading, time
from types import SimpleNamespace
import dagster as dg
from dagster._utils.interrupts import raise_interrupts_as
from backfill_assets.runs.stopping import result_in_thread

ended = []

def commit():
    time.sleep(2)
    ended.append(True)

def stop():
    for _ in range(3):
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGINT)

spark = SimpleNamespace(interruptAll=lambda: None)  # a save that no cancelled job ends
threading.Thread(target=stop).start()
try:
    with raise_interrupts_as(dg.DagsterExecutionInterruptedError):
        result_in_thread(commit, SimpleNamespace(spark=spark), print)
except dg.DagsterExecutionInterruptedError as error:
    print("STOPPED", ended, getattr(error, "__notes__", []))
"""


def test_whoever_stops_twice_does_not_leave_spark_at_work():
    """Ctrl-C once more, or by two people: what became of the save is said when it is known."""
    done = subprocess.run([sys.executable, "-c", STOPPED_TWICE], capture_output=True, text=True, check=False)
    assert done.stdout == "STOPPED [True] []\n", done.stderr


@pytest.mark.prove
def test_a_save_that_goes_on_is_told():
    """After the time that a stop may take it may still be published; nobody is told that it is not."""
    hurried = STOPPED_TWICE.replace(
        "ended = []", "from backfill_assets.runs import stopping\nstopping.STOP_SECONDS = 0.3\nended = []"
    )
    done = subprocess.run([sys.executable, "-c", hurried], capture_output=True, text=True, check=False)
    assert "what it still does may be published" in done.stdout
    assert "STOPPED [] ['Spark has not ended.']" in done.stdout, done.stderr
