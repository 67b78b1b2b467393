"""Launches from the UI take their turn; live writes do not wait for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from backfill_assets.assets.alerts import ALERTS_URL
from tests.e2e.server import LAUNCH, LAUNCH_RUN, REPOSITORY, Page, Server, serving
from tests.e2e.world import ORDERS, World, new_world, shop_orders
from tests.support.alert_receiver import receiving
from tests.support.postgres import shared_server

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.spark, pytest.mark.prove]

DAYS, LATER = ("2023-01-01", "2023-01-02"), "2023-01-03"


STORAGES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.prove)]
"""Where Dagster keeps its history, as `dagster.yaml` offers it."""


@pytest.fixture(scope="module", params=STORAGES)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]
) -> World:
    world = new_world(tmp_path_factory.mktemp("queued"))
    if request.param == "postgresql":
        keep_in_postgresql(world.home / "dagster.yaml")
    for day in (*DAYS, LATER):
        world.export(day, shop_orders(day))
    (world.lakehouse / "landing/order_events").mkdir(parents=True)
    return replace(world, settings=warm_server)


def keep_in_postgresql(settings: Path) -> None:
    """Let Dagster keep all of its history in a database of its own, instead of files."""
    name = "dagster_history"
    address = shared_server().new_database(name).replace("postgresql://", "postgresql+psycopg2://")
    found: dict[str, Any] = yaml.safe_load(settings.read_text())
    del found["event_log_storage"]
    settings.write_text(yaml.safe_dump({**found, "storage": {"postgres": {"postgres_url": address}}}))


@dataclass(frozen=True)
class Ran:
    """When a run left the queue, and when it ended."""

    left_queue: float
    ended: float


@dataclass(frozen=True)
class Scene:
    """What was asked of the daemon, and what came of it.

    Args:
        launches: Two that were asked for one after the other, and a check that was asked for last.
        ordinary: A run without priority, that was asked for before `live`, while the queue was held.
        stopped: What `stop` said of a launch that was asked for while the queue was held.
        backfill: One that was requested while the queue was held, after its end; `stop` named it.
        status: Of the table, afterwards.
    """

    launches: list[Ran]
    ordinary: Ran
    live: Ran
    stopped: Any
    backfill: Page
    status: Any


@pytest.fixture(scope="module")
def ran(world: World) -> Scene:
    with serving(world) as server:
        asked = [launch(server, DAYS[0]), launch(server, DAYS[1]), check(server)]
        assert [server.run_ended(run_id) for run_id in asked] == ["SUCCESS"] * 3
        with server.held():
            queued = [check(server), live(server)]
            waiting = launch(server, LATER)
            selection = [{"path": ["bronze", "orders"]}]
            requested = server.request(LAUNCH, assetSelection=selection, partitionNames=[LATER])
            stopped = answer(world, "stop", ORDERS)
        for run_id in queued:
            server.run_ended(run_id)  # whatever came of it: it is about when it began
        backfill = server.ended(requested)
    assert [one["run_id"] for one in stopped["runs"]] == [waiting]
    assert [one["backfill_id"] for one in stopped["backfills"]] == [requested]
    with world.here() as lake:
        launches, others = ([told(lake.instance, run_id) for run_id in ids] for ids in (asked, queued))
    ordinary, live_run = others
    return Scene(launches, ordinary, live_run, stopped["runs"], backfill, answer(world, "status", ORDERS)["tables"][0])


def answer(world: World, *command: str) -> Any:
    result = world.run("backfill-assets", *command, "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


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


def live(server: Server) -> str:
    return server.launch(LAUNCH_RUN, selector={**REPOSITORY, "jobName": "live_bronze_orders"})


def test_launches_run_one_after_the_other(ran: Scene):
    """The second leaves the queue when the first has ended; a run that writes no table waits for neither."""
    first, second, looked = ran.launches
    assert second.left_queue >= first.ended
    assert looked.left_queue < second.ended, "it was asked for last, and either of them was under way"


def test_live_writes_leave_the_queue_first(ran: Scene):
    """Of what waits, whatever was asked for before."""
    assert ran.live.left_queue < ran.ordinary.left_queue


def test_a_launch_that_waits_is_stopped_and_seen(ran: Scene):
    """It is taken from the queue, and a requested backfill starts no run; the table has what was published."""
    assert [one["ended"] for one in ran.stopped] == [True]
    assert (ran.backfill.status, ran.backfill.run_ids) == ("CANCELED", {})
    assert (ran.status["state"], ran.status["by_state"]["published"]) == ("STOPPED", len(DAYS))


def test_alerts_look_at_the_same_history(ran: Scene, world: World, monkeypatch: pytest.MonkeyPatch):
    """A run that fails is told at the next tick."""
    del ran
    with receiving() as receiver, world.here() as lake:
        monkeypatch.setenv(ALERTS_URL, receiver.url)
        alerts, cursor = lake.definitions.resolve_sensor_def("alerts"), None
        for why in (None, "The disk is full."):
            if why:
                job = lake.definitions.resolve_job_def("launch_bronze_orders")
                run = lake.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
                lake.instance.report_run_failed(run, why)
            cursor = alerts.evaluate_tick(dg.build_sensor_context(lake.instance, cursor=cursor)).cursor
    assert [body["subject"] for body in receiver.bodies if body["kind"] == "run_failed"] == [run.run_id]
