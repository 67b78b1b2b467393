"""Looking writes nothing: on a lakehouse where nothing was launched, every command and check that only looks leaves it as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from backfill_assets.assets.reconciliation import RECONCILIATION, RECONCILIATION_JOB, check_name
from tests.commands.places import Place, below, new_place
from tests.support.launching import ORDERS, TOTALS
from tests.support.shop import json_line, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY_1, DAY_2, DAY_3 = (f"2024-01-0{n}" for n in range(1, 4))
SPEC = {
    "latest_wins_by": ["ordered_at"],
    "live": {"path": "events", "starts": DAY_3},
    "once": {"ranges": {"orders_early": f"{DAY_1}...{DAY_2}"}},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Two days were exported and one event has landed; nothing was ever launched or written."""
    place = new_place(tmp_path_factory.mktemp("place"), **SPEC)
    for day in (DAY_1, DAY_2):
        place.lake.export(day, orders(day))
    events = place.lake.root / "landing/events"
    events.mkdir(parents=True)
    (events / "a.json").write_text("".join(f"{json_line(row)}\n" for row in orders(DAY_3)))
    return place


def run_job(place: Place, name: str) -> Any:
    with place.instance() as instance:
        result = place.lake.definitions.resolve_job_def(name).execute_in_process(
            instance=instance, raise_on_error=False
        )
    return {e.check_name: e.description for e in result.get_asset_check_evaluations()}


def told(place: Place, *arguments: str) -> Any:
    result = place.run(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


LOOKS: dict[str, tuple[Callable[[Place], Any], Any]] = {
    "fence": (
        lambda place: [told(place, "fence", ORDERS)[name] for name in ("fence", "epoch", "stream", "late_rows")],
        ["2024-01-03T00:00:00+00:00", 1, None, 0],
    ),
    "fence --carry-live-rows": (lambda place: told(place, "fence", ORDERS, "--carry-live-rows")["carried_rows"], 0),
    "once": (lambda place: [f["state"] for f in told(place, "once", ORDERS)["flows"]], ["never run"]),
    "once --reset": (lambda place: told(place, "once", ORDERS, "--reset", "all")["reset"], []),
    "schema": (lambda place: {c["table"] for c in told(place, "schema", ORDERS)["columns"]}, {""}),
    "plan": (
        lambda place: told(place, "plan", ORDERS, "--partition-range", f"{DAY_1}...{DAY_3}", "--only", "missing")[
            "counts"
        ],
        {"create": 2, "replace": 0, "identical": 0, "refused": 0, "left out": 1},
    ),
    "plan --deep": (
        lambda place: [
            p["rows"]
            for p in told(place, "plan", ORDERS, "--partition-range", f"{DAY_1}...{DAY_2}", "--deep")["partitions"]
        ],
        [3, 3],
    ),
    "reconcile": (
        lambda place: [(p["source_rows"], p["table_rows"]) for p in told(place, "reconcile", ORDERS)["partitions"]],
        [(3, 0), (3, 0)],
    ),
    "the check of each partition": (
        lambda place: (
            "2 of 2 partitions are not as they should be" in run_job(place, "reconcile_bronze_orders")["reconciled"]
        ),
        True,
    ),
    "the checks around the fence": (
        lambda place: run_job(place, "inspect_bronze_orders")["live_is_writing"],
        "No batch was ever written.",
    ),
    "the checks of whole tables": (
        lambda place: sorted(run_job(place, RECONCILIATION_JOB)),
        sorted([check_name(ORDERS), check_name(TOTALS)]),
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_looking_writes_nothing(place: Place, name: str):
    """It tells what there is, which is nothing; every byte below the root is the same before and after."""
    before = below(place.lake.root)
    look, expected = LOOKS[name]
    assert look(place) == expected
    assert below(place.lake.root) == before
    assert not (place.lake.root / "tables").exists()
    assert not place.elsewhere.exists()


@pytest.mark.prove
def test_one_table_is_reconciled_and_no_other(tmp_path):
    """`reconcile` judges its own table as a whole, and neither evaluates nor makes any other."""
    place = launched(tmp_path)

    compared = place.run("reconcile", ORDERS, "--json")
    assert compared.exit_code == 0, compared.output

    (whole,) = place.history(dg.AssetCheckKey(dg.AssetKey(RECONCILIATION), check_name(ORDERS)))
    assert whole.status.value == "SUCCEEDED"
    assert place.history(dg.AssetCheckKey(dg.AssetKey(RECONCILIATION), check_name(TOTALS))) == []
    assert not place.lake.path(TOTALS).exists()
    with place.instance() as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey(RECONCILIATION)) is None


def launched(root: Path) -> Place:
    """Return a place whose table of orders has two days, and no stream."""
    place = new_place(root)
    for day in (DAY_1, DAY_2):
        place.lake.export(day, orders(day))
    assert place.lake.launch(DAY_1, DAY_2).succeeded
    return place


LOOKS_AT_THE_LOG = [
    ("status",),
    ("gaps",),
    ("history", ORDERS),
    ("plan", ORDERS, "--partition-range", f"{DAY_1}...{DAY_3}"),
    ("fence", ORDERS),
    ("once", ORDERS),
    ("verify", ORDERS),
    ("version", "status"),
]


def test_looks_that_read_no_rows_start_no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each of them answers where there is no Java; what reads rows says that it starts Spark."""
    place = new_place(tmp_path, **SPEC)
    for day in (DAY_1, DAY_2):
        place.lake.export(day, orders(day))
    assert place.lake.launch(DAY_1, DAY_2).succeeded
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    for arguments in LOOKS_AT_THE_LOG:
        result = place.run(*arguments)
        assert result.exit_code in (0, 1), (arguments, result.output)
        assert "Java was not found" not in result.output, arguments
        assert "Starting Spark" not in result.stderr, arguments
    (of_orders,) = [one for one in told(place, "status", ORDERS)["tables"] if one["table"] == ORDERS]
    assert (of_orders["by_state"], of_orders["rows"]) == ({"published": 2}, 6)
    result = place.run("reconcile", ORDERS)
    assert (result.exit_code, "Starting Spark, to read rows" in result.stderr) == (2, True), result.output
    assert "Java was not found" in result.output
