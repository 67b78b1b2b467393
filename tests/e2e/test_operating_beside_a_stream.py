"""Planned, applied, taken back, stopped and resumed while a live stream writes the same table: nothing is lost or doubled."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backfill_assets.cli import main
from tests.e2e.commands_running import batches, history, live_writer
from tests.e2e.new_year import DECEMBER, EXPORTED, LATE_DAYS, newest, turn_of_the_year
from tests.e2e.world import ORDERS, World, new_world, shop_orders

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.prove, pytest.mark.usefixtures("spark")]

CORRECTED = DECEMBER[2:4]
ALL = f"{DECEMBER[0]}...{LATE_DAYS[-1]}"


def answer(*words: str, code: int = 0) -> Any:
    """Run a command in this process, beside the stream's; return its answer."""
    result = CliRunner().invoke(main, [*words, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def planned_and_applied(world: World, days: list[str]) -> dict[str, Any]:
    file = str(world.root / "plan.json")
    made = answer("plan", ORDERS, "--partition-range", f"{days[0]}...{days[-1]}", "-o", file, "--reason", "new data")
    assert answer("apply", file)["succeeded"]
    return made


def published_by(run_id: str) -> list[str]:
    """The days that a run has published, of those for which nothing comes late; one as often as it has."""
    operations = answer("history", ORDERS, "--newest", "100000")["operations"]
    mine = [one for one in operations if (one["run_id"], one["what"]) == (run_id, "published")]
    return [day for one in mine for day in one["partitions"] if day in DECEMBER]


def test_every_operation_beside_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plan is applied, a correction applied and taken back, a launch stopped and resumed; the stream neither waits nor is lost."""
    world = new_world(tmp_path)
    for name in ("DAGSTER_HOME", "LAKEHOUSE_ROOT", "COLUMNS"):
        monkeypatch.setenv(name, world.environment[name])
    corrected = {day: shop_orders(day, EXPORTED + 2, status="corrected") for day in CORRECTED}
    with turn_of_the_year(world, corrected, random.Random(7)) as turn:
        stream = turn.started(live_writer(world))
        stream.wait_until(lambda: batches(stream))
        first = planned_and_applied(world, DECEMBER)
        assert {one["action"] for one in first["partitions"]} == {"create"}

        for day, rows in corrected.items():
            world.export(day, rows)
        second = planned_and_applied(world, DECEMBER)
        assert [one["partition"] for one in second["partitions"] if one["action"] == "replace"] == CORRECTED
        assert world.content(CORRECTED) == sum((newest(*rows) for rows in corrected.values()), Counter())
        before = len(batches(stream))
        answer("undo", second["id"], "--reason", "bad upstream")
        assert world.content(CORRECTED) == sum((newest(*turn.exports[day]) for day in CORRECTED), Counter())

        launched = history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=1, rewrite_identical=True)
        turn.started(launched)
        launched.wait_until(lambda: len(launched.said(r"Chunk \d+ of \d+ is version")) >= 2)
        (run,) = answer("stop", ORDERS)["runs"]
        assert run["ended"]
        assert launched.end() != 0
        resumed = answer("resume", ORDERS)
        assert resumed["failure"] is None
        done, rest = published_by(run["run_id"]), published_by(resumed["run_id"])
        assert sorted(done + rest) == DECEMBER, "a commit for each day: those that were left, and no other again"
        assert rest
        turn.exports |= corrected
        stream.wait_until(lambda: len(batches(stream)) > before)

        turn.land_no_more()
        stream.wait_until(lambda: sum(map(sum, batches(stream).values())) >= turn.landing.lines)
        stream.process.send_signal(signal.SIGINT)
        assert stream.end() == 0, stream.text()
        with world.here() as lake:
            assert lake.launch(DECEMBER[0], LATE_DAYS[-1], only="MISSING", may_find_nothing=True).succeeded
        answer("reconcile", ORDERS, "--partition-range", ALL)
    turn.check()
