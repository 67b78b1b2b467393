"""Spark's JVM is killed in the middle of a launch: the run says so in our words, and what was published stays recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.world import ROOT

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from pyspark import SparkContext
from backfill_assets.table.transaction import Transactions
from tests.support.launching import new_lake
from tests.support.shop import orders

lake, commit, calls = new_lake(Path(sys.argv[1])), Transactions.commit, []

def commit_without_a_jvm(*args, **how):
    calls.append(1)
    if len(calls) == 2:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        SparkContext._gateway.proc.wait()
    return commit(*args, **how)

Transactions.commit = commit_without_a_jvm
days = ["2024-01-01", "2024-01-02"]
for day in days:
    lake.export(day, orders(day))
ran = lake.launch(*days, max_partitions_per_chunk=1)
said = {"failure": ran.failure, "recorded": ran.recorded(), "log": ran.log, "succeeded": ran.succeeded}
Path(sys.argv[2]).write_text(json.dumps(said))
os._exit(0)
"""


@pytest.mark.prove
@pytest.mark.e2e
def test_a_jvm_that_is_killed_is_translated(tmp_path: Path):
    """The failure has our three sentences, no refused connection; the chunk before is recorded, and nothing hides the cause."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "lake"), str(tmp_path / "said")]
    (tmp_path / "lake").mkdir()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads((tmp_path / "said").read_text())
    assert not said["succeeded"]
    assert said["failure"] == (
        "`bronze/orders`: Spark's JVM has ended in the middle of its work. What was published before is recorded; the chunk in flight "
        "is whole in the table or absent. Launch again with `only: MISSING`. If it ran out of memory, give it more "
        "(`SPARK_DRIVER_MEMORY`)."
    )
    assert said["recorded"] == ["2024-01-01"]
    assert "The copy of the receipts could not be filled; the next launch does it." in said["log"]
