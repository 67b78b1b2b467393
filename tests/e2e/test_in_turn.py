"""Launches from the UI take their turn; live writes do not wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

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


@pytest.fixture(scope="module")
def ran(world: World) -> Iterator[list[dg.RunRecord]]:
    """Two launches that were asked for one after the other, and a check that was asked for last."""
    with serving(world) as server:
        asked = [launch(server, DAYS[0])]
        while server.ask(RUN, id=asked[0])["runOrError"]["status"] == "QUEUED":
            time.sleep(0.2)  # the daemon's first look at the pool makes its limit
        asked += [launch(server, DAYS[1]), check(server)]
        assert [server.run_ended(run_id) for run_id in asked] == ["SUCCESS"] * 3
    with world.here() as lake:
        records = [lake.instance.get_run_record_by_id(run_id) for run_id in asked]
        yield [record for record in records if record]


def launch(server: Server, day: str) -> str:
    selector = {**REPOSITORY, "jobName": "__ASSET_JOB", "assetSelection": [{"path": ["bronze", "orders"]}]}
    selector |= {"assetCheckSelection": []}
    tags = [{"key": "dagster/partition", "value": day}]
    return server.launch(LAUNCH_RUN, selector=selector, executionMetadata={"tags": tags})


def check(server: Server) -> str:
    selector = {**REPOSITORY, "jobName": "reconciliation_job"}
    return server.launch(LAUNCH_RUN, selector=selector)


def test_launches_run_one_after_the_other(ran: list[dg.RunRecord]):
    """The second begins when the first has ended; a run that writes no table waits for neither."""
    *launches, looked = sorted(ran[:2], key=lambda record: record.start_time or 0.0) + ran[2:]
    for earlier, later in pairwise(launches):
        assert earlier.end_time is not None
        assert later.start_time is not None
        assert later.start_time >= earlier.end_time
    assert looked.start_time is not None
    assert looked.start_time < launches[-1].start_time
