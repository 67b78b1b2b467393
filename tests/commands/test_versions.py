"""`version`: a table rebuilt beside itself, held against the one before, cut over with what is made of it, and back."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest

from backfill_assets import build_lakehouse_table
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, below, copied
from tests.commands.versions import DAYS, TOTALS_V2, V2, amounts, both, current, independent, run, second, steps, totals
from tests.support.launching import ORDERS, TOTALS, daily_totals
from tests.support.shop import COLUMNS, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Path) -> Place:
    return copied(shop_with_totals, tmp_path)


@pytest.fixture
def brought_up(shop_brought_up: Place, tmp_path: Path) -> Place:
    """The second versions are made, and hold what the first do."""
    return copied(shop_brought_up, tmp_path / "brought_up")


def test_a_table_is_rebuilt_cut_over_and_back(place):
    """With what is made of it, in one commit each way; who did it and why is in the history. A correction is copied again."""
    lakehouse = Lakehouse(root=str(place.lake.root))
    assert run(place, "deploy", V2, "--empty")["made"] == {V2: "", TOTALS_V2: ""}
    assert run(place, "deploy", V2, "--empty")["made"] == {}
    done = run(place, "deploy", V2)
    assert [(one["table"], one["failure"]) for one in done["runs"]] == [(V2, ""), (TOTALS_V2, "")]
    found = done["compared"]
    assert run(place, "deploy", V2)["runs"] == [], "nothing is left to copy"
    assert [(one["equal"], one["days"], one["rows"]) for one in found] == [(True, 4, 16), (True, 4, 4)]
    assert amounts(place, V2) == amounts(place, ORDERS)

    run(place, "cutover", V2, "--reason", "four digits")
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V2}
    now, sums = lakehouse.read([ORDERS, TOTALS])
    assert (dict(now.dtypes)["amount"], now.count()) == ("decimal(20,4)", 16)
    assert sums.count() == len(DAYS)
    again = deltalake.DeltaTable(f"{place.lake.root}/_current").version()
    run(place, "cutover", V2)
    assert deltalake.DeltaTable(f"{place.lake.root}/_current").version() == again, "once is enough"
    assert dict(lakehouse.read(f"{ORDERS}__v1").dtypes)["amount"] == "decimal(18,2)", "a version that is named is read"

    run(place, "rollback", V2, "--reason", "a doubt")
    assert current(place) == {ORDERS: ORDERS, TOTALS: TOTALS}
    told = json.loads(place.run("history", ORDERS, "--json", definitions=both(place)).stdout)["operations"]
    steps = [(one["what"], one["reason"]) for one in told if one["what"] in ("cut over", "rolled back")]
    assert steps == [("rolled back", "a doubt"), ("cut over", "four digits")]
    assert all(one["by"] for one in told if one["what"] in ("made", "cut over") and one["versions"] is None)
    _correct_a_day(place)


def _correct_a_day(place: Place) -> None:
    """A launch of the first version makes the month stale that holds its day, and no other; then both are equal."""
    place.lake.export(DAYS[0], orders(DAYS[0], 4, amount=Decimal("7.77")))
    assert place.lake.launch(DAYS[0], tables=(ORDERS, TOTALS)).succeeded
    before = deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").version()
    assert run(place, "deploy", V2)["equal"]
    receipt = deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").history(1)[0]
    assert list(json.loads(receipt["userMetadata"])["partitions"]) == ["2024-01-01"]
    assert deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").version() == before + 1


def test_what_differs_is_named_and_not_switched(brought_up):
    """A row too many, one too few and another value, each by its key."""
    place = brought_up
    path = f"{place.lake.root}/tables/{V2}"
    rows = deltalake.DeltaTable(path).to_pyarrow_table()
    first = min(rows.column("order_id").to_pylist())
    deltalake.DeltaTable(path).delete(f"order_id = {first}")
    deltalake.DeltaTable(path).update(updates={"amount": "9.5"}, predicate=f"order_id = {first + 1}")
    (found, sums) = run(place, "deploy", V2, "--check", "--patience", "0", code=1)["compared"]
    (day,) = found["differing"]
    assert (day["day"], day["only_before"], day["only_new"]) == (DAYS[0], 2, 1)
    assert any(str(first) in text and ORDERS in text for text in day["examples"]), day["examples"]
    assert any("differs in amount" in text for text in day["examples"])
    assert sums["equal"], "what is made of it was made before"
    refused = run(place, "cutover", V2, "--patience", "0", code=2)
    assert "differ on 1 of 4 days" in " ".join(refused.split())
    assert not (place.lake.root / "_current").exists()


@pytest.mark.prove
def test_a_look_finds_every_day_that_is_not_copied(place):
    """Of a version that is empty, and of one that was copied before its table was corrected; it copies nothing."""
    run(place, "deploy", V2, "--empty")
    (empty, _) = run(place, "deploy", V2, "--check", code=1)["compared"]
    assert len(empty["differing"]) == len(DAYS)
    run(place, "deploy", V2)
    place.lake.export(DAYS[0], orders(DAYS[0], 4, amount=Decimal("7.77")))
    assert place.lake.launch(DAYS[0], tables=(ORDERS, TOTALS)).succeeded
    (corrected, _) = run(place, "deploy", V2, "--check", code=1)["compared"]
    assert [day["day"] for day in corrected["differing"]] == [DAYS[0]]


@pytest.mark.prove
def test_what_differs_is_switched_to_with_a_reason(brought_up):
    """It is kept with the step, and so is that both differ."""
    place = brought_up
    deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").update(updates={"amount": "9.5"})
    run(place, "cutover", V2, "--patience", "0", "--except", "known since May")
    (step,) = [one for one in steps(place) if one["what"] == "cut over" and one["key"] == V2]
    assert (step["equal"], step["reason"]) == (False, "known since May")
    assert "although" in step["detail"]


@pytest.mark.prove
def test_a_value_that_does_not_fit_is_refused(place):
    """Of a type with fewer digits the month is refused that has such amounts, with what and how many; nothing is rounded."""
    fewer = second(columns={**COLUMNS, "amount": "decimal(18,1)"})
    definitions = both(place, orders_v2=fewer)
    run(place, "deploy", V2, "--empty", definitions=definitions)
    (failed,) = run(place, "deploy", V2, code=1, definitions=definitions)["runs"]
    assert "`amount` would be another value as `decimal(18,1)`" in failed["failure"]
    assert amounts(place, V2) == []


@pytest.mark.prove
def test_a_table_made_of_both_is_refused(place, brought_up):
    """At load, and whoever is not forked is named at the cut-over; looking writes nothing."""
    spec = second()
    left = both(
        place, build_lakehouse_table(totals(key="silver/others", version_of=None), daily_totals, inputs={V2: spec})
    )
    before = below(place.lake.root)
    planned = run(place, "deploy", V2, "--check", code=1, definitions=left)
    assert planned["not_forked"] == [TOTALS]
    assert planned["plans"][0]["strategy"] == "copy and follow"
    assert run(place, "status", definitions=left)["versions"][1]["state"] == "not made"
    assert below(place.lake.root) == before
    place = brought_up
    left = both(
        place, build_lakehouse_table(totals(key="silver/others", version_of=None), daily_totals, inputs={V2: spec})
    )
    assert TOTALS in run(place, "cutover", V2, code=2, definitions=left)
    run(place, "cutover", V2, "--not-forked", TOTALS, definitions=left)


@pytest.mark.prove
def test_a_retired_version_is_done_with(place):
    """Not the current one, not one that is read, and only by its name; then nothing goes back to it."""
    definitions = both(place, orders_v2=independent())
    run(place, "deploy", V2, "--empty", definitions=definitions)
    run(place, "deploy", V2, definitions=definitions)
    run(place, "cutover", V2, definitions=definitions)
    assert "is the current version" in run(place, "retire", V2, "--yes", V2, code=2, definitions=definitions)
    assert "was not typed" in run(place, "retire", ORDERS, code=2, definitions=definitions)
    assert TOTALS in run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=definitions)
    run(place, "retire", TOTALS, "--yes", TOTALS, definitions=definitions)
    run(place, "retire", ORDERS, "--yes", ORDERS, definitions=definitions)
    assert "is retired" in run(place, "rollback", V2, code=2, definitions=definitions)


@pytest.mark.prove
def test_a_command_that_was_killed_after_the_switch_is_repeated(brought_up, monkeypatch):
    """The switch stands, as a whole, for catalogs too; the same command says so, and notes what the killed one could not."""
    place = brought_up

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("backfill_assets.commands.version.switching.record", killed)
        run(place, "cutover", V2, code=130)
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V2}
    assert not [one for one in steps(place) if one["what"] == "cut over"]
    run(place, "cutover", V2)
    assert sorted(one["key"] for one in steps(place) if one["what"] == "cut over") == [V2, TOTALS_V2]
    run(place, "cutover", V2)
    assert len([one for one in steps(place) if one["what"] == "cut over"]) == 2
    assert f"delta.`{place.lake.root}/tables/{V2}`" in run(place, "views")
    for_duckdb = run(place, "views", "--dialect", "duckdb")
    assert f"delta_scan('{place.lake.root}/tables/{TOTALS_V2}')" in for_duckdb
    assert for_duckdb.splitlines()[1] == "BEGIN TRANSACTION;"


def test_a_rehearsal_leaves_nothing(place, tmp_path):
    """The newest month is made and compared elsewhere; neither the lakehouse nor the folder has anything of it.

    Its launches say why they are made, as the table may require.
    """
    before, definitions = below(place.lake.root), both(place, orders_v2=second(reason="required"))
    found = run(place, "deploy", V2, "--rehearse", str(tmp_path / "rehearsal"), "--last", "9", definitions=definitions)
    assert [(one["equal"], one["rows"]) for one in found["compared"]] == [(True, 16), (True, 4)]
    assert below(place.lake.root) == before
    assert not (tmp_path / "rehearsal").exists()
