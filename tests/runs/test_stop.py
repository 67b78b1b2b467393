"""Which launches are stopped, and which are left to whoever can reach them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus

from backfill_assets.assets.factory import tables_of
from backfill_assets.runs import killed, stop
from backfill_assets.runs.stop import stop_launches
from tests.support.launching import ORDERS, TOTALS, Lake, key_of, new_lake
from tests.support.under_way import requested


@pytest.fixture
def lake(tmp_path) -> Lake:
    return new_lake(tmp_path)


@pytest.fixture
def sent(monkeypatch) -> list[tuple[int, int]]:
    """Signals that would have been sent."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(stop.os, "kill", lambda pid, number: found.append((pid, number)) if number else None)
    return found


def a_run(lake: Lake, table: str, status: dg.DagsterRunStatus, tags: dict[str, str] | None = None) -> dg.DagsterRun:
    """A launch of a table as Dagster has it, which nobody executes."""
    job = lake.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key_of(table)})
    run = lake.instance.create_run_for_job(job_def=job, asset_selection=job.asset_selection, status=status)
    lake.instance.add_run_tags(run.run_id, tags if tags is not None else killed.process_tags(run.run_id, os.getpid()))
    return run


def stopped(lake: Lake, wait_seconds: float = 0.0, project: str = ""):
    tables, _ = tables_of(lake.definitions)
    return stop_launches(lake.instance, tables[ORDERS], wait_seconds=wait_seconds, project=project)


def status_of(lake: Lake, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = lake.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def test_only_this_tables_process_is_stopped(lake):
    """Two launches are under way, each in a process: that of the table is interrupted, that of the other table goes on."""
    sleeps = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    ours, theirs = (subprocess.Popen(sleeps, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2))
    try:
        for table, process in ((ORDERS, ours), (TOTALS, theirs)):
            assert process.stdout is not None
            process.stdout.readline()  # its interpreter has started
            run = a_run(lake, table, dg.DagsterRunStatus.STARTED, {})
            lake.instance.add_run_tags(run.run_id, killed.process_tags(run.run_id, process.pid))
        assert len(stopped(lake)) == 1
        assert ours.wait(10) != 0
        assert theirs.poll() is None
    finally:
        for process in (ours, theirs):
            process.kill()
            process.communicate()


def test_another_projects_launch_is_not_stopped(lake, sent):
    """Two branches of one project have tables with the same keys in one Dagster."""
    a_run(lake, ORDERS, dg.DagsterRunStatus.STARTED)
    theirs = a_run(lake, ORDERS, dg.DagsterRunStatus.STARTED, {})
    killed.tag_with_process(lake.instance, theirs.run_id, "shop")
    assert theirs.run_id not in [one.launch_id for one in stopped(lake)]
    assert [one.launch_id for one in stopped(lake, project="shop")] == [theirs.run_id]
    assert [one.launch_id for one in stopped(lake, project="branch")] == []


def test_one_that_waits_is_taken_away(lake, sent):
    """It never begins; a launch of another table, and one that has ended, are not touched."""
    waiting = a_run(lake, ORDERS, dg.DagsterRunStatus.NOT_STARTED, {})
    other = a_run(lake, TOTALS, dg.DagsterRunStatus.NOT_STARTED, {})
    a_run(lake, ORDERS, dg.DagsterRunStatus.SUCCESS)
    assert [(one.launch_id, one.ended, one.said) for one in stopped(lake)] == [
        (waiting.run_id, True, "It had not begun.")
    ]
    assert (status_of(lake, waiting), status_of(lake, other)) == (
        dg.DagsterRunStatus.CANCELED,
        dg.DagsterRunStatus.NOT_STARTED,
    )
    assert sent == []


def test_one_in_a_process_of_this_machine_is_interrupted(lake, sent):
    """As by Ctrl-C, and Dagster knows that it was asked for; if it takes longer than was waited, that is said."""
    run = a_run(lake, ORDERS, dg.DagsterRunStatus.STARTED)
    (one,) = stopped(lake)
    assert sent == [(os.getpid(), signal.SIGINT)]
    assert (one.ended, status_of(lake, run)) == (False, dg.DagsterRunStatus.CANCELING)
    assert "has not ended yet" in one.said


def test_one_of_another_user_is_not_said_to_be_canceled(lake, monkeypatch):
    """No signal reaches it: were it said to end, everybody would take it for ended while it goes on; others are stopped all the same."""
    refused, ours = (a_run(lake, ORDERS, dg.DagsterRunStatus.STARTED) for _ in range(2))
    lake.instance.add_run_tags(refused.run_id, {killed.PID: "4711"})
    monkeypatch.setattr(
        stop.killed, "_start_of", lambda pid: lake.instance.get_run_by_id(ours.run_id).tags[killed.STARTED]
    )

    def kill(pid: int, _: int) -> None:
        if pid == 4711:
            raise PermissionError

    monkeypatch.setattr(stop.os, "kill", kill)
    told = {one.launch_id: (one.ended, one.said) for one in stopped(lake)}
    assert told[refused.run_id] == (
        False,
        "Its process, 4711, is another user's: stop it as that user, or terminate it in Dagster's UI.",
    )
    assert status_of(lake, refused) == dg.DagsterRunStatus.STARTED
    assert status_of(lake, ours) == dg.DagsterRunStatus.CANCELING


@pytest.mark.parametrize("tag", [killed.HOST, killed.BOOT, killed.NAMESPACE, killed.STARTED, killed.RUN])
def test_one_that_is_not_certainly_here_is_sent_nothing(lake, sent, tag):
    """Another host, a process id that came round again, or the tags of the run that it executes again: no signal."""
    run = a_run(lake, ORDERS, dg.DagsterRunStatus.STARTED)
    with_another = {**killed.process_tags(run.run_id, os.getpid()), tag: "another"}
    lake.instance.add_run_tags(run.run_id, with_another)
    assert killed.process_here(lake.instance.get_run_by_id(run.run_id)) is None
    if tag not in (killed.BOOT, killed.STARTED):  # those two are certainly gone, and reported as failed
        (one,) = stopped(lake)
        assert (one.ended, "on another machine" in one.said) == (False, True)
    assert sent == []


def test_requested_backfill_is_canceled(lake):
    """It has no run yet, and starts none; a backfill of another table goes on."""
    mine, other = requested(lake.instance, key_of(ORDERS), key_of(TOTALS)), requested(lake.instance, key_of(TOTALS))
    (one,) = stopped(lake)
    assert (one.launch_id, one.is_backfill, one.ended) == (mine, True, True)
    assert one.said == "It is canceled and starts no more runs of bronze/orders, silver/daily_totals."
    assert lake.instance.get_backfill(mine).status is BulkActionStatus.CANCELING
    assert lake.instance.get_backfill(other).status is BulkActionStatus.REQUESTED
