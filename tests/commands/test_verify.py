"""`verify`: whatever happened to a table's rows since they were published is noticed by another reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.commands.places import Place, below, copied, new_place
from tests.support.launching import ORDERS
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 8)]


@pytest.fixture(scope="module")
def at_first(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    place = new_place(tmp_path_factory.mktemp("place"))
    for day in DAYS:
        place.lake.export(day, [*orders(day, 4), {**orders(day, 5)[4], "customer": ""}])
    assert place.lake.launch(DAYS[0], DAYS[-1]).succeeded
    return place


@pytest.fixture
def place(at_first: Place, tmp_path: Path) -> Place:
    return copied(at_first, tmp_path)


def verify(place: Place, *more: str) -> tuple[int, Any]:
    result = place.run("verify", ORDERS, "--json", *more)
    return result.exit_code, json.loads(result.stdout) if result.exit_code < 2 else " ".join(result.stderr.split())


def change(place: Place, day: str, how: Any) -> None:
    """Replace the rows of a day with others, as somebody with a tool of their own."""
    table = deltalake.DeltaTable(str(place.lake.path()))
    whole = table.to_pyarrow_table()
    rows = [row for row in whole.to_pylist() if str(row["dt"]) == day]
    table.delete(f"dt = '{day}'")
    deltalake.write_deltalake(table, pa.Table.from_pylist(how(rows), schema=whole.schema), mode="append")


def swapped(rows: list[Any]) -> list[Any]:
    """Two values of a column change places: every column's own values, counts and sums are as they were."""
    first, second, *others = rows
    return [{**first, "customer": second["customer"]}, {**second, "customer": first["customer"]}, *others]


DAMAGES = [
    lambda rows: [{**rows[0], "customer": "someone else"}, *rows[1:]],
    lambda rows: rows[1:],
    lambda rows: [*rows, rows[0]],
    lambda rows: [{**row, "customer": row["customer"] or None} for row in rows],
    swapped,
]
"""One value; a row lost; a row doubled; NULL for ''; two values that changed places."""


def test_every_changed_partition_is_found(place):
    """Nothing differs at first; then exactly the changed days do, and only days of the range are looked at."""
    before = below(place.lake.root)
    assert verify(place) == (0, {"table": ORDERS, "version": 1, "verified": 7, "holds": True, "differing": []})
    assert below(place.lake.root) == before
    for day, damage in zip(DAYS, DAMAGES, strict=False):
        change(place, day, damage)
    code, found = verify(place)
    assert (code, found["verified"], found["holds"]) == (1, 7, False)
    assert [one["partition"] for one in found["differing"]] == DAYS[: len(DAMAGES)]
    assert [one["rows_now"] - one["rows_published"] for one in found["differing"]] == [0, -1, 1, 0, 0]
    assert verify(place, "--partition-range", f"{DAYS[5]}...{DAYS[6]}")[0] == 0


@pytest.mark.prove
def test_restored_partition_holds_what_was_restored(place):
    """An undo has a receipt too; a day without any receipt is named, and makes the exit code 1."""
    place.lake.export(DAYS[1], orders(DAYS[1], 6))
    assert place.lake.undo(place.lake.launch(DAYS[1]).run.run_id).succeeded
    assert verify(place)[0] == 0
    code, found = verify(place, "--partition-range", f"{DAYS[6]}...2024-01-08")
    assert (code, [(one["partition"], one["why"]) for one in found["differing"]]) == (
        1,
        [("2024-01-08", "it has no receipt")],
    )


@pytest.mark.prove
def test_receipts_outlive_the_log(place):
    """Once Delta has cleaned the log, the receipts in `<table>_history` say what was published."""
    place.lake.export(DAYS[1], orders(DAYS[1], 6))
    assert place.lake.launch(DAYS[1]).succeeded
    table = deltalake.DeltaTable(str(place.lake.path()))
    table.create_checkpoint()
    for commit in sorted((place.lake.path() / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert verify(place)[1]["verified"] == 7
    change(place, DAYS[0], swapped)
    assert [one["partition"] for one in verify(place)[1]["differing"]] == DAYS[:1]


@pytest.mark.prove
def test_table_that_cannot_be_read_is_an_error(place):
    """A file that is cut off, no table, and a table without a receipt: each says so, and no partition holds."""
    (data,) = place.lake.path().glob(f"dt={DAYS[1]}/*.parquet")
    data.write_bytes(data.read_bytes()[:-20])
    code, said = verify(place)
    assert (code, f"delta-rs cannot read the table at `{place.lake.path()}`" in said) == (2, True), said
    whole = deltalake.DeltaTable(str(place.lake.path())).schema()
    place.lake.path().rename(place.lake.root / "unmounted")
    code, said = verify(place)
    assert (code, "delta-rs cannot read the table" in said) == (2, True), said
    deltalake.DeltaTable.create(str(place.lake.path()), whole, partition_by=["dt"])
    code, said = verify(place)
    assert (code, f"No partition of `{ORDERS}` has a receipt." in said) == (2, True), said


MODULE = """
from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.support.shop import orders_spec

defs = lakehouse_definitions(build_lakehouse_table(orders_spec()), lakehouse=Lakehouse(root="ROOT"))
"""


@pytest.mark.prove
def test_verify_needs_no_java(place, tmp_path):
    """In a process of its own that would find none."""
    (tmp_path / "a_shop.py").write_text(MODULE.replace("ROOT", str(place.lake.root)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "JAVA"))}
    environment |= {"JAVA_HOME": "/nowhere", "PATH": "/nowhere", "DAGSTER_HOME": str(place.home)}
    environment["PYTHONPATH"] = f"{tmp_path}:{Path(__file__).parents[2]}"
    command = [sys.executable, "-m", "backfill_assets.cli", "verify", ORDERS, "--json", "--definitions", "a_shop"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verified"] == len(DAYS)
