"""A run that is launched and stopped as the UI does it: Dagster's GraphQL, a code server, a run process."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster_graphql.test.utils import execute_dagster_graphql

from tests.places.servers import ROOT, Place, free_port, running
from tests.support.launching import RANGE_END, RANGE_START, Lake, Ran

LOCATION = "places"
WAIT_SECONDS = 180

LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STOP = """mutation($id: String!) { terminateRun(runId: $id) { __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""


@dataclass
class Ui:
    """What the UI can do with one lakehouse."""

    workspace: WorkspaceProcessContext
    lake: Lake

    def launch(self, table: str, first: str, last: str, **config: Any) -> str:
        tags = {RANGE_START: first, RANGE_END: last}
        selector = {
            "repositoryLocationName": LOCATION, "repositoryName": "__repository__", "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": table.split("/")}], "assetCheckSelection": [],
        }  # fmt: skip
        answer = self._ask(
            LAUNCH,
            params={
                "selector": selector,
                "runConfigData": {"ops": {table.replace("/", "__"): {"config": config}}},
                "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
            },
        )
        return str(answer["launchRun"]["run"]["runId"])

    def stop(self, run_id: str) -> float:
        """Stop a run; return how many seconds it took to end."""
        started = time.monotonic()
        self._ask(STOP, id=run_id)
        self.wait(run_id, lambda ran: ran.run.is_finished)
        return time.monotonic() - started

    def wait(self, run_id: str, holds: Callable[[Ran], bool]) -> Ran:
        until = time.monotonic() + WAIT_SECONDS
        while not holds(ran := self.lake.ran(run_id)):
            assert time.monotonic() < until, (ran.run.status, ran.log)
            assert holds(ran) or not ran.run.is_finished, (ran.run.status, ran.log, ran.failure)
            time.sleep(0.1)
        return ran

    def _ask(self, query: str, **variables: Any) -> Any:
        result = execute_dagster_graphql(self.workspace.create_request_context(), query, variables=variables)
        (answer,) = result.data.values()
        assert answer["__typename"].endswith("Success"), answer
        return result.data


@contextmanager
def ui(place: Place, root: Path, lake: Lake) -> Iterator[Ui]:
    """Start a code server at a place, and what the UI needs to talk to it."""
    port = free_port()
    command = [sys.executable, "-m", "dagster", "api", "grpc", "-m", "tests.places.slow_shop", "--host", "127.0.0.1", "--port", str(port),
               "--location-name", LOCATION]  # fmt: skip
    environment = place.environment(root, LAKEHOUSE_ROOT=str(root), DAGSTER_HOME=str(root / "history"))
    with running(command, root / "code_server.log", environment, cwd=ROOT):
        _wait_for(port, root / "code_server.log")
        target = GrpcServerTarget(host="127.0.0.1", port=port, socket=None, location_name=LOCATION)
        with WorkspaceProcessContext(lake.instance, target) as workspace:
            yield Ui(workspace, lake)


def _wait_for(port: int, log: Path) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])
