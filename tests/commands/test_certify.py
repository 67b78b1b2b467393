"""`certify` and `verify`: whatever happens to a table afterwards is noticed, by Spark and by another reader alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from backfill_assets.core.history.certificate import certificate_from_json
from tests.commands.places import Place, below, copied, new_place
from tests.support.launching import ORDERS, TOTALS
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


@pytest.fixture
def file(place, tmp_path) -> Path:
    """A certificate of all days."""
    made = place.run("certify", ORDERS, "-o", str(tmp_path / "orders.json"))
    assert made.exit_code == 0, made.output
    return tmp_path / "orders.json"


def verify(place: Place, file: Path, *more: str) -> tuple[int, Any]:
    result = place.run("verify", str(file), "--json", *more)
    return result.exit_code, json.loads(result.stdout) if result.exit_code < 2 else result.stderr


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


def test_both_readers_notice_the_same(place, file):
    """Nothing differs at first; then exactly the changed days do, whatever was changed, for Spark and for delta-rs."""
    before = below(place.lake.root)
    for reader in ((), ("--delta-rs",)):
        assert verify(place, file, *reader)[1]["holds"]
    assert below(place.lake.root) == before
    for day, damage in zip(DAYS, DAMAGES, strict=False):
        change(place, day, damage)
    for reader in ((), ("--delta-rs",)):
        code, found = verify(place, file, *reader)
        assert (code, [one["partition"] for one in found["differing"]]) == (1, DAYS[: len(DAMAGES)])
        assert found["verified"] == len(DAYS)
    assert "somebody else wrote it in version" in verify(place, file)[1]["differing"][0]["why"]


@pytest.mark.drawn
def test_what_is_not_as_published_is_not_certified(place):
    """A day that somebody changed, one that was taken back, one that was never published: named, and left out."""
    change(place, DAYS[0], DAMAGES[0])
    place.lake.export(DAYS[1], orders(DAYS[1], 4))
    assert place.lake.undo(place.lake.launch(DAYS[1]).run.run_id).succeeded
    made = place.run("certify", ORDERS, "--partition-range", f"{DAYS[0]}...2024-01-08")
    assert made.exit_code == 1
    assert [entry["partition"] for entry in json.loads(made.stdout)["entries"]] == DAYS[2:]
    for said in (
        f"{DAYS[0]}, it does not hold what its receipt names",
        f"{DAYS[1]}, its newest publish was taken back",
        "2024-01-08, it was never published",
    ):
        assert said in " ".join(made.stderr.split())


def test_a_table_without_a_publish_is_not_certified(tmp_path):
    """Whoever asks whether every partition is certified is not told so of none."""
    made = new_place(tmp_path).run("certify", ORDERS)
    assert (made.exit_code, made.stdout) == (2, ""), made.output
    assert f"Nothing of `{ORDERS}` is published, so there is nothing to certify." in made.stderr


def test_an_empty_certificate_is_neither_written_nor_believed(place, file):
    """Where the lakehouse is not mounted, the one that is there stays, and none of its partitions is called taken back."""
    good, moved = file.read_text(), place.lake.path().rename(place.lake.root / "unmounted")
    made = place.run("certify", ORDERS, "--partition-range", f"{DAYS[0]}...{DAYS[-1]}", "-o", str(file))
    assert (made.exit_code, file.read_text()) == (2, good)
    code, said = verify(place, file)
    assert (code, "There is no table at" in said) == (2, True)
    moved.rename(place.lake.path())
    assert verify(place, file)[0] == 0
    made = certificate_from_json(good, "it")
    file.write_text(replace(made, entries=()).to_json())
    code, said = verify(place, file)
    assert (code, "it certifies nothing" in said) == (2, True)


def test_of_what_cannot_be_certified_at_all_no_file_is_made(place, file):
    """Each partition of the range was changed: it says why, and the file that is there stays as it is."""
    good = file.read_text()
    change(place, DAYS[0], DAMAGES[0])
    made = place.run("certify", ORDERS, "--partition-range", f"{DAYS[0]}...{DAYS[0]}", "-o", str(file))
    assert (made.exit_code, file.read_text()) == (2, good)
    assert "it does not hold what its receipt names" in " ".join(made.stderr.split())


def test_a_certificate_that_was_changed_does_not_hold(place, file):
    """A changed entry, one taken away in the middle or at the end, another head: each is said, with its place."""
    whole = json.loads(file.read_text())
    changed = json.loads(file.read_text())
    changed["entries"][1]["rows"] += 1
    for body, said in (
        (changed, f"the entry of {DAYS[1]} was changed"),
        ({**whole, "entries": whole["entries"][:1] + whole["entries"][2:]}, f"the entry of {DAYS[2]} was changed"),
        ({**whole, "entries": whole["entries"][:-1]}, "entries at its end were taken away"),
        ({**whole, "table": "silver/orders"}, "its head was changed"),
        ({"anything": 1}, "KeyError"),
    ):
        file.write_text(json.dumps(body))
        code, stderr = verify(place, file)
        assert (code, said in " ".join(stderr.split())) == (2, True), stderr


def test_whoever_has_the_table_needs_no_project(place, file, monkeypatch):
    """The certificate says what its checksums are of; of hours it does not say which they are."""
    monkeypatch.setattr("backfill_assets.commands.verify.Project.load", None)
    at = ("--path", str(place.lake.path()))
    assert verify(place, file, *at) == (0, {**verify(place, file, *at)[1], "holds": True, "reader": "delta-rs"})
    change(place, DAYS[2], DAMAGES[4])
    code, found = verify(place, file, *at)
    assert (code, [one["partition"] for one in found["differing"]]) == (1, [DAYS[2]])
    assert verify(place, file, "--path", str(file.parent / "nowhere"))[0] == 2
    made = certificate_from_json(file.read_text(), "")
    file.write_text(replace(made, entries=(replace(made.entries[0], partition="2024-01-01-00:00"),)).to_json())
    code, stderr = verify(place, file, *at)
    assert (code, "which hour of the table each is only its project says" in " ".join(stderr.split())) == (2, True)


@pytest.mark.drawn
def test_another_table_and_a_cut_off_file_are_said_in_words(place, file):
    """Whoever names the wrong folder is told which columns it lacks; of a file that is cut off, which table has it."""
    assert place.lake.launch(DAYS[0], tables=(TOTALS,)).succeeded
    other = place.lake.path(TOTALS)
    code, stderr = verify(place, file, "--path", str(other))
    assert (code, " ".join(stderr.split())) == (
        2,
        f"ConfigurationError The table at `{other}` has other columns than were certified: `order_id` is missing; `customer` is missing; "
        "`ordered_at` is missing; `amount` is `decimal(28,2)`, not `decimal(18,2)`. Nothing was read. Name the folder of the "
        "table that was certified. If its columns were changed since, make a new certificate.",
    )
    (data,) = place.lake.path().glob(f"dt={DAYS[1]}/*.parquet")
    data.write_bytes(data.read_bytes()[:-20])
    for reader in (("--delta-rs",), ("--path", str(place.lake.path()))):
        code, stderr = verify(place, file, *reader)
        assert (code, f"delta-rs cannot read the table at `{place.lake.path()}`" in " ".join(stderr.split())) == (
            2,
            True,
        )


MODULE = """
from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.support.shop import orders_spec

defs = lakehouse_definitions(build_lakehouse_table(orders_spec()), lakehouse=Lakehouse(root="ROOT"))
"""


@pytest.mark.prove
def test_another_reader_needs_no_java(place, file, tmp_path):
    """In a process of its own that would find none."""
    (tmp_path / "a_shop.py").write_text(MODULE.replace("ROOT", str(place.lake.root)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "JAVA"))}
    environment |= {"JAVA_HOME": "/nowhere", "PATH": "/nowhere", "DAGSTER_HOME": str(place.home)}
    environment["PYTHONPATH"] = f"{tmp_path}:{Path(__file__).parents[2]}"
    command = [sys.executable, "-m", "backfill_assets.cli", "verify", str(file), "--json"]
    for more in (("--delta-rs", "--definitions", "a_shop"), ("--path", str(place.lake.path()))):
        done = subprocess.run(
            [*command, *more], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["verified"] == len(DAYS)
