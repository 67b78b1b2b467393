"""`stop` ends a launch in another process between two commits; `resume` does exactly what it had left."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.e2e.server import LAUNCH_RUN, REPOSITORY, serving
from tests.e2e.world import BIN, MODULE, ORDERS, World, expected, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.prove]

DAYS = [(date(2023, 1, 1) + timedelta(days=n)).isoformat() for n in range(24)]
SECONDS = 10.0
CONFIG = {"ops": {"bronze__orders": {"config": {"max_partitions_per_chunk": 1, "reason": "first load"}}}}


def version(world: World) -> int:
    path = str(world.path())
    return deltalake.DeltaTable(path).version() if deltalake.DeltaTable.is_deltatable(path) else -1


def answer(world: World, *command: str, code: int = 0) -> Any:
    result = world.run("backfill-assets", *command, "--json")
    assert result.returncode == code, result.stdout + result.stderr
    return json.loads(result.stdout)


@dataclass(frozen=True)
class Scene:
    """A launch that was stopped after a few of its days, as it was right then.

    Args:
        said: What `stop` said of it.
        done: The days whose commits the table has.
    """

    world: World
    said: Any
    exit_code: int
    done: list[str]
    content: Any
    shown: dict[str, str]
    status: Any
    history: list[str]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    world = new_world(tmp_path_factory.mktemp("stop"))
    for day in DAYS:
        world.export(day, shop_orders(day))
    launch = subprocess.Popen(
        [BIN / "dg", "launch", "-m", MODULE, "--assets", f'key:"{ORDERS}"', "--partition-range", f"{DAYS[0]}...{DAYS[-1]}",
         "--config-json", json.dumps(CONFIG)],
        cwd=world.root, env=world.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 120
    while version(world) < 3:
        assert time.monotonic() < until, "the launch did not begin"
        assert launch.poll() is None
        time.sleep(0.1)
    said = answer(world, "stop", ORDERS)
    return Scene(
        world,
        said,
        launch.wait(timeout=60),
        DAYS[: version(world)],
        world.content(),
        world.shown(*DAYS),
        answer(world, "status", ORDERS)["tables"][0],
        [one["what"] for one in answer(world, "history", ORDERS)["operations"]],
    )


def test_a_launch_is_stopped_between_two_commits(stopped):
    """It ends in time, says what became of its last chunk, and every day is whole or absent; Dagster knows each of them."""
    (run,) = stopped.said["runs"]
    assert run["ended"]
    assert run["seconds"] < SECONDS
    assert run["said"].startswith("Stopped. Chunks that are recorded above are published; the one in flight ")
    assert stopped.exit_code != 0
    assert 3 <= len(stopped.done) < len(DAYS)
    assert stopped.content == expected(*stopped.done)
    assert [day for day, shown in stopped.shown.items() if shown == "materialized"] == stopped.done
    assert (stopped.status["state"], stopped.status["by_state"]["published"]) == ("STOPPED", len(stopped.done))
    assert stopped.history == ["stopped", "published", "made"]


def test_resume_does_exactly_the_rest(stopped):
    """A commit for each day that was left, with the configuration of the launch; then there is nothing to resume."""
    world = stopped.world
    done = answer(world, "resume", ORDERS)
    assert (done["range"], done["failure"]) == (f"{DAYS[0]}...{DAYS[-1]}", None)
    assert version(world) == len(DAYS), "version 0 made the table, then one commit for each day"
    assert world.content() == expected(*DAYS)
    newest, *_ = answer(world, "history", ORDERS)["operations"]
    assert (newest["what"], newest["partitions"], newest["reason"]) == (
        "published",
        DAYS[len(stopped.done) :],
        "first load",
    )
    assert answer(world, "resume", ORDERS)["run_id"] is None
    assert answer(world, "stop", ORDERS)["runs"] == []


def test_a_run_of_a_code_server_is_stopped_and_no_other(tmp_path: Path):
    """The runs of the UI are children of one process: that one goes on, and starts the next run."""
    world = new_world(tmp_path)
    for day in DAYS:
        world.export(day, shop_orders(day))
    with serving(world) as server:
        selector = {**REPOSITORY, "jobName": "__ASSET_JOB", "assetCheckSelection": []}
        selector |= {"assetSelection": [{"path": ORDERS.split("/")}]}

        def launched(first: str, last: str) -> str:
            ends = (("start", first), ("end", last))
            tags = [{"key": f"dagster/asset_partition_range_{end}", "value": day} for end, day in ends]
            how = {"runConfigData": json.dumps(CONFIG), "executionMetadata": {"tags": tags}}
            return server.launch(LAUNCH_RUN, selector=selector, **how)

        run_id = launched(DAYS[0], DAYS[-1])
        until = time.monotonic() + 120
        while version(world) < 3:
            assert time.monotonic() < until, "the launch did not begin"
            time.sleep(0.1)
        (said,) = answer(world, "stop", ORDERS)["runs"]
        assert (said["run_id"], said["ended"]) == (run_id, True), said
        assert said["said"].startswith("Stopped. Chunks that are recorded above are published; the one in flight ")
        assert server.run_ended(run_id) == "CANCELED"
        done = version(world)
        assert 3 <= done < len(DAYS)
        assert server.run_ended(launched(DAYS[-1], DAYS[-1])) == "SUCCESS"
    assert version(world) == done + 1
