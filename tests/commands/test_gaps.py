"""`gaps`: what is not as its source would make it is found without reading rows, and mended by the plan that it writes."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import deltalake
import pyarrow as pa
import pytest

from tests.commands.places import Place, below, new_place
from tests.support.launching import ORDERS, TOTALS
from tests.support.shop import folder_of, multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 8)]
OTHER = Decimal("9.99")


@pytest.fixture
def place(tmp_path) -> Place:
    """Seven days: one whose source has changed, one that somebody emptied, one taken back, two never launched."""
    place = new_place(tmp_path)
    lake = place.lake
    for day in DAYS[:-1]:
        lake.export(day, orders(day, 4))
    assert lake.launch(DAYS[0], DAYS[3]).succeeded
    lake.export(DAYS[1], orders(DAYS[1], 4, amount=OTHER))
    deltalake.DeltaTable(str(lake.path())).delete(f"dt = '{DAYS[2]}'")
    lake.export(DAYS[3], orders(DAYS[3], 4, amount=OTHER))
    assert lake.undo(lake.launch(DAYS[3]).run.run_id).succeeded
    return place


@pytest.mark.prove
def test_what_a_launch_would_refuse_is_named(place, tmp_path):
    """A day that has lost most of its rows at the source: the plan does the others, and says why that one stays a gap."""
    place.lake.export(DAYS[0], orders(DAYS[0], 1))
    why = f"{DAYS[0]} is not launched; when this was planned it would have been refused: "
    planned = place.run("gaps", ORDERS, "-o", str(tmp_path / "plan.json"))
    assert why in " ".join(planned.stderr.split())
    applied = place.run("apply", str(tmp_path / "plan.json"))
    assert applied.exit_code == 0, applied.output
    assert why in " ".join(applied.stdout.split())
    left = place.run("gaps", ORDERS, "--json")
    assert left.exit_code == 1
    assert [one["partition"] for one in json.loads(left.stdout)["tables"][0]["gaps"]] == [DAYS[0]]
    again = place.run("apply", str(tmp_path / "plan.json"), "--json")
    assert [said.startswith(why) for said in json.loads(again.stdout)["refused"]] == [True]


@pytest.mark.prove
def test_refused_days_are_no_mere_gaps(place):
    """A day that a launch has just refused says why: one that was never published, and one whose source is worse now."""
    for day in (DAYS[4], DAYS[5]):
        place.lake.export(day, orders(day, 4, order_id=1))
    place.lake.export(DAYS[0], orders(DAYS[0], 1))
    with place.instance() as instance:
        place.lake.instance = instance
        assert not place.lake.launch(DAYS[4], DAYS[5]).succeeded
        assert not place.lake.launch(DAYS[0], DAYS[0]).succeeded
    found = {
        one["partition"]: one for one in json.loads(place.run("gaps", ORDERS, "--json").stdout)["tables"][0]["gaps"]
    }
    assert re.match(r"refused on .* UTC: keys_are_unique: 3 rows repeat a key", found[DAYS[4]]["why"][0])
    assert re.match(
        r"differs from its source, and was refused on .* UTC: partition_does_not_shrink: ", found[DAYS[0]]["why"][0]
    )
    asked = ("plan", ORDERS, "--partition-range", f"{DAYS[4]}...{DAYS[5]}")
    planned = json.loads(place.run(*asked, "--json").stdout)["partitions"]
    assert [re.sub(r"\d+ s", "0 s", one["why"]) for one in planned] == [
        re.sub(r"\d+ s", "0 s", found[day]["why"][0]) for day in (DAYS[4], DAYS[5])
    ]
    for shown in (place.run("gaps", ORDERS).stdout, place.run(*asked).stdout):
        assert f"{DAYS[4]}..." in shown, "one cause is one line"
        assert "never published" not in " ".join(shown.split())


def test_a_day_that_is_not_over_is_no_gap(tmp_path):
    """Its export has begun: nobody could launch it yet, and every night would be red."""
    today = datetime.now(UTC).date()
    days = [str(today + timedelta(days=n)) for n in (-1, 0, 1)]
    place = new_place(tmp_path, start=days[0])
    for day in days:
        place.lake.export(day, orders(day, 2))
    found = place.run("gaps", ORDERS, "--json")
    if datetime.now(UTC).date() != today:
        pytest.skip("The day has ended meanwhile.")
    (of_orders,) = json.loads(found.stdout)["tables"]
    assert [one["partition"] for one in of_orders["gaps"]] == [days[0]]
    assert of_orders["partitions"] == 1


@pytest.mark.prove
def test_a_reset_without_a_source_is_refused(place):
    """Its folder is there and empty, as a mount that is away: nothing could be read again. Of what it has lost in part that is told."""
    landing = place.lake.root / "landing/orders"
    shutil.rmtree(folder_of(landing, DAYS[5]))
    for day in DAYS[2:5]:
        shutil.rmtree(folder_of(landing, day))
    before = place.lake.content()
    some = place.run("reset", ORDERS, "--yes", ORDERS, "--json")
    assert (some.exit_code, json.loads(some.stdout)["kept"]) == (1, [DAYS[2], DAYS[3]]), some.output
    assert "2 published partitions stay as they are" in " ".join(some.stderr.split())
    assert (place.lake.content() - before).total() == 4, "of the one day that has changed, and that is still there"
    for day in DAYS[:2]:
        shutil.rmtree(folder_of(landing, day))
    none = place.run("reset", ORDERS, "--yes", ORDERS)
    assert none.exit_code == 2, none.output
    assert "nothing of it can be read again" in none.output


@pytest.mark.prove
def test_gaps_are_found_and_mended(place, tmp_path):
    """Each has its state and why, nothing is written by looking; the plan launches them and no other, and none is left."""
    before = below(place.lake.root)
    found = place.run("gaps", ORDERS, "--json", "-o", str(tmp_path / "plan.json"))
    assert (found.exit_code, below(place.lake.root)) == (1, before), found.output
    (of_orders,) = json.loads(found.stdout)["tables"]
    assert of_orders["partitions"] == 6, "the day that the source has not completed is no gap"
    assert {one["partition"]: one["states"][0] for one in of_orders["gaps"]} == {
        DAYS[1]: "stale source",
        DAYS[2]: "foreign rows",
        DAYS[3]: "restored",
        DAYS[4]: "missing",
        DAYS[5]: "missing",
    }
    assert of_orders["mended_by"] == [[DAYS[1], DAYS[5]]]
    shown = place.run("gaps", ORDERS)
    assert f"{ORDERS}: 5 of 6 partitions are to be mended." in shown.stdout

    applied = place.run("apply", str(tmp_path / "plan.json"))
    assert applied.exit_code == 0, applied.output
    same = [row for day in (DAYS[0], DAYS[2], DAYS[4], DAYS[5]) for row in orders(day, 4)]
    assert place.lake.content() == multiset(
        [*same, *(r for d in (DAYS[1], DAYS[3]) for r in orders(d, 4, amount=OTHER))]
    )
    none = place.run("gaps", ORDERS, "-o", str(tmp_path / "plan.json"))
    assert none.exit_code == 0
    assert "was not written; what is there is an older plan." in " ".join(none.stderr.split())

    shutil.rmtree(folder_of(place.lake.root / "landing/orders", DAYS[5]))
    lost = place.run("gaps", ORDERS, "-o", str(tmp_path / "plan.json"))
    said = " ".join(lost.stderr.split())
    assert (lost.exit_code, "was not written" in said) == (1, True), "no launch mends what the source has lost"
    assert "0 of 6 partitions are to be mended. 1 are published, and their source has them no more" in lost.stdout
    (of_orders,) = json.loads(place.run("status", ORDERS, "--json").stdout)["tables"]
    assert of_orders["by_state"] == {"published": 5, "source incomplete": 1}
    compared = place.run("reconcile", ORDERS, "--json")
    differing = [one["partition"] for one in json.loads(compared.stdout)["partitions"] if not one["passed"]]
    assert (compared.exit_code, differing) == (1, [DAYS[5]]), "what is gone equals nothing"


@pytest.mark.prove
def test_unreadable_partition_blocks_no_other(tmp_path):
    """A day whose file is gone is a gap with a state of its own; the others are compared, and its launch heals it."""
    place = new_place(tmp_path)
    lake = place.lake
    for day in DAYS[:3]:
        lake.export(day, orders(day, 4))
    with place.instance() as lake.instance:
        assert lake.launch(DAYS[0], DAYS[2]).succeeded
    before = lake.content()
    (file,) = lake.files()[DAYS[1]]
    (lake.path() / file).unlink()

    found = place.run("gaps", ORDERS, "--json")
    (of_orders,) = json.loads(found.stdout)["tables"]
    assert {one["partition"]: one["states"][0] for one in of_orders["gaps"]} == {DAYS[1]: "unreadable"}
    assert of_orders["gaps"][0]["why"] == [f"its rows cannot be read: its file `{file}` does not exist"]
    (of_orders,) = json.loads(place.run("status", ORDERS, "--json").stdout)["tables"]
    assert of_orders["by_state"] == {"published": 2, "unreadable": 1}
    compared = place.run("reconcile", ORDERS, "--json")
    told = {one["partition"]: one["passed"] for one in json.loads(compared.stdout)["partitions"]}
    assert (compared.exit_code, told) == (1, {DAYS[0]: True, DAYS[1]: False, DAYS[2]: True})
    with place.instance() as lake.instance:
        healed = lake.launch(DAYS[0], DAYS[2], only="MISSING")
    assert (healed.succeeded, sorted(map(str, healed.recorded()))) == (True, DAYS[:3])
    assert lake.content() == before
    assert place.run("gaps", ORDERS).exit_code == 0


def added(place: Place, day: str) -> None:
    """Append a row to a day as somebody else does."""
    table = deltalake.DeltaTable(str(place.lake.path()))
    row = pa.Table.from_pylist([{**orders(day, 1, order_id=1)[0], "dt": date.fromisoformat(day)}])
    deltalake.write_deltalake(table, row.cast(pa.schema(table.schema())), mode="append")


def test_rows_of_a_day_that_was_never_published_are_reported(tmp_path):
    """`missing` would say that the table has none of it, and a launch replaces what somebody else put there."""
    place = new_place(tmp_path)
    for day in DAYS[:2]:
        place.lake.export(day, orders(day, 4))
    assert place.lake.launch(DAYS[0]).succeeded
    added(place, DAYS[1])
    ((of_orders,),) = json.loads(place.run("gaps", ORDERS, "--json").stdout).values()
    (gap,) = of_orders["gaps"]
    assert (gap["states"], gap["why"]) == (["foreign rows"], ["never published, and the table has 1 rows of it"])


def test_rows_in_no_partition_are_reported(tmp_path):
    """They are no gap, and no plan mends them; the exit code says that the table is not as it should be."""
    place = new_place(tmp_path)
    place.lake.export(DAYS[0], orders(DAYS[0], 4))
    assert place.lake.launch(DAYS[0]).succeeded
    assert place.run("gaps", ORDERS).exit_code == 0
    added(place, "2023-12-31")
    found = place.run("gaps", ORDERS, "--json")
    (of_orders,) = json.loads(found.stdout)["tables"]
    assert (found.exit_code, of_orders["gaps"]) == (1, [])
    said = f"1 rows of `{ORDERS}` lie in values that are no partition of it: `2023-12-31` (1)."
    assert of_orders["outside"].startswith(said)
    assert said in place.run("gaps", ORDERS).stdout


@pytest.mark.prove
def test_rows_that_somebody_added_are_not_forgotten_with_the_log(place):
    """Delta forgets a commit after 30 days; that the partition has other rows than were published shows all the same."""
    added(place, DAYS[0])
    assert place.lake.launch(DAYS[4]).succeeded
    trimmed(place)
    found = place.run("gaps", ORDERS, "--json")
    gaps = json.loads(found.stdout)["tables"][0]["gaps"]
    assert [one["partition"] for one in gaps if "foreign rows" in one["states"]] == [DAYS[0], DAYS[2]]
    planned = json.loads(place.run("plan", ORDERS, "--partition-range", f"{DAYS[0]}...{DAYS[0]}", "--json").stdout)
    assert planned["partitions"][0]["action"] == "replace"
    assert "published with 4 rows, and has 5: somebody else wrote it" in planned["partitions"][0]["why"]


def trimmed(place: Place) -> None:
    """Let the log forget all but its newest commit, as Delta does after 30 days."""
    table, log = deltalake.DeltaTable(str(place.lake.path())), place.lake.path() / "_delta_log"
    table.create_checkpoint()
    for file in [*(log / f"{version:020d}.json" for version in range(table.version())), *log.glob("*.crc")]:
        file.unlink()


@pytest.mark.prove
def test_no_rows_are_read(place):
    """Nobody could: in the table's files, and the source's, is nothing but zeros."""
    whole = place.run("gaps", ORDERS, "--json")
    files = [*place.lake.path().rglob("*.parquet"), *(place.lake.root / "landing").rglob("*.parquet")]
    assert len(files) > len(DAYS)
    for file in files:
        times = file.stat()
        file.write_bytes(bytes(times.st_size))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    blind = place.run("gaps", ORDERS, "--json")
    assert (blind.exit_code, blind.stdout) == (1, whole.stdout), blind.output


@pytest.mark.prove
def test_without_a_name_all_tables_are_looked_at(place):
    """A table that is made of another one has gaps where that has published, or changed."""
    found = place.run("gaps", "--json")
    assert [of_table["table"] for of_table in json.loads(found.stdout)["tables"]] == [ORDERS, TOTALS]
    refused = place.run("gaps", "-o", "plan.json")
    assert (refused.exit_code, "A plan is of one table." in refused.stderr) == (2, True)


@pytest.mark.prove
def test_what_lies_before_a_historys_beginning_is_no_gap(tmp_path):
    """`begin` after the table's start: what is before it is of something else, and no look at the whole table asks for it."""
    place = new_place(tmp_path, source={"kind": "files", "path": "orders", "format": "parquet", "begin": DAYS[2]})
    for day in DAYS[2:6]:
        place.lake.export(day, orders(day, 2))
    found = place.run("gaps", ORDERS, "--json")
    (of_orders,) = json.loads(found.stdout)["tables"]
    assert (of_orders["partitions"], of_orders["mended_by"]) == (4, [[DAYS[2], DAYS[5]]])
    assert place.lake.launch(DAYS[2], DAYS[5]).succeeded
    for command in ("gaps", "reconcile"):
        looked = place.run(command, ORDERS)
        assert looked.exit_code == 0, looked.output
    done = place.run("reset", ORDERS, "--yes", ORDERS)
    assert done.exit_code == 0, done.output
    assert f"{ORDERS}: {DAYS[2]}...{DAYS[5]} (partitions: 4)" in done.stderr
