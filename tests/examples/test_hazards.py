"""`python -m examples.hazards`: each hazard leaves wrong rows as people do it, and none the safe way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pytest
from click.testing import CliRunner

from examples.hazards import __main__ as story
from examples.hazards.shop import NOW, Shop, Wrong, wrong_rows

SEED = 2023
CLONE = Path(__file__).parents[2]
AS_PEOPLE_DO_IT = {
    "collision": {"append": {"extra"}, "overwrite_first": {"extra"}, "overwrite_last": {"lost", "old"}},
    "retry": {"append_again": {"extra"}},
    "overwhelmed": {"all_at_once": {"lost"}},
    "boundary": {"inclusive": {"extra"}, "other_zone": {"lost"}},
}
"""How the rows of each case are wrong."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The command, in a process of its own, in a folder of its own."""
    folder = tmp_path_factory.mktemp("shop") / "hazards"
    environment = {**os.environ, "SPARK_DRIVER_MEMORY": "1g"}
    command = [sys.executable, "-m", "examples.hazards", "--seed", str(SEED), "--json", str(folder)]
    done = subprocess.run(command, cwd=CLONE, env=environment, capture_output=True, text=True, check=False, timeout=600)
    return folder, done


@pytest.fixture(scope="module")
def report(ran: tuple[Path, subprocess.CompletedProcess[str]]) -> dict[str, Any]:
    assert ran[1].returncode == 0, ran[1].stdout[-3000:] + ran[1].stderr[-3000:]
    return json.loads(ran[1].stdout)


@pytest.mark.e2e
@pytest.mark.prove
def test_each_hazard_leaves_wrong_rows(report: dict[str, Any]):
    """As people do it every case leaves rows that are too many, lost or old, in just the way that its story says."""
    found = {
        hazard: {
            case: {kind for kind in ("extra", "lost", "old") if outcome["wrong"][kind]}
            for case, outcome in cases.items()
            if case != "safe"
        }
        for hazard, cases in report["hazards"].items()
    }
    assert found == AS_PEOPLE_DO_IT


@pytest.mark.e2e
@pytest.mark.prove
def test_the_safe_way_leaves_none(report: dict[str, Any]):
    """With this project's parts no row is wrong, and each did what its story says: the exit code is 0."""
    safe = {hazard: cases["safe"] for hazard, cases in report["hazards"].items()}
    assert {hazard: outcome["wrong"]["rows"] for hazard, outcome in safe.items()} == dict.fromkeys(AS_PEOPLE_DO_IT, 0)
    assert report["passed"]
    assert safe["collision"]["facts"] == {"published": 5, "left_out": 2, "folded": 5}
    assert safe["retry"]["facts"] == {"committed": 2, "left_out": 4}
    assert safe["boundary"]["facts"] == {"published": 1, "naive_instants_refused": 1}


@pytest.mark.e2e
@pytest.mark.prove
def test_a_source_is_read_by_no_more_tasks_than_cores(report: dict[str, Any]):
    """The service sees all readers at once when people ask, and at most two, Spark's cores, when we do; it refuses none of these."""
    cases = report["hazards"]["overwhelmed"]
    assert cases["all_at_once"]["facts"]["refused"] > 0
    assert cases["all_at_once"]["facts"]["peak"] > cases["all_at_once"]["facts"]["served_at_most"]
    assert (cases["safe"]["facts"]["refused"], cases["safe"]["facts"]["peak"] <= 2) == (0, True)


@pytest.mark.e2e
@pytest.mark.prove
def test_another_reader_sees_the_same(ran: tuple[Path, subprocess.CompletedProcess[str]], report: dict[str, Any]):
    """Read with delta-rs, the tables that are left behind have as many rows too many, or too few, as the report says."""
    orders = Counter(order["order_id"] for order in Shop.of(SEED).as_of(NOW))
    for hazard in ("collision", "retry", "boundary"):
        for case, outcome in report["hazards"][hazard].items():
            table = deltalake.DeltaTable(str(ran[0] / hazard / case / "tables" / "orders"))
            rows = Counter(table.to_pyarrow_table(columns=["order_id"])["order_id"].to_pylist())
            found = ((rows - orders).total(), (orders - rows).total())
            assert found == (outcome["wrong"]["extra"], outcome["wrong"]["lost"]), (hazard, case)


def order(number: int, **changes: Any) -> dict[str, Any]:
    """One order as the shop knows it."""
    at = datetime(2025, 12, 30, tzinfo=UTC)
    return {
        "order_id": number,
        "customer_id": 1,
        "ordered_at": at,
        "amount": "1.00",
        "currency": "EUR",
        "status": "paid",
        "updated_at": at,
    } | changes


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        pytest.param([order(1), order(2)], Wrong(0, 0, 0), id="the truth"),
        pytest.param([order(1), order(1), order(2)], Wrong(1, 0, 0), id="twice"),
        pytest.param([order(2)], Wrong(0, 1, 0), id="lost"),
        pytest.param([order(1, status="pending"), order(2)], Wrong(0, 0, 1), id="old"),
        pytest.param([order(1, status="pending"), order(1), order(2)], Wrong(1, 0, 0), id="old beside new"),
        pytest.param([order(1, status="pending"), order(1, status="new"), order(2)], Wrong(1, 0, 1), id="old twice"),
        pytest.param([order(1), order(2), order(3)], Wrong(1, 0, 0), id="never ordered"),
        pytest.param([], Wrong(0, 2, 0), id="nothing"),
    ],
)
def test_wrong_rows_are_counted_by_order(table: list[dict[str, Any]], wrong: Wrong):
    """Each order should have one row, the newest: more are extra, none is lost, another one is old."""
    micros = int(datetime(2025, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000
    as_read = [{**row, "ordered_at": micros, "updated_at": micros} for row in table]
    assert wrong_rows([order(1), order(2)], as_read) == wrong


def test_a_hazard_that_does_no_harm_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The exit code is 1 if a case of people's leaves no wrong row, if the safe way leaves one, or if a case is missing."""
    right = {"rows": 0, "extra": 0, "lost": 0, "old": 0}
    wrong = {**right, "rows": 3, "lost": 3}
    facts = dict.fromkeys(
        ("published", "left_out", "folded", "committed", "chunks", "days", "refused", "peak", "served_at_most"), 4
    )
    as_it_should = [
        story.Result(hazard.name, case, right if case == "safe" else wrong, facts)
        for hazard in story.HAZARDS
        for case in (*hazard.cases, "safe")
    ]

    def exit_code(results: list[story.Result], *flags: str) -> int:
        monkeypatch.setattr(story, "_results", lambda *_: iter(results))
        return CliRunner().invoke(story.hazards, [str(tmp_path / "hazards"), *flags]).exit_code

    assert (exit_code(as_it_should), exit_code(as_it_should, "--json")) == (0, 0)
    assert exit_code(as_it_should[1:]) == 1
    for place, result in enumerate(as_it_should):
        other = story.Result(result.hazard, result.case, wrong if result.wrong is right else right, facts)
        assert exit_code([*as_it_should[:place], other, *as_it_should[place + 1 :]]) == 1, other


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path):
    """A folder that the example did not make is not deleted: the exit code is 2."""
    (tmp_path / "diary.txt").write_text("mine")
    ran = CliRunner().invoke(story.hazards, [str(tmp_path)])
    assert ran.exit_code == 2
    assert "holds files that this example did not make." in ran.stderr
    assert (tmp_path / "diary.txt").read_text() == "mine"
