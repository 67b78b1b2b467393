"""A real webserver and a real daemon over one lakehouse, and what the UI asks them by GraphQL."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.world import BIN, MODULE, World
from tests.support.killing import kill_group

DEADLINE_SECONDS = 300

LAUNCH = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
LAUNCH_AGAIN = """mutation($params: ReexecutionParams!) { reexecutePartitionBackfill(reexecutionParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
LAUNCH_RUN = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message } } }"""
EXECUTE_AGAIN = """mutation($params: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $params) {
  __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message } } }"""
TICK = """mutation($selector: ScheduleSelector!, $at: Float) { scheduleDryRun(selectorData: $selector, timestamp: $at) {
  ... on DryRunInstigationTick { evaluationResult { skipReason error { message } runRequests { runConfigYaml tags { key value } } } }
  ... on PythonError { message } } }"""
RUN = """query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"""
REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": MODULE}
PAGE = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status error { message } runs { id status assetSelection { path } tags { key value } }
  assetBackfillData { assetBackfillStatuses { ... on AssetPartitionsStatusCounts {
    assetKey { path } numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed } } } } } }"""


@dataclass(frozen=True)
class Page:
    """The page of a backfill: its status, counts by table, the ranges that its runs covered, and the run of each first partition."""

    backfill_id: str
    status: str
    counts: dict[str, tuple[int, int, int]]
    ranges: list[tuple[frozenset[str], str, str]]
    run_ids: dict[str, str]


@dataclass(frozen=True)
class Server:
    """A webserver with its daemon.

    Args:
        daemon: Its process.
    """

    url: str
    daemon: subprocess.Popen[bytes]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing leave the queue meanwhile."""
        self.daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.daemon.send_signal(signal.SIGCONT)

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def backfill(self, mutation: str, **params: Any) -> Page:
        """Launch a backfill and wait for its end."""
        return self.ended(self.request(mutation, **params))

    def request(self, mutation: str, **params: Any) -> str:
        """Request a backfill; return its id."""
        (answer,) = self.ask(mutation, params=params).values()
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return answer["backfillId"]

    def ended(self, backfill_id: str) -> Page:
        """Wait for the end of a backfill."""
        until = time.monotonic() + DEADLINE_SECONDS
        while True:
            page = self.ask(PAGE, id=backfill_id)["partitionBackfillOrError"]
            if page["status"] not in ("REQUESTED", "CANCELING", "FAILING"):
                return _page(backfill_id, page)
            assert time.monotonic() < until, page
            time.sleep(0.5)

    def launch(self, mutation: str, **params: Any) -> str:
        """Launch one run; return its id."""
        (answer,) = self.ask(mutation, params=params).values()
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return answer["run"]["id"]

    def run_ended(self, run_id: str) -> str:
        """Wait for the end of a run; return its status."""
        until = time.monotonic() + DEADLINE_SECONDS
        while True:
            status = self.ask(RUN, id=run_id)["runOrError"]["status"]
            if status in ("SUCCESS", "FAILURE", "CANCELED"):
                return status
            assert time.monotonic() < until, status
            time.sleep(0.5)

    def tick(self, schedule: str, at: datetime) -> tuple[str | None, list[Any]]:
        """Try a schedule's tick, as the UI's *Test schedule* does; return why it skips, and the runs that it asks for."""
        selector = {**REPOSITORY, "scheduleName": schedule}
        found = self.ask(TICK, selector=selector, at=at.timestamp())["scheduleDryRun"]["evaluationResult"]
        assert found["error"] is None, found["error"]
        return found["skipReason"], found["runRequests"] or []


def _page(backfill_id: str, page: Any) -> Page:
    assert page["error"] is None, page["error"]
    counts = {
        "/".join(s["assetKey"]["path"]): (
            s["numPartitionsTargeted"],
            s["numPartitionsMaterialized"],
            s["numPartitionsFailed"],
        )
        for s in page["assetBackfillData"]["assetBackfillStatuses"]
    }
    ranges, run_ids = [], {}
    for run in page["runs"]:
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        tables = frozenset("/".join(key["path"]) for key in run["assetSelection"])
        one = tags.get("dagster/partition", "")
        first, last = (tags.get(f"dagster/asset_partition_range_{end}", one) for end in ("start", "end"))
        ranges.append((tables, first, last))
        run_ids[first] = run["id"]
    return Page(backfill_id, page["status"], counts, sorted(ranges, key=lambda r: r[1:]), run_ids)


@contextmanager
def serving(world: World) -> Iterator[Server]:
    """Start webserver and daemon, and end both with all that they started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    webserver = [str(BIN / "dagster-webserver"), "-m", MODULE, "-h", "127.0.0.1", "-p", str(port)]
    daemon = [sys.executable, str(Path(__file__).with_name("quick_daemon.py")), "run", "-m", MODULE]
    with world.here():
        pass  # makes the history's files: two processes that make them at once trip over each other
    with (world.root / "servers.log").open("w") as log:
        started = [
            subprocess.Popen(
                command,
                cwd=world.root,
                env=world.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for command in (webserver, daemon)
        ]
        try:
            server = Server(f"http://127.0.0.1:{port}", started[1])
            _wait_for(server, started, world.root / "servers.log")
            yield server
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                kill_group(process)  # and whatever it started and left behind


def _wait_for(server: Server, started: list[subprocess.Popen[bytes]], log: Path) -> None:
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        assert all(process.poll() is None for process in started), log.read_text()[-4000:]
        try:
            urllib.request.urlopen(f"{server.url}/server_info", timeout=5).close()
            return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            assert time.monotonic() < until, log.read_text()[-4000:]
            time.sleep(0.3)
