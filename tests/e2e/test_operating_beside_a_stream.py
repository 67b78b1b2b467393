"""Planned, applied, taken back, stopped and resumed while a live stream writes the same table: nothing is lost or doubled."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backfill_assets.cli import main
from tests.e2e.commands_running import Process, batches, history, live_writer
from tests.e2e.new_year import DECEMBER, EXPORTED, LATE_DAYS, NEW_YEAR, OPEN_DAY, Landing, Reader, newest
from tests.e2e.world import ORDERS, SCHEMA, World, new_world, shop_orders
from tests.support.shop import multiset

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
    exports = {day: shop_orders(day, EXPORTED) for day in DECEMBER + LATE_DAYS}
    corrected = {day: shop_orders(day, EXPORTED + 2, status="corrected") for day in CORRECTED}
    for day, rows in exports.items():
        world.export(day, rows)
    allowed = {
        day: [newest(*rows), *([newest(*corrected[day])] if day in corrected else [])] for day, rows in exports.items()
    }
    landing = Landing(world.lakehouse / "landing/order_events", random.Random(7))
    landing.land([landing.line("open")])
    reader = Reader(world.path(), allowed)
    threads = [threading.Thread(target=side.run, daemon=True) for side in (landing, reader)]
    stream = live_writer(world)
    processes: list[Process] = [stream]
    try:
        for thread in threads:
            thread.start()
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
        assert world.content(CORRECTED) == sum((newest(*exports[day]) for day in CORRECTED), Counter())

        launched = history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=1, rewrite_identical=True)
        processes.append(launched)
        launched.wait_until(lambda: len(launched.said(r"Chunk \d+ of")) >= 2)
        (run,) = answer("stop", ORDERS)["runs"]
        assert run["ended"]
        assert launched.end() != 0
        resumed = answer("resume", ORDERS)
        assert resumed["failure"] is None
        done, rest = published_by(run["run_id"]), published_by(resumed["run_id"])
        assert sorted(done + rest) == DECEMBER, "a commit for each day: those that were left, and no other again"
        assert rest
        exports |= corrected
        stream.wait_until(lambda: len(batches(stream)) > before)

        landing.ended.set()
        threads[0].join()
        stream.wait_until(lambda: sum(map(sum, batches(stream).values())) >= landing.lines)
        stream.process.send_signal(signal.SIGINT)
        assert stream.end() == 0, stream.text()
        with world.here() as lake:
            assert lake.launch(DECEMBER[0], LATE_DAYS[-1], only="MISSING", may_find_nothing=True).succeeded
        answer("reconcile", ORDERS, "--partition-range", ALL)
    finally:
        landing.ended.set()
        reader.ended.set()
        for thread in threads:
            thread.join()
        for process in processes:
            process.kill()
    assert reader.wrong == []
    assert reader.reads > 5
    expected = multiset((row for day in (OPEN_DAY, *NEW_YEAR) for row in landing.rows.get(day, [])), SCHEMA.names)
    for day, rows in exports.items():
        expected += newest(*rows, *landing.rows.get(day, []))
    found = world.content()
    assert found - expected == Counter(), "rows that nobody exported or landed, or that came twice"
    assert expected - found == Counter(), "rows that were lost"
