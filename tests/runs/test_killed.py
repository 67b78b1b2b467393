"""Which runs are taken for dead: those whose process is certainly gone, and no other."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.executor.child_process_executor import ChildProcessCommand, execute_child_process_command

from backfill_assets.runs import killed
from backfill_assets.runs.killed import BOOT, HOST, MACHINE, NAMESPACE, PID, RUN, STARTED
from tests.support.under_way import GONE, under_way


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an id, which not every container has."""
    here = killed._here()
    monkeypatch.setattr(killed, "_here", lambda: {**here, MACHINE: "m1"})


@pytest.mark.parametrize(
    ("pid", "tags", "is_dead"),
    [
        pytest.param(GONE, {}, True, id="gone"),
        pytest.param(os.getpid(), {}, False, id="lives"),
        pytest.param(os.getpid(), {STARTED: "1"}, True, id="its number has another process by now"),
        pytest.param(GONE, {HOST: "another"}, False, id="of another host"),
        pytest.param(GONE, {NAMESPACE: "pid:[1]"}, False, id="of another container on this host"),
        pytest.param(os.getpid(), {BOOT: "before"}, True, id="from before a restart"),
        pytest.param(GONE, {BOOT: "other", MACHINE: "m2"}, False, id="of another machine of this name"),
        pytest.param(GONE, {BOOT: "other", MACHINE: ""}, False, id="of a machine that is not known"),
        pytest.param(GONE, {RUN: "the run that this one repeats"}, False, id="tags of the run that it repeats"),
        pytest.param(GONE, {PID: ""}, False, id="without a process"),
    ],
)
def test_a_run_is_dead_if_its_process_is_certainly_gone(
    instance: dg.DagsterInstance, machine: None, pid: int, tags: dict[str, str], is_dead: bool
):
    """Each case of the table, and runs whose tags are not their own."""
    run_id = under_way(instance, pid, **tags)
    assert list(killed.report_dead(instance)) == ([run_id] if is_dead else [])
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status.value == ("FAILURE" if is_dead else "STARTED")


class PidOfRun(ChildProcessCommand):
    """What Dagster's executor runs in the process of a step."""

    def execute(self) -> Iterator[Any]:
        yield [killed.pid_of_run(), os.getpid()]


@pytest.mark.prove
def test_a_run_outlives_the_processes_of_its_steps():
    """With an executor that gives each step a process, the run lives in the one that has started them."""
    told = execute_child_process_command(multiprocessing.get_context("spawn"), PidOfRun())
    ((of_run, of_step),) = [one for one in told if isinstance(one, list)]
    assert of_run == os.getpid() == killed.pid_of_run() != of_step


@pytest.mark.prove
def test_a_run_is_not_its_code_server():
    """Which starts a process for each run, as a child: the run lives there, and is stopped there."""
    with multiprocessing.get_context("spawn").Pool(1) as server:
        assert server.apply(killed.pid_of_run) == server.apply(os.getpid)


def test_a_run_that_is_executed_again_has_nothing_done(instance: dg.DagsterInstance):
    """Dagster gives it the tags of the run before, which say how far that was with tables that it has not begun."""
    parent = {
        RUN: "before",
        "bronze/orders": "6 of 6 published",
        "bronze/items": "3 of 6 published; chunk 2 of 2: write",
    }
    run = instance.add_run(dg.DagsterRun(run_id="again", job_name="job", tags={**parent, "reason": "late files"}))
    killed.tag_with_process(instance, run.run_id, "shop")
    instance.add_run_tags(run.run_id, {"bronze/items": "1 of 6 published"})
    killed.tag_with_process(instance, run.run_id, "shop")  # by its next table
    tags = instance.get_run_by_id(run.run_id).tags
    assert (tags["bronze/orders"], tags["bronze/items"], tags["reason"]) == ("", "1 of 6 published", "late files")


def test_a_run_lives_as_long_as_its_process(instance: dg.DagsterInstance):
    """A process that sleeps is alive; killed, even before its parent has asked for its end, it is not."""
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    run_id = under_way(instance, process.pid)
    assert list(killed.report_dead(instance)) == []
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not waited for: a zombie
    assert list(killed.report_dead(instance)) == [run_id]
    process.wait()
