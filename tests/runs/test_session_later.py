"""A session that starts when something is first asked of it, in a process that has none yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

WRITES = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pyspark import SparkContext
from backfill_assets.core.state.version_steps import VersionStep
from backfill_assets.runs.resources import Lakehouse

lakehouse = Lakehouse(root=sys.argv[1])
lakehouse.start_spark_when_asked()
step = VersionStep("2024-02-02T00:00:00+00:00", "made", "bronze/orders__v2", before="bronze/orders", rows=3)
assert lakehouse.version_steps("bronze/orders") == [], "nothing was noted yet"
assert SparkContext._gateway is None, "a look has started a JVM"
lakehouse.add_version_steps([step])
assert lakehouse.version_steps("bronze/orders") == [step]
"""
THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from backfill_assets.spark.later import later

started = []
session = later(lambda: started.append(1) or sys, {"name": "value"})
with ThreadPoolExecutor(8) as pool:
    assert len({*pool.map(lambda _: id(session.version_info), range(64))}) == 1
assert started == [1]
"""


@pytest.mark.parametrize("code", [WRITES, THREADS])
def test_the_first_use_starts_it_once(tmp_path: Path, code: str):
    """What writes first, before anything was read, finds a session; threads that come together find one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
