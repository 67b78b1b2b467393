"""`status`: how far the backfill of each table is, what runs, and what went wrong last."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from backfill_assets.runs.killed import process_tags
from tests.commands.places import Place, below, new_place
from tests.support.launching import ORDERS, TOTALS, key_of
from tests.support.shop import orders
from tests.support.under_way import requested

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 5)]
AT = "chunk 2 of 2 (1 partition): audit"


@pytest.fixture
def place(tmp_path) -> Place:
    """Four days at the source, and one history for launches and commands."""
    place = new_place(tmp_path)
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    place.lake.instance.dispose()
    return place


def status(place: Place) -> dict[str, Any]:
    result = place.run("status", "--json")
    assert result.exit_code == 0, result.output
    return {one["table"]: one for one in json.loads(result.stdout)["tables"]}


def launch(place: Place, first: str, last: str) -> Any:
    """Launch days of the orders, in the history that the commands have too."""
    with place.instance() as instance:
        place.lake.instance = instance
        return place.lake.launch(first, last)


def test_each_table_has_its_state_and_last_start(place):
    """One list: a table of which a day was launched, with when that began; and one that was never launched."""
    began = datetime.now(UTC).replace(microsecond=0)
    assert launch(place, DAYS[0], DAYS[0]).succeeded
    found = status(place)
    assert {key: one["state"] for key, one in found.items()} == {ORDERS: "PARTIAL", TOTALS: "NOT_STARTED"}
    assert began <= datetime.fromisoformat(found[ORDERS]["launch"]["began"]) <= datetime.now(UTC)
    assert found[ORDERS]["by_state"] == {"published": 1, "missing": 3}
    assert found[TOTALS]["launch"] is None


@pytest.mark.prove
def test_a_table_is_followed_from_nothing_to_complete(place):
    """Not started; partly, and what was refused is told; complete, and the other table with its own state beside it."""
    before = below(place.lake.root)
    assert {key: one["state"] for key, one in status(place).items()} == {ORDERS: "NOT_STARTED", TOTALS: "NOT_STARTED"}
    assert below(place.lake.root) == before

    ran = launch(place, DAYS[0], DAYS[1])
    found = status(place)[ORDERS]
    assert (found["state"], found["partitions"], found["by_state"]) == ("PARTIAL", 4, {"published": 2, "missing": 2})
    assert (found["rows"], found["launch"]["run_id"], found["launch"]["done"]) == (8, ran.run.run_id, 2)
    assert (found["launch"]["rows"], bool(found["launch"]["by"]), found["launch"]["seconds"] > 0) == (8, True, True)
    assert found["launch"]["rows_per_second"] == pytest.approx(8 / found["launch"]["seconds"], abs=0.1)

    place.lake.export(DAYS[2], orders(DAYS[2], 4, order_id=1))
    assert not launch(place, DAYS[2], DAYS[3]).succeeded
    found = status(place)[ORDERS]
    assert (found["state"], found["launch"]["standing"]) == ("FAILED", "failed")
    assert found["wrong"].startswith("refused at ")
    assert DAYS[2] in found["wrong"]

    place.lake.export(DAYS[2], orders(DAYS[2], 4))
    assert launch(place, DAYS[2], DAYS[3]).succeeded
    found = status(place)
    assert (found[ORDERS]["state"], found[ORDERS]["wrong"], found[TOTALS]["state"]) == (
        "COMPLETED",
        None,
        "NOT_STARTED",
    )
    assert "1 of 2 tables are backfilled" in place.run("status").stdout

    place.lake.changes = {"start": DAYS[1]}
    outside = "4 rows of `bronze/orders` lie in values that are no partition of it: `2024-01-01` (4)"
    assert status(place)[ORDERS]["wrong"].startswith(outside)
    ran = launch(place, DAYS[1], DAYS[1])
    assert outside in "".join(entry.user_message for entry in ran.entries if entry.level == logging.WARNING)
    reconciled = place.run("reconcile", ORDERS)
    assert (reconciled.exit_code, outside in " ".join(reconciled.stdout.split())) == (1, True)


@pytest.mark.prove
def test_a_launch_under_way_and_a_stopped_one(place):
    """What Dagster says of the newest launch is what counts; one that is under way says how long it has left."""
    ran = launch(place, DAYS[0], DAYS[1])
    with place.instance() as instance:
        for standing, state in (
            (dg.DagsterRunStatus.NOT_STARTED, "PENDING"),
            (dg.DagsterRunStatus.STARTED, "ACTIVE"),
            (dg.DagsterRunStatus.CANCELED, "STOPPED"),
        ):
            run = instance.get_run_by_id(ran.run.run_id)
            instance.run_storage.delete_run(run.run_id)
            instance.run_storage.add_run(
                run.with_status(standing).with_tags({**run.tags, ORDERS: f"1 of 2 published; {AT}"})
            )
            found = status(place)[ORDERS]
            assert found["state"] == state
            assert (found["seconds_left"] is not None) == (state == "ACTIVE")
            assert found["launch"]["step"] == (AT if state == "ACTIVE" else None)
            assert (AT in " ".join(place.run("status").stdout.split())) == (state == "ACTIVE")
        backfill_id = requested(instance, key_of(ORDERS))
        found = status(place)[ORDERS]
        assert (found["state"], found["launch"]["backfill_id"], found["launch"]["run_id"]) == (
            "PENDING",
            backfill_id,
            None,
        )


@pytest.mark.prove
def test_a_launch_that_was_killed_has_failed(place):
    """As long as its process lives it is under way; `kill -9` lets it tell nobody."""
    ran = launch(place, DAYS[0], DAYS[1])
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with place.instance() as instance:
        run = instance.get_run_by_id(ran.run.run_id)
        instance.run_storage.delete_run(run.run_id)
        tags = {**run.tags, **process_tags(run.run_id, process.pid)}
        instance.run_storage.add_run(run.with_status(dg.DagsterRunStatus.STARTED).with_tags(tags))
    assert status(place)[ORDERS]["state"] == "ACTIVE"
    process.kill()
    process.wait()
    found = status(place)[ORDERS]
    assert (found["state"], found["launch"]["standing"], found["by_state"]["published"]) == ("FAILED", "failed", 2)


@pytest.mark.prove
def test_it_is_looked_at_again_until_somebody_has_seen_enough(place, monkeypatch):
    """With `--watch`: what has changed meanwhile is shown."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt
        assert launch(place, DAYS[0], DAYS[-1]).succeeded

    monkeypatch.setattr("backfill_assets.commands.status.time", SimpleNamespace(sleep=sleep))
    shown = place.run("status", ORDERS, "--watch", "--every", "2").stdout
    assert shown.index("NOT_STARTED") < shown.index("COMPLETED")
    assert slept == [2.0, 2.0]


@pytest.mark.prove
def test_a_program_reads_a_line_a_look(place, monkeypatch):
    """`--watch --json` goes on too; each look is one JSON document in a line of its own."""

    def sleep(_: float) -> None:
        monkeypatch.setattr("backfill_assets.commands.status.time", SimpleNamespace(sleep=lambda _: sys.exit(0)))
        assert launch(place, DAYS[0], DAYS[0]).succeeded

    monkeypatch.setattr("backfill_assets.commands.status.time", SimpleNamespace(sleep=sleep))
    looks = [json.loads(line) for line in place.run("status", ORDERS, "--watch", "--json").stdout.splitlines()]
    assert [look["tables"][0]["state"] for look in looks] == ["NOT_STARTED", "PARTIAL"]


@pytest.mark.prove
def test_a_table_that_cannot_be_looked_at_says_why(place):
    """The others are shown all the same."""
    assert launch(place, DAYS[0], DAYS[3]).succeeded
    (place.lake.root / "landing/orders").rename(place.lake.root / "landing/away")
    found = status(place)
    assert (found[ORDERS]["state"], "landing/orders" in found[ORDERS]["wrong"]) == (None, True)
    assert found[TOTALS]["state"] == "NOT_STARTED"
