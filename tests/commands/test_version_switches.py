"""`version cutover` and `rollback`: what is compared before a switch, and what is said of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pytest

from backfill_assets import build_lakehouse_table
from tests.assets.test_reconciliation import evaluation_of
from tests.commands.places import Place, copied
from tests.commands.versions import (
    DAYS,
    TOTALS_V2,
    V2,
    both,
    copy_all,
    current,
    independent,
    run,
    second,
)
from tests.support.launching import ORDERS, TOTALS
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NEXT_DAY = "2024-02-03"
V3 = f"{ORDERS}__v3"


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Path) -> Place:
    return copied(shop_with_totals, tmp_path)


@pytest.mark.prove
def test_going_back_loses_no_partition(place):
    """Days that only the new version, or only what is made of it, has: refused with the day, until the old one has them too."""
    definitions = both(place, orders_v2=independent())
    run(place, "deploy", V2, "--empty", definitions=definitions)
    copy_all(place, definitions)
    run(place, "cutover", V2, definitions=definitions)
    place.lake.export(NEXT_DAY, orders(NEXT_DAY, 3))
    copy_all(place, definitions)
    told = run(place, "deploy", V2, "--check", definitions=definitions)["compared"]
    assert all(one["equal"] for one in told), "what the new one has beyond is no difference to whoever goes forward"
    assert all(f"from {NEXT_DAY} 00:00 UTC on" in one["not_compared"][-1] for one in told)

    def refused() -> str:
        return " ".join(run(place, "rollback", V2, "--patience", "0", code=2, definitions=definitions).split())

    said = refused()
    assert f"first on {NEXT_DAY}: 0 rows only in the former, 3 only in the latter" in said
    assert f"Launch in `{ORDERS}` what only the new version has" in said
    assert place.lake.launch(NEXT_DAY).succeeded
    assert f"`{TOTALS}` at version" in (said := refused())
    assert f"first on {NEXT_DAY}: 0 rows only in the former, 1 only in the latter" in said
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V2}
    assert place.lake.launch(NEXT_DAY, tables=(TOTALS,)).succeeded
    left = run(place, "rollback", V2, definitions=definitions)["not_compared"]
    assert "held against nothing" not in str(left)
    assert current(place) == {ORDERS: ORDERS, TOTALS: TOTALS}


def with_a_draft(place: Place, *others: dg.Definitions) -> dg.Definitions:
    """The shop with two versions of its orders, and a third one of which nothing is there but its spec."""
    draft = second(key=V3, source={"kind": "version", "table": V2})
    return both(place, build_lakehouse_table(draft, inputs={V2: second()}), *others)


@pytest.mark.prove
def test_a_current_version_without_a_spec_is_a_problem(shop_brought_up, tmp_path):
    """Whoever takes its spec away after the cut-over is told wherever all tables are looked at; `rollback` says why not."""
    place = copied(shop_brought_up, tmp_path / "place")
    first = place.lake.definitions

    def told(*arguments: str, code: int = 0) -> Any:
        done = place.run(*arguments, "--json", definitions=first)
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    assert {one["problem"] for one in told("gaps", code=1)["tables"]} == {None}, (
        "the totals have days before the shop's"
    )
    run(place, "cutover", V2, "--not-forked", TOTALS, definitions=with_a_draft(place))
    problem = (
        f"Readers of `{ORDERS}` are given `{V2}`, of which the project has no spec: nobody launches, streams or checks "
        "it. Readers get what they got before. Put its spec back, and switch to another version before you remove it."
    )
    assert {one["table"]: one["problem"] for one in told("gaps", code=2)["tables"]} == {
        ORDERS: None, TOTALS: None, V2: problem,
    }  # fmt: skip
    assert {one["table"]: one["wrong"] for one in told("status")["tables"]} == {ORDERS: None, TOTALS: None, V2: problem}
    for key in ((), (ORDERS,)):
        seen = told("version", "status", *key)["versions"]
        assert [(one["key"], one["state"], one["problem"]) for one in seen] == [
            (ORDERS, "made", ""), (V2, "current without a spec", problem),
        ]  # fmt: skip
    place.lake.changes = {"start": DAYS[0]}
    assert place.lake.launch(DAYS[0], DAYS[-1]).succeeded
    nightly = place.lake.watch()
    of_orders, of_totals = evaluation_of(nightly), evaluation_of(nightly, TOTALS)
    assert (of_orders.passed, of_orders.description) == (False, f"All 4 partitions are reconciled. {problem}")
    assert problem not in str(of_totals.description), "it is no problem of other tables"
    refused = run(place, "rollback", ORDERS, code=2, definitions=first)
    assert problem in " ".join(refused.split())
    assert [one["table"] for one in told("gaps", ORDERS, code=1)["tables"]] == [ORDERS], "who names a table hears of it"
    deltalake.DeltaTable(f"{place.lake.root}/_current").delete()
    assert "somebody has removed all of its rows" in str(evaluation_of(place.lake.watch(), TOTALS).description)
    for command, word in (("gaps", "problem"), ("status", "wrong")):
        seen = {one["table"]: one[word] for one in told(command, code=2 if command == "gaps" else 0)["tables"]}
        assert seen.keys() == {ORDERS, TOTALS, "_current"}, "the others are looked at all the same"
        assert "somebody has removed all of its rows" in seen["_current"]


@pytest.mark.prove
def test_a_damaged_history_of_versions_is_told(shop_brought_up, tmp_path):
    """In words, and before anything is changed; whoever names a version goes on without it."""
    place = copied(shop_brought_up, tmp_path / "place")
    run(place, "cutover", V2)
    for file in place.lake.root.glob("tables/*/*_history/*.parquet"):
        file.unlink()
    for arguments in (("rollback", ORDERS), ("retire", TOTALS, "--yes", TOTALS), ("status",)):
        said = " ".join(run(place, *arguments, code=2).split())
        assert "its history at" in said
        assert "Traceback" not in said
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V2}
    run(place, "rollback", V2)
    assert current(place) == {ORDERS: ORDERS, TOTALS: TOTALS}
