"""A launch that is killed at any point leaves every partition old or new, and the next launch finishes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.killed import POINTS, UNDONE
from tests.e2e.world import MODULE, ORDERS, ROOT, World, expected, new_world, shop_orders
from tests.support.launching import Ran

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = ("2023-01-01", "2023-01-02", "2023-01-03", "2023-01-04")
FIRST_CHUNK, SECOND_CHUNK = DAYS[:2], DAYS[2:]
COMMITTED = ("before_it_is_verified", "after_the_commit", "after_the_event")
"""Points at which the second chunk is in the table."""

CHUNKS = {"max_partitions_per_chunk": 2}


@dataclass(frozen=True)
class Killed:
    """A lakehouse right after a launch was killed, and after the next launch."""

    point: str
    content_then: dict[str, Any]
    shown_then: dict[str, str]
    versions_then: int
    files_then: dict[str, set[str]]
    killed_run: Ran
    next_run: Ran
    content_now: Any
    files_now: dict[str, set[str]]
    shown_now: dict[str, str]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> World:
    """Four days are in the table, in their old version."""
    world = new_world(tmp_path_factory.mktemp("loaded"))
    for day in DAYS:
        world.export(day, shop_orders(day, status="old"))
    with world.here() as lake:
        assert lake.launch(DAYS[0], DAYS[-1], **CHUNKS).succeeded
    return world


GATE = ("during_the_write",)
"""The point of the gate: some of the files are there. `make prove` kills at all of them."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(point, marks=[] if point in GATE else [pytest.mark.prove]) for point in POINTS],
)
def killed(request: pytest.FixtureRequest, loaded: World, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """All four days change at the source; a launch in two chunks is killed in the second; the next asks for what is missing."""
    point = request.param
    world = loaded.copy(tmp_path_factory.mktemp(point))
    for day in DAYS:
        world.export(day, shop_orders(day, 4, status="new"))
    command = [
        "asset",
        "materialize",
        "-m",
        MODULE,
        "--select",
        'key:"bronze/orders"',
        "--partition-range",
        f"{DAYS[0]}...{DAYS[-1]}",
    ]
    config = json.dumps({"ops": {"bronze__orders": {"config": CHUNKS}}})
    kill(world, point, *command, "--config-json", config)
    with world.here() as lake:
        then = {day: world.content([day]) for day in DAYS}
        shown_then, files_then, versions_then = lake.shown(*DAYS), world.files(), versions(world)
        (newest,) = lake.instance.get_run_records(limit=1)
        killed_id = newest.dagster_run.run_id
        next_run = lake.launch(DAYS[0], DAYS[-1], only="MISSING", **CHUNKS)
        return Killed(
            point, then, shown_then, versions_then, files_then, lake.ran(killed_id), next_run,
            world.content(), world.files(), lake.shown(*DAYS),
        )  # fmt: skip


def kill(world: World, point: str, *command: str) -> None:
    """Run a command in a process that is killed at a point."""
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed.py")), point, *command],
        cwd=world.root,
        env={**world.environment, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr[-4000:]


def versions(world: World) -> int:
    return len(list((world.path() / "_delta_log").glob("*.json")))


def test_every_partition_is_old_or_new(killed: Killed):
    """After the kill another reader sees each partition either as it was or as it should become, and a chunk as one."""
    for day in FIRST_CHUNK:
        assert killed.content_then[day] == expected(day, count=4, status="new")
    new = {day: killed.content_then[day] == expected(day, count=4, status="new") for day in SECOND_CHUNK}
    old = {day: killed.content_then[day] == expected(day, status="old") for day in SECOND_CHUNK}
    if killed.point in COMMITTED:
        assert new == dict.fromkeys(SECOND_CHUNK, True)
    else:
        assert old == dict.fromkeys(SECOND_CHUNK, True)


def test_the_next_launch_finishes(killed: Killed):
    """The next launch makes the table equal its source, every partition green, and finds the killed run."""
    assert killed.next_run.succeeded, killed.next_run.failure
    assert killed.content_now == expected(*DAYS, count=4, status="new")
    assert killed.shown_now == dict.fromkeys(DAYS, "materialized")
    assert killed.next_run.verdicts() == dict.fromkeys(DAYS, True)
    assert killed.killed_run.run.status.value == "FAILURE"


def test_what_was_published_is_not_written_again(killed: Killed):
    """The next launch writes only what the killed one did not publish."""
    done = [*FIRST_CHUNK, *(SECOND_CHUNK if killed.point in COMMITTED else [])]
    assert {day: killed.files_now[day] for day in done} == {day: killed.files_then[day] for day in done}
    if killed.point not in COMMITTED:
        assert not killed.files_now[DAYS[-1]] & killed.files_then[DAYS[-1]]


def test_dagster_hears_of_every_chunk(killed: Killed):
    """A killed run's chunks are in Dagster's history; one that was committed but not told is recorded from its receipt."""
    told = [*FIRST_CHUNK, *(SECOND_CHUNK if killed.point == "after_the_event" else [])]
    assert killed.killed_run.recorded(ORDERS) == told
    from_receipts = [m.partition for m in killed.next_run.materializations(ORDERS) if "recorded_from" in m.metadata]
    assert from_receipts == (list(SECOND_CHUNK) if killed.point == "after_the_commit" else [])


@pytest.mark.prove
def test_an_undo_is_killed_after_its_commit(loaded: World, tmp_path_factory: pytest.TempPathFactory):
    """What it put back is there; the next launch finds it dead and tells Dagster; begun again, it puts back the rest."""
    world = loaded.copy(tmp_path_factory.mktemp(UNDONE))
    for day in DAYS:
        world.export(day, shop_orders(day, 4, status="new"))
    with world.here() as lake:
        bad = lake.launch(DAYS[0], DAYS[-1], **CHUNKS)
    was = versions(world)
    kill(world, UNDONE, "undo", bad.run.run_id)

    assert versions(world) == was + 1
    back, rest = SECOND_CHUNK, FIRST_CHUNK  # what was made last goes first
    half = expected(*back, status="old") + expected(*rest, count=4, status="new")
    assert world.content() == half
    with world.here() as lake:
        (undo,) = lake.instance.get_run_records(limit=1)
        assert lake.shown_of_check(*DAYS) == dict.fromkeys(DAYS, "succeeded"), "nobody has told"
        told = lake.launch(rest[0], only="MISSING")
        assert "put back 2 partitions" in told.log
        assert lake.ran(undo.dagster_run.run_id).run.status.value == "FAILURE"
        assert lake.shown_of_check(*DAYS) == dict.fromkeys(back, "missing") | dict.fromkeys(rest, "succeeded")
        assert world.content() == half
        assert lake.undo(bad.run.run_id).succeeded
    assert world.content() == expected(*DAYS, status="old")
