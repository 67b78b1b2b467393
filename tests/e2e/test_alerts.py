"""Dagster's own daemon looks, and posts what it finds to a real HTTP server: nobody has to have a page open."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from tests.e2e.server import serving
from tests.e2e.world import new_world
from tests.support.alert_receiver import Receiver, receiving
from tests.support.launching import key_of

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120
SILENT_AFTER = 900


@pytest.mark.prove
def test_the_daemon_tells_of_a_silent_stream_and_a_failed_run(tmp_path: Path):
    """A stream of which nothing will not have been heard for as long as its spec says, and a run that fails while the daemon looks."""
    with receiving() as receiver:
        world = new_world(tmp_path / "world")
        world = replace(world, settings={"LAKEHOUSE_ALERTS_URL": receiver.url})
        with world.here() as lake:
            heard = dg.AssetMaterialization(key_of("bronze/orders_live"), metadata={"last_batch": 7})
            lake.instance.report_runless_asset_event(heard)
            age_events(lake.instance, SILENT_AFTER - 55)  # it is told within that time
            with serving(world):
                wait_for(receiver, "stream_silent")
                job = lake.definitions.resolve_job_def("launch_bronze_orders")
                run = lake.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
                lake.instance.report_run_failed(run, "The disk is full.")
                wait_for(receiver, "run_failed")
    (silent,) = [body for body in receiver.bodies if body["kind"] == "stream_silent"]
    assert (silent["table"], silent["state"]) == ("bronze/orders", "open")
    (failed,) = [body for body in receiver.bodies if body["subject"] == run.run_id]
    assert "The disk is full." in failed["what"]
    assert len(set(receiver.keys)) == len(receiver.keys)


def age_events(instance: dg.DagsterInstance, seconds: float) -> None:
    """Let the newest batch have been told of some time ago."""
    import sqlalchemy as sa

    storage = instance.event_log_storage
    with storage.index_connection() as db:
        for number, body in db.execute(sa.text("SELECT id, event FROM event_logs")).all():
            stamp = body.partition('"timestamp": ')[2].partition(",")[0]
            aged = body.replace(f'"timestamp": {stamp}', f'"timestamp": {float(stamp) - seconds}')
            db.execute(sa.text("UPDATE event_logs SET event = :event WHERE id = :id"), {"event": aged, "id": number})
        for key, body in db.execute(sa.text("SELECT asset_key, last_materialization FROM asset_keys")).all():
            stamp = body.partition('"timestamp": ')[2].partition(",")[0]
            aged = body.replace(f'"timestamp": {stamp}', f'"timestamp": {float(stamp) - seconds}')
            where = {"event": aged, "key": key}
            db.execute(sa.text("UPDATE asset_keys SET last_materialization = :event WHERE asset_key = :key"), where)


def wait_for(receiver: Receiver, kind: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not any(body["kind"] == kind for body in receiver.bodies):
        assert time.monotonic() < until, receiver.bodies
        time.sleep(0.2)
