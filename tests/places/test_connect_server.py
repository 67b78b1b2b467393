"""The warm server: it serves its command and nobody else, and ends with it, however that ends."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from backfill_assets.spark.connect_server import main
from tests.places.servers import ROOT, Place, announced, free_port, running

pytestmark = pytest.mark.e2e

SERVER = [sys.executable, "-m", "backfill_assets.spark.connect_server", "--port"]
ONE = Place("local", {"SPARK_MASTER": "local[1]"})
WITH_A_SECRET = Place(
    "local", {"SPARK_MASTER": "local[1]"}, extra={"spark.hadoop.fs.s3a.secret.key": "the server's canary"}
)

ASK = """
import os, sys, tempfile
from backfill_assets.errors import SparkUnavailableError
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.spark.connect import connect
from backfill_assets.spark.settings import settings_from_environment
spark = Lakehouse().spark
print("rows", spark.range(3).count())
from backfill_assets.lake.side_tables import LateTable
from tests.support.live_shop import live_spec
spec = live_spec()
late = LateTable(spark, spec, f"{tempfile.mkdtemp()}/orders")
late.create()
print("late", late.rows_of([spec.grid.partition(str(spec.start))]).count())
os.environ["SPARK_EXTRA_CONF"] = "spark.hadoop.fs.s3a.secret.key=canary of mine"
try:
    connect(settings_from_environment(os.environ))
except SparkUnavailableError as error:
    print("canary" in str(error), "`spark.hadoop.fs.s3a.secret.key` has another value" in str(error))
os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "another"
from pyspark.sql import SparkSession
try:
    SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).create().range(1).count()
except Exception as error:
    print("refused" if "UNAUTHENTICATED" in str(error) else error)
sys.exit(7)
"""


def nobody_listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.prove
def test_a_command_is_served_and_ends_the_server(tmp_path: Path):
    """The command finds a server, one with another token does not; its exit code is passed on, and the server is gone.

    Late rows are read there too: for Connect no column to add is not the same as for Spark itself.

    One that wants another secret than the server's is told so, and shown neither of the two.
    """
    port = free_port()
    done = subprocess.run(
        [*SERVER, str(port), "--", sys.executable, "-c", ASK],
        cwd=ROOT, env=WITH_A_SECRET.environment(tmp_path), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()) == (
        7,
        ["rows 3", "late 0", "False True", "refused"],
    ), done.stderr[-3000:]
    assert f"A Spark Connect server is at sc://localhost:{port} for as long as this runs" in done.stderr
    assert nobody_listens(port)


@pytest.mark.prove
def test_a_killed_server_takes_its_jvm_along(tmp_path: Path):
    """When the server's own process is killed, its JVM ends too: nothing keeps the memory."""
    port = free_port()
    with running([*SERVER, str(port)], tmp_path / "log", ONE.environment(tmp_path)) as process:
        announced(tmp_path / "log")
        (jvm,) = [child for child in psutil.Process(process.pid).children(recursive=True) if "java" in child.name()]
        process.kill()
        process.wait(10)
        until = time.monotonic() + 20
        while jvm.is_running() and jvm.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until, "the JVM lives on"
            time.sleep(0.1)
    assert nobody_listens(port)


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]):
    """A taken port is one clear error, before a JVM is started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"Port {port} of this machine is taken" in said
    assert "name another port with `--port`" in said


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]):
    """What it does not know is refused with its usage; so is a server inside of no command."""
    for arguments in (["--prot", "1"], ["--inside"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith("Usage: ")
