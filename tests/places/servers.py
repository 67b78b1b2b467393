"""The places where a launch runs: this process's own JVM, a standalone cluster, and a Connect server; all on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from tests.support.killing import kill_group

ROOT = Path(__file__).parents[2]
START_SECONDS = 120
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "DAGSTER_"))}


@dataclass(frozen=True)
class Place:
    """What a process must know to run there.

    Args:
        workers: Process ids of a cluster's workers.
    """

    name: str
    settings: Mapping[str, str]
    workers: tuple[int, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)

    def environment(self, scratch: Path, **more: str) -> dict[str, str]:
        warehouse = {} if self.name == "connect" else {"spark.sql.warehouse.dir": str(scratch / "warehouse")}
        extra = ";".join(f"{name}={value}" for name, value in {**self.extra, **warehouse}.items())
        return {
            **CLEAN, "PYTHONPATH": str(ROOT), "SPARK_DRIVER_MEMORY": "1g", "SPARK_EXTRA_CONF": extra,
            "DAGSTER_DISABLE_TELEMETRY": "1", **self.settings, **more,
        }  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_on(module: str, folder: Path, server: Mapping[str, str]) -> Any:
    """Run a module over a folder in a process whose session is a Connect server's; return the JSON that it prints last."""
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder)],
        cwd=ROOT, env={**os.environ, **server}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str], **options: object
) -> Iterator[subprocess.Popen[str]]:
    """Run a process in a group of its own, and end it and all that it started."""
    with log.open("w") as written:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=written,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()  # it ends what it started; a JVM that is told by itself is not there to be asked
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    kill_group(process)


@contextmanager
def local(_scratch: Path) -> Iterator[Place]:
    yield Place("local", {"SPARK_MASTER": "local[2]"})


@contextmanager
def standalone(scratch: Path) -> Iterator[Place]:
    """A master with two workers of one core each."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port, page = free_port(), free_port()
    environment = {
        **CLEAN,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(scratch / "work"),
    }
    master = [
        spark_class,
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        str(page),
    ]
    worker = [
        spark_class, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "640m",
        "--webui-port", "0", f"spark://127.0.0.1:{port}",
    ]  # fmt: skip
    with ExitStack() as ending:
        ending.enter_context(running(master, scratch / "master.log", environment))
        workers = [ending.enter_context(running(worker, scratch / f"worker{n}.log", environment)) for n in (1, 2)]
        until = time.monotonic() + START_SECONDS
        while _alive_workers(page) < len(workers):
            assert time.monotonic() < until, (scratch / "master.log").read_text()[-3000:]
            time.sleep(0.2)
        yield Place(
            "standalone",
            {"SPARK_MASTER": f"spark://127.0.0.1:{port}", "SPARK_LOCAL_IP": "127.0.0.1"},
            workers=tuple(worker.pid for worker in workers),
            extra={
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
            },
        )


def _alive_workers(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # its page is not there yet, or not its answers
        return 0


@contextmanager
def connect(scratch: Path) -> Iterator[Place]:
    """A Connect server as `make ui WARM=1` has it, with one core: a job that is not gone would block all others."""
    command = [sys.executable, "-m", "backfill_assets.spark.connect_server", "--port", str(free_port())]
    environment = Place("server", {"SPARK_MASTER": "local[1]"}).environment(scratch)
    with running(command, scratch / "server.log", environment):
        yield Place("connect", announced(scratch / "server.log"))


def announced(log: Path) -> dict[str, str]:
    """Wait for the lines with which a server says how it is reached."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        said = dict(re.findall(r"^  export (\w+)=(.*)$", log.read_text(), re.MULTILINE))
        if {"SPARK_REMOTE", "SPARK_MASTER"} <= said.keys():
            return said
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


PLACES = {"local": local, "standalone": standalone, "connect": connect}
