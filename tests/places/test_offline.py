"""A machine without a network: the jars come from a folder, or one clear error says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import SparkSettings
from tests.places.servers import CLEAN, ROOT
from tests.support.shop import rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

WRITE = """
import sys
from backfill_assets.runs.resources import Lakehouse
Lakehouse().spark.range(3).write.format("delta").save(sys.argv[1])
"""
NOWHERE = "127.0.0.1:9"
"""A port at which nobody listens; every repository is asked for there."""


def write_table(scratch: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Write a table in a process that has an empty cache and can reach no repository."""
    host, port = NOWHERE.split(":")
    proxies = " ".join(f"-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}" for scheme in ("http", "https"))
    environment = {
        **CLEAN, "PYTHONPATH": str(ROOT), "HOME": str(scratch), "XDG_CACHE_HOME": str(scratch / "cache"),
        "http_proxy": f"http://{NOWHERE}", "https_proxy": f"http://{NOWHERE}",
        "JAVA_TOOL_OPTIONS": f"-Duser.home={scratch} {proxies}", "SPARK_MASTER": "local[1]", "SPARK_DRIVER_MEMORY": "1g", **settings,
    }  # fmt: skip
    command = [sys.executable, "-c", WRITE, str(scratch / "table")]
    return subprocess.run(
        command, cwd=scratch, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_folder_of_jars_needs_no_network(tmp_path: Path):
    """With SPARK_JARS_DIR a session starts and writes Delta though no repository can be reached; nothing is cached."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in delta_jars(SparkSettings()):
        (jars / jar.name).symlink_to(jar)
    done = write_table(tmp_path, SPARK_JARS_DIR=str(jars))
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(row["id"] for row in rows_in(tmp_path / "table")) == [0, 1, 2]
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_without_jars_and_network(tmp_path: Path):
    """Without the folder it is one error, which names the jars and both ways to get them."""
    done = write_table(tmp_path)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "backfill_assets.errors.SparkUnavailableError: Jars could not be fetched (delta-spark_4.2_2.13-4.4.0.jar, "
    )
    assert "copy the jars into a folder and name it in SPARK_JARS_DIR" in said
    assert not (tmp_path / "table").exists()
