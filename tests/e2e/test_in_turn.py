"""Launches from the UI take their turn; live writes do not wait for them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import dagster as dg
import pytest

from tests.e2e.server import LAUNCH_RUN, REPOSITORY, RUN, Server, serving
from tests.e2e.world import World, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

DAYS = ("2023-01-01", "2023-01-02")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]) -> World:
    world = new_world(tmp_path_factory.mktemp("queued"))
    for day in DAYS:
        world.export(day, shop_orders(day))
    return replace(world, settings=warm_server)


@dataclass(frozen=True)
class Ran:
    """When a run left the queue, and when it ended."""

    left_queue: float
    ended: float


@pytest.fixture(scope="module")
def ran(world: World) -> list[Ran]:
    """Two launches that were asked for one after the other, and a check that was asked for last."""
    with serving(world) as server:
        asked = [launch(server, DAYS[0])]
        while server.ask(RUN, id=asked[0])["runOrError"]["status"] == "QUEUED":
            time.sleep(0.2)  # the daemon's first look at the pool makes its limit
        asked += [launch(server, DAYS[1]), check(server)]
        assert [server.run_ended(run_id) for run_id in asked] == ["SUCCESS"] * 3
    with world.here() as lake:
        return [told(lake.instance, run_id) for run_id in asked]


def told(instance: dg.DagsterInstance, run_id: str) -> Ran:
    (left,) = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.RUN_STARTING).records
    record = instance.get_run_record_by_id(run_id)
    assert record is not None
    assert record.end_time is not None
    return Ran(left.timestamp, record.end_time)


def launch(server: Server, day: str) -> str:
    selector = {**REPOSITORY, "jobName": "__ASSET_JOB", "assetSelection": [{"path": ["bronze", "orders"]}]}
    selector |= {"assetCheckSelection": []}
    tags = [{"key": "dagster/partition", "value": day}]
    return server.launch(LAUNCH_RUN, selector=selector, executionMetadata={"tags": tags})


def check(server: Server) -> str:
    selector = {**REPOSITORY, "jobName": "reconciliation_job"}
    return server.launch(LAUNCH_RUN, selector=selector)


def test_launches_run_one_after_the_other(ran: list[Ran]):
    """The second leaves the queue when the first has ended; a run that writes no table waits for neither."""
    first, second, looked = ran
    assert second.left_queue >= first.ended
    assert looked.left_queue < second.ended, "it was asked for last, and either of them was under way"
