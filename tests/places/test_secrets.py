"""Secrets, in every place where one can be set: where they must not be after launches that end in every way."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.places.servers import CLEAN, ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

MARK = "canary-"
SETTINGS = {
    "spark.hadoop.fs.s3a.secret.key": f"{MARK}of-a-bucket",
    "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net": f"{MARK}of-an-account",
    "spark.ssl.keyPassword": f"{MARK}of-a-key",
    "spark.driver.extraJavaOptions": f'-Djavax.net.ssl.trustStorePassword={MARK}of-java -Dtwo.words="{MARK}a b"',
}
ENVIRONMENT = {
    "SPARK_EXTRA_CONF": ";".join(f"{name}={value}" for name, value in SETTINGS.items()),
    "JAVA_TOOL_OPTIONS": f"-Dhttps.proxyPassword={MARK}of-a-proxy",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}of-the-environment",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN": f"{MARK}of-a-server",
    "LAKEHOUSE_ALERTS_URL": f"http://127.0.0.1:9/{MARK}of-a-hook",
    "SHOP_DATABASE": f"postgresql://shop:{MARK}of-a-database@127.0.0.1:9/shop",
    "DAGSTER_POSTGRES_URL": f"postgresql+psycopg2://shop:{MARK}of-the-history@127.0.0.1:9/history",
    "A_REMOTE": f"sc://127.0.0.1:9/;token={MARK}of-a-remote",  # becomes SPARK_REMOTE when the JVM is gone
}


@dataclass(frozen=True)
class World:
    """What the launches left behind.

    Args:
        lists: Arguments of processes that had a secret in them, at any moment.
        left: What lies in the machine's folder for temporary files since.
    """

    root: Path
    ended: dict[str, str]
    output: str
    lists: frozenset[str]
    left: tuple[Path, ...]


def arguments() -> Iterator[str]:
    """What everybody on this machine can read of its processes."""
    for process in psutil.process_iter():
        try:
            yield " ".join(process.cmdline())
        except psutil.Error:
            continue


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A lakehouse that was launched, refused and killed, in a process whose settings hold secrets."""
    root = tmp_path_factory.mktemp("secrets")
    home, scratch = root / "home", Path("/tmp")
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    before = set(scratch.iterdir())
    environment = {
        **CLEAN, **ENVIRONMENT, "PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(home), "SPARK_MASTER": "local[2]",
        "SPARK_DRIVER_MEMORY": "1g", "DAGSTER_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    lists: set[str] = set()
    with (root / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.places.canaries", str(root)],
            cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        while process.poll() is None:
            lists |= {line for line in arguments() if MARK in line}
            time.sleep(0.2)
    said = (root / "output").read_text()
    assert process.returncode == 0, said[-6000:]
    return World(
        root, json.loads(said.splitlines()[-1]), said, frozenset(lists), tuple(set(scratch.iterdir()) - before)
    )


def test_launches_end_in_every_way(world: World):
    """What the other tests look at has happened: a launch, a refusal, a killed JVM, and servers that do not answer."""
    assert world.ended == {
        "launched": "SUCCESS", "refused": "FAILURE", "written live": "SUCCESS",
        "killed": "FAILURE", "without a server": "FAILURE", "without a database": "2", "without a history": "2",
    }  # fmt: skip


def test_no_list_of_processes_has_a_secret(world: World):
    """At no moment is a secret among the arguments of any process."""
    assert sorted(world.lists) == []


def test_no_output_has_a_secret(world: World):
    """Neither standard output nor standard error shows one, whatever Java, Spark and Dagster say."""
    assert [line for line in world.output.splitlines() if MARK in line] == []


def test_no_file_has_a_secret(world: World):
    """None is in Dagster's history and logs, in the tables and their logs, or in the working directory."""
    files = [path for path in world.root.rglob("*") if path.is_file()]
    assert {"home", "tables", "landing"} <= {path.relative_to(world.root).parts[0] for path in files}
    assert any(path.suffix == ".err" and path.stat().st_size for path in files), "nothing was captured"
    assert [path for path in files if MARK.encode() in path.read_bytes()] == []


def test_temporary_files_are_their_owners(world: World):
    """What is left in the folder for temporary files and has a secret is readable by its owner alone."""
    others = stat.S_IRGRP | stat.S_IROTH
    files = [
        file
        for place in world.left
        for file in ([place] if place.is_file() else place.rglob("*"))
        if file.is_file() and os.access(file, os.R_OK) and file.stat().st_size < 1 << 20
    ]
    assert [f for f in files if f.stat().st_mode & others and MARK.encode() in f.read_bytes()] == []
