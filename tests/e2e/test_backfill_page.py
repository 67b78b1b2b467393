"""A backfill as the UI launches it: GraphQL to a real webserver, a real daemon, runs in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
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
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.world import BIN, MODULE, ORDERS, SALES, World, expected, new_world, shop_orders

pytestmark = pytest.mark.e2e

DAY_1, DAY_2, DAY_3 = DAYS = ("2023-01-01", "2023-01-02", "2023-01-03")
DEADLINE_SECONDS = 300

LAUNCH = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
LAUNCH_AGAIN = """mutation($params: ReexecutionParams!) { reexecutePartitionBackfill(reexecutionParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
PAGE = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status error { message } runs { id status assetSelection { path } tags { key value } }
  assetBackfillData { assetBackfillStatuses { ... on AssetPartitionsStatusCounts {
    assetKey { path } numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed } } } } } }"""


@dataclass(frozen=True)
class Page:
    """The page of a backfill: its status, counts by table, and the ranges that its runs covered."""

    backfill_id: str
    status: str
    counts: dict[str, tuple[int, int, int]]
    ranges: list[tuple[frozenset[str], str, str]]


@dataclass(frozen=True)
class Server:
    """A webserver with its daemon."""

    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def launched(self, mutation: str, **params: Any) -> Page:
        """Launch a backfill and wait for its end."""
        (answer,) = self.ask(mutation, params=params).values()
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        until = time.monotonic() + DEADLINE_SECONDS
        while True:
            page = self.ask(PAGE, id=answer["backfillId"])["partitionBackfillOrError"]
            if page["status"] not in ("REQUESTED", "CANCELING", "FAILING"):
                return _page(answer["backfillId"], page)
            assert time.monotonic() < until, page
            time.sleep(0.5)


def _page(backfill_id: str, page: Any) -> Page:
    assert page["error"] is None, page["error"]
    counts = {
        "/".join(s["assetKey"]["path"]): (s["numPartitionsTargeted"], s["numPartitionsMaterialized"], s["numPartitionsFailed"])
        for s in page["assetBackfillData"]["assetBackfillStatuses"]
    }
    ranges = []
    for run in page["runs"]:
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        tables = frozenset("/".join(key["path"]) for key in run["assetSelection"])
        one = tags.get("dagster/partition", "")
        ranges.append((tables, tags.get("dagster/asset_partition_range_start", one), tags.get("dagster/asset_partition_range_end", one)))
    return Page(backfill_id, page["status"], counts, sorted(ranges, key=lambda r: r[1:]))


@contextmanager
def serving(world: World) -> Iterator[Server]:
    """Start webserver and daemon, and end both with all that they started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    webserver = [str(BIN / "dagster-webserver"), "-m", MODULE, "-h", "127.0.0.1", "-p", str(port)]
    daemon = [sys.executable, str(Path(__file__).with_name("quick_daemon.py")), "run", "-m", MODULE]
    with (world.root / "servers.log").open("w") as log:
        started = [
            subprocess.Popen(command, cwd=world.root, env=world.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            for command in (webserver, daemon)
        ]
        try:
            server = Server(f"http://127.0.0.1:{port}")
            _wait_for(server, started, world.root / "servers.log")
            yield server
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # whatever it started and left behind
                process.wait(20)


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


def test_a_backfill_from_the_ui_and_its_repetition(tmp_path: Path):
    """A backfill with a bad day shows good days as materialized and the bad one as failed; repeated from failure it launches only
    the bad day of the first table and the days of the second that never ran, and everything is green."""
    world = new_world(tmp_path)
    for day in DAYS:
        world.export(day, shop_orders(day, **({"amount": None} if day == DAY_2 else {})))
    selection = [{"path": key.split("/")} for key in (ORDERS, SALES)]
    with serving(world) as server:
        first = server.launched(LAUNCH, assetSelection=selection, partitionNames=list(DAYS), title="three days")
        content_then, shown_then = world.content(), world.shown(*DAYS)
        world.export(DAY_2, shop_orders(DAY_2))
        second = server.launched(LAUNCH_AGAIN, parentRunId=first.backfill_id, strategy="FROM_FAILURE")

    assert first.status == "COMPLETED_FAILED"
    assert first.counts[ORDERS] == (3, 2, 1)
    assert first.counts[SALES][1] == 0
    assert content_then == expected(DAY_1, DAY_3)
    assert shown_then == {DAY_1: "materialized", DAY_2: "failed", DAY_3: "materialized"}

    assert second.status == "COMPLETED_SUCCESS"
    assert second.counts == {ORDERS: (1, 1, 0), SALES: (3, 3, 0)}
    assert [(start, end) for tables, start, end in second.ranges if ORDERS in tables] == [(DAY_2, DAY_2)]
    assert world.content() == expected(*DAYS)
    assert world.shown(*DAYS) == world.shown(*DAYS, table=SALES) == dict.fromkeys(DAYS, "materialized")
