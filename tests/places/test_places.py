"""The same launches, with the same outcome, wherever Spark runs: in the process, on a cluster, on a Connect server.

Each place is started once, and its story told once; the tests beneath look at what it left behind. `make prove`
tells the story on all of them; in the gate, the contracts run over a Connect session.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.places.servers import PLACES, ROOT, Place
from tests.places.stopping import Ui, ui
from tests.places.story import DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, DAYS, FIRST, LATER, SLOW, SLOW_ROWS
from tests.support.launching import ORDERS, TOTALS, Lake, new_lake
from tests.support.shop import content, multiset, orders, rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.prove]

THREE = ["customer 0", "customer 1", "customer 2"]


@dataclass
class Told:
    """What happened at a place, by scene, and a UI to go on with."""

    place: Place
    root: Path
    first: dict[str, Any]
    page: Ui

    @cached_property
    def scenes(self) -> dict[str, Any]:
        """The whole story, told to its end when somebody asks for it."""
        return {"first": self.first, **_happened(self.place, self.root, *LATER)}

    @property
    def lake(self) -> Lake:
        return self.page.lake

    def totals(self) -> dict[str, int]:
        """Orders by day in the table of totals, as delta-rs reads it."""
        return {str(row["day"]): row["orders"] for row in rows_in(self.lake.path(TOTALS))}

    def versions(self) -> int:
        return len(list((self.lake.path(TOTALS) / "_delta_log").glob("*.json")))


@pytest.fixture(scope="module")
def tell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Told]]:
    """Start a place and tell its story in one process, once; what was started ends with these tests."""
    with ExitStack() as ending:
        done: dict[str, Told] = {}

        def tell_once(name: str) -> Told:
            if name not in done:
                done[name] = _tell(ending, name, tmp_path_factory.mktemp(name))
            return done[name]

        yield tell_once


def _tell(ending: ExitStack, name: str, root: Path) -> Told:
    place = ending.enter_context(PLACES[name](root))
    first = _happened(place, root, *FIRST)["first"]
    return Told(place, root, first, ending.enter_context(ui(place, root, new_lake(root))))


def _happened(place: Place, root: Path, *scenes: str) -> dict[str, Any]:
    """Tell some scenes in one process at a place, and return what happened."""
    said = root / "story.json"
    process = subprocess.run(
        [sys.executable, "-m", "tests.places.story", str(root), str(said), *scenes],
        cwd=ROOT,
        env=place.environment(root, LAKEHOUSE_ROOT=str(root)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr[-6000:]
    return dict(json.loads(said.read_text()))


@pytest.fixture(params=list(PLACES))
def told(request: pytest.FixtureRequest, tell: Callable[[str], Told]) -> Told:
    return tell(request.param)


def test_a_launch_fills_the_tables(told: Told):
    """A launch publishes every day of both tables, each with one event and a green check."""
    first = told.first
    assert first["status"] == "SUCCESS", first["failure"]
    assert first["recorded"] == {ORDERS: list(DAYS), TOTALS: list(DAYS)}
    assert first["verdicts"] == dict.fromkeys(DAYS, True)
    assert first["customers"] == {**dict.fromkeys(DAYS[:4], THREE), DAY_5: [SLOW]}


def test_the_tables_equal_their_source(told: Told):
    """At the end another reader finds exactly the source's rows, and the totals that were made of the first ones."""
    assert told.scenes["reconciled"]["status"] == "SUCCESS"
    expected = [
        *orders(DAY_1), *orders(DAY_2, customer="corrected"), *orders(DAY_3, customer="mended"), *orders(DAY_4),
        *orders(DAY_5, SLOW_ROWS, customer=SLOW),
    ]  # fmt: skip
    assert content(told.lake.path()) == multiset(expected)
    assert told.totals() == {**dict.fromkeys(DAYS[:4], 3), DAY_5: SLOW_ROWS}


def test_only_what_the_source_changed_changes(told: Told):
    """A second launch writes the corrected day with its new rows, and finds all other good ones to be in the table."""
    again = told.scenes["again"]
    assert sorted(again["recorded"][ORDERS]) == [DAY_1, DAY_2, DAY_4, DAY_5]
    assert "Published 1 partitions; they had " in again["log"]
    assert "1 were published, and 3 are in the table already." in again["failure"]
    assert again["customers"] == {**told.scenes["first"]["customers"], DAY_2: ["corrected"]}


def test_a_bad_day_is_refused(told: Told):
    """A day that fails its audit keeps what it had; the run fails and names the day and its rows."""
    again = told.scenes["again"]
    assert again["status"] == "FAILURE"
    assert "1 of 5 partitions were refused (2024-01-03); the table keeps what it had there." in again["failure"]
    assert "keys_are_unique: 3 rows repeat a key (`order_id`)" in again["failure"]


def test_only_what_is_missing_is_written(told: Told):
    """With `only: MISSING` a launch writes the one day whose source differs from what was published."""
    mended = told.scenes["mended"]
    assert mended["status"] == "SUCCESS", mended["failure"]
    assert mended["customers"] == {**told.scenes["again"]["customers"], DAY_3: ["mended"]}
    assert "| 1 | 0 | 3 |" in mended["launch"]
    assert "**Left out:** 4" in mended["launch"]


def test_the_table_reconciles(told: Told):
    """Source and table, both read afresh, are equal in every day."""
    assert told.scenes["reconciled"]["verdicts"] == dict.fromkeys(DAYS, True)


@pytest.mark.parametrize("name", list(PLACES))
def test_a_stop_ends_sparks_jobs(tell: Callable[[str], Told], name: str):
    """A run that is stopped from the UI is canceled within seconds, its chunk in flight is absent, and those before are published."""
    told = tell(name)
    lake, page = told.lake, told.page
    stopped = page.launch(TOTALS, DAY_4, DAY_5, max_partitions_per_chunk=1)
    page.wait(stopped, lambda ran: ran.recorded(TOTALS) == [DAY_4])
    time.sleep(3)  # the slow job has begun
    version = told.versions()

    seconds = page.stop(stopped)

    ran = lake.ran(stopped)
    assert (ran.run.status.value, ran.recorded(TOTALS)) == ("CANCELED", [DAY_4]), ran.log
    assert "the one in flight is not in the table" in ran.log
    assert seconds < 20
    began = time.monotonic()
    again = page.launch(TOTALS, DAY_1, DAY_2, rewrite_identical=True)
    done = page.wait(again, lambda ran: ran.run.is_finished)
    assert done.succeeded, done.failure
    assert done.recorded(TOTALS) == [DAY_1, DAY_2]
    assert time.monotonic() - began < 90
    assert told.versions() == version + 1
    assert told.totals()[DAY_5] == SLOW_ROWS


def test_a_lost_executor_loses_nothing(tell: Callable[[str], Told]):
    """An executor that is killed in the middle of a launch is replaced; the launch ends with every chunk whole."""
    told = tell("standalone")
    before = content(told.lake.path(TOTALS), ("day", "orders", "amount"))
    run_id = told.page.launch(TOTALS, DAY_1, DAY_4, max_partitions_per_chunk=1)
    told.page.wait(run_id, lambda ran: bool(ran.recorded(TOTALS)))
    executor, *_ = psutil.Process(told.place.workers[0]).children()

    executor.kill()

    ran = told.page.wait(run_id, lambda ran: ran.run.is_finished)
    assert ran.succeeded, ran.failure
    assert ran.recorded(TOTALS) == [DAY_1, DAY_2, DAY_3, DAY_4]
    assert content(told.lake.path(TOTALS), ("day", "orders", "amount")) == before
