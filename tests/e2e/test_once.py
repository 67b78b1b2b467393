"""Once-flows as people run them: processes of their own, one killed half-way, two side by side on one table, and one too many."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.demo.registrations import registrations_of, write_registrations
from tests.e2e.world import BIN, MODULE, ROOT, World, new_world
from tests.support.launching import Ran
from tests.support.shop import opened, rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.prove]

TABLE, FLOW_2022, FLOW_2023 = (f"bronze/registration_events{year}" for year in ("", "_2022", "_2023"))
KILLED_AT, PER_CHUNK = "after_the_commit", 122
"""The kill comes in the second of three chunks: it is in the table, and Dagster has not heard of it."""


@dataclass(frozen=True)
class Story:
    """Flow 2022 was killed; it was launched again beside flow 2023; then it was launched once more."""

    world: World
    versions_when_killed: int
    resumed: Ran
    beside: Ran
    versions_when_done: int
    said_again: str
    versions_now: int
    listed: dict[str, Any]


def started(world: World, flow: str) -> subprocess.Popen[str]:
    command = [str(BIN / "dg"), "launch", "-m", MODULE, "--assets", f'key:"{flow}"']
    return subprocess.Popen(
        command, cwd=world.root, env=world.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, warm_server: dict[str, str]) -> Story:
    world = new_world(tmp_path_factory.mktemp("once"))
    write_registrations(
        world.lakehouse / "landing/registrations", first_day=date(2022, 1, 1), last_day=date(2023, 12, 31), seed=1
    )
    config = json.dumps(
        {"ops": {"bronze__registration_events_2022": {"config": {"max_partitions_per_chunk": PER_CHUNK}}}}
    )
    killed = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed.py")), KILLED_AT,
         "asset", "materialize", "-m", MODULE, "--select", f'key:"{FLOW_2022}"', "--config-json", config],
        cwd=world.root, env={**world.environment, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-4000:]
    versions_when_killed = opened(world.path(TABLE)).version()
    world = replace(world, settings=warm_server)

    both = [started(world, flow) for flow in (FLOW_2022, FLOW_2023)]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(text[-3000:] for text in said)
    versions_when_done = opened(world.path(TABLE)).version()
    again = started(world, FLOW_2022)
    said_again = again.communicate(timeout=300)[0]
    assert again.returncode == 0, said_again[-3000:]
    listed = world.run("backfill-assets", "once", TABLE, "--json")
    assert listed.returncode == 0, listed.stderr
    with world.here() as lake:
        runs = [lake.ran(record.dagster_run.run_id) for record in lake.instance.get_run_records()]
    resumed, beside = (next(ran for ran in reversed(runs) if ran.recorded(flow)) for flow in (FLOW_2022, FLOW_2023))
    return Story(
        world, versions_when_killed, resumed, beside, versions_when_done, said_again, opened(world.path(TABLE)).version(),
        json.loads(listed.stdout),
    )  # fmt: skip


def days_of(first: date, last: date) -> list[str]:
    return [str(first + timedelta(days=n)) for n in range((last - first).days + 1)]


def published_by(ran: Ran) -> list[str | None]:
    """The partitions that a run itself published, without those that it recorded for the run that was killed."""
    return [m.partition for m in ran.materializations(TABLE) if "recorded_from" not in m.metadata]


def test_a_killed_flow_goes_on_beside_another(story: Story):
    """Two chunks were published before the kill; the next run publishes the third, while another flow loads another year."""
    assert story.versions_when_killed == 2
    assert published_by(story.resumed) == days_of(date(2022, 1, 1), date(2022, 12, 31))[2 * PER_CHUNK :]
    assert published_by(story.beside) == days_of(date(2023, 1, 1), date(2023, 12, 31))
    assert story.versions_when_done == story.versions_when_killed + 2


def test_the_chunk_that_dagster_missed_is_recorded(story: Story):
    """A run that comes after the kill, whichever looks first, records every day of the killed chunk from its commit."""
    told = Counter(
        m.partition
        for ran in (story.resumed, story.beside)
        for m in ran.materializations(TABLE)
        if "recorded_from" in m.metadata
    )
    assert set(told) == set(days_of(date(2022, 1, 1), date(2022, 12, 31))[PER_CHUNK : 2 * PER_CHUNK])


def test_the_table_has_every_registration_once(story: Story):
    """Another reader finds the rows of both years, none lost and none doubled."""
    days = [date.fromisoformat(day) for day in days_of(date(2022, 1, 1), date(2023, 12, 31))]
    made = [row for day in days for row in registrations_of(day, seed=1)]
    expected = Counter(
        (row["registration_id"], row["attendee"], datetime.fromisoformat(row["registered_at"])) for row in made
    )
    found = rows_in(story.world.path(TABLE))
    assert (
        Counter((row["registration_id"], row["attendee"], row["registered_at"].astimezone(UTC)) for row in found)
        == expected
    )


def test_a_launch_too_many_makes_no_commit(story: Story):
    """`dg launch` of a flow that is done succeeds, says that nothing was written, and leaves the table's version alone."""
    assert story.versions_now == story.versions_when_done
    assert "It is done already: this run has written nothing." in story.said_again


def test_the_command_lists_what_happened(story: Story):
    """`backfill-assets once` says of each year whether it has run, with the run that ended it."""
    flows = {flow["name"]: flow for flow in story.listed["flows"]}
    assert {name: (flow["state"], flow["published"]) for name, flow in flows.items()} == {
        "registration_events_2022": ("done", 365),
        "registration_events_2023": ("done", 365),
        "registration_events_2024": ("never run", 0),
    }
    assert flows["registration_events_2022"]["run_id"] == story.resumed.run.run_id
