"""`version cutover` and `rollback`: what is compared before a switch, and what is said of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pytest

from backfill_assets import TableSpec, build_lakehouse_table
from backfill_assets.commands.version import switching
from tests.assets.test_reconciliation import evaluation_of
from tests.commands.places import Place, copied
from tests.commands.versions import (
    DAYS,
    TOTALS_V2,
    V2,
    amounts,
    both,
    copy_all,
    current,
    independent,
    run,
    second,
    steps,
    totals,
)
from tests.support.launching import ORDERS, TOTALS, TOTALS_SPEC, daily_totals
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NEXT_DAY = "2024-02-03"
V3, TOTALS_V3 = f"{ORDERS}__v3", f"{TOTALS}__v3"


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Path) -> Place:
    return copied(shop_with_totals, tmp_path)


@pytest.mark.prove
def test_going_back_loses_no_partition(place):
    """Days that only the new version, or only what is made of it, has: refused with the day, until the old one has them too."""
    definitions = both(place, orders_v2=independent())
    run(place, "make", V2, definitions=definitions)
    copy_all(place, definitions)
    run(place, "cutover", V2, definitions=definitions)
    place.lake.export(NEXT_DAY, orders(NEXT_DAY, 3))
    copy_all(place, definitions)
    told = run(place, "compare", V2, definitions=definitions)["tables"]
    assert all(one["equal"] for one in told), "what the new one has beyond is no difference to whoever goes forward"
    assert all(f"from {NEXT_DAY} 00:00 UTC on" in one["not_compared"][-1] for one in told)

    def refused() -> str:
        return " ".join(run(place, "rollback", V2, "--wait", "0", code=2, definitions=definitions).split())

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


def third(place: Place, spec: TableSpec) -> dg.Definitions:
    """The shop with two versions of its totals that are made of the second one of its orders."""
    followed = {TOTALS_V2: TOTALS_SPEC, TOTALS_V3: totals()}
    made = [
        build_lakehouse_table(totals(key=key), daily_totals, inputs={V2: spec, before.key: before})
        for key, before in followed.items()
    ]
    return both(place, *made, orders_v2=spec)


@pytest.mark.prove
def test_going_back_takes_what_is_made_of_a_version_along(place):
    """A version that was made of it later is gone back from first: nothing is read beside what it was not made of."""
    spec = independent()
    for step in ("make", "copy", "cutover"):
        run(place, step, V2, definitions=both(place, orders_v2=spec))
    definitions = third(place, spec)
    for step in ("make", "copy", "cutover"):
        run(place, step, TOTALS_V3, definitions=definitions)
    refused = " ".join(run(place, "rollback", V2, code=2, definitions=definitions).split())
    assert f"`{TOTALS_V2}` would become current, and is made of `{V2}`" in refused
    assert f"version rollback {TOTALS_V3}" in refused
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V3}
    run(place, "rollback", TOTALS_V3, definitions=definitions)
    run(place, "rollback", V2, definitions=definitions)
    assert current(place) == {ORDERS: ORDERS, TOTALS: TOTALS}


@pytest.mark.prove
def test_going_back_where_nobody_has_gone_forward(shop_brought_up, tmp_path):
    """Readers have the first versions as before, which is said; and nobody is told that they were switched."""
    place = copied(shop_brought_up, tmp_path / "place")
    told = run(place, "rollback", V2)
    assert (told["generation"], told["switched"]) == (0, False)
    assert told["current"] == {ORDERS: ORDERS, TOTALS: TOTALS}
    assert told["paths"][ORDERS] == f"{place.lake.root}/tables/{ORDERS}"
    assert run(place, "cutover", V2)["switched"]
    run(place, "rollback", TOTALS_V3, definitions=third(place, second()))
    assert [one["what"] for one in steps(place) if one["switch_id"]] == ["cut over", "cut over"]
    place.lake.export(NEXT_DAY, orders(NEXT_DAY, 3))
    assert place.lake.launch(NEXT_DAY).succeeded  # only the version before has it: nobody loses it by going back
    told = run(place, "rollback", V2)
    assert (told["switched"], current(place)) == (True, {ORDERS: ORDERS, TOTALS: TOTALS})
    (differs,) = told["differ"]
    assert f"first on {NEXT_DAY}: 3 rows only in the former, 0 only in the latter" in differs


def with_a_draft(place: Place, *others: dg.Definitions) -> dg.Definitions:
    """The shop with two versions of its orders, and a third one of which nothing is there but its spec."""
    draft = second(key=V3, source={"kind": "version", "table": V2})
    return both(place, build_lakehouse_table(draft, inputs={V2: second()}), *others)


@pytest.mark.prove
def test_going_back_by_name_leaves_what_readers_have(shop_brought_up, tmp_path, monkeypatch):
    """Not the newest version, of which there is a draft; what a kill has left unnoted is noted as what it was, or not at all."""
    place = copied(shop_brought_up, tmp_path / "place")
    second_totals = build_lakehouse_table(totals(), daily_totals, inputs={V2: second(), TOTALS: TOTALS_SPEC})
    definitions = with_a_draft(place, second_totals)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def unnoted(*arguments: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(switching, "record", killed)
            run(place, *arguments, code=130, definitions=definitions)

    def switches() -> list[tuple[str, str]]:
        found = [one for one in steps(place) if one["switch_id"] and one["key"] in (ORDERS, V2, V3)]
        return [(one["what"], one["key"]) for one in sorted(found, key=lambda one: one["at"])]

    refused = " ".join(run(place, "rollback", ORDERS, code=2, definitions=definitions).split())
    assert f"Readers of `{ORDERS}` have its first version, so there is nothing to go back from" in refused
    unnoted("cutover", V2)
    told = run(place, "rollback", V3, definitions=definitions)
    assert (told["switched"], switches()) == (False, []), "it did not come by going back from a version that never was"
    assert run(place, "rollback", ORDERS, definitions=definitions)["switched"]
    assert (current(place), switches()) == ({ORDERS: ORDERS, TOTALS: TOTALS}, [("rolled back", ORDERS)])
    assert not run(place, "rollback", ORDERS, definitions=definitions)["switched"], "once more, by whoever was not told"
    run(place, "cutover", V2, definitions=definitions)
    unnoted("rollback", ORDERS)
    assert not run(place, "rollback", ORDERS, definitions=definitions)["switched"], "it is what was killed, once more"
    assert switches() == [("rolled back", ORDERS), ("cut over", V2), ("rolled back", ORDERS)]


@pytest.mark.prove
def test_going_back_leaves_what_did_not_come_along(shop_brought_up, tmp_path):
    """A table that was not switched, and got its second version later, is no reason not to go back."""
    place = copied(shop_brought_up, tmp_path / "place")
    run(place, "cutover", V2, "--not-forked", TOTALS, definitions=with_a_draft(place))
    assert current(place) == {ORDERS: V2}
    run(place, "rollback", V2)
    assert current(place) == {ORDERS: ORDERS}


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
def test_a_damaged_log_of_versions_is_told(shop_brought_up, tmp_path):
    """In words, and before anything is changed; whoever names a version goes on without it."""
    place = copied(shop_brought_up, tmp_path / "place")
    run(place, "cutover", V2)
    for file in (place.lake.root / "_versions").glob("*.parquet"):
        file.unlink()
    for arguments in (("rollback", ORDERS), ("retire", TOTALS, "--yes", TOTALS), ("status",)):
        said = " ".join(run(place, *arguments, code=2).split())
        assert "`_versions`" in said
        assert "Traceback" not in said
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V2}
    run(place, "rollback", V2)
    assert current(place) == {ORDERS: ORDERS, TOTALS: TOTALS}


@pytest.mark.prove
def test_what_was_not_compared_and_who_does_not_follow_is_said(place):
    """After a cut-over: time that only the new version has, tables that stay with the old one, and readers by path."""
    left = build_lakehouse_table(
        totals(key="silver/others", source={"kind": "delta", "tables": [V2]}, version_of=None),
        daily_totals,
        inputs={V2: independent()},
    )
    definitions = both(place, left, orders_v2=independent())
    run(place, "make", V2, definitions=definitions)
    place.lake.export(NEXT_DAY, orders(NEXT_DAY, 3))
    copy_all(place, definitions)
    told = run(place, "cutover", V2, "--not-forked", TOTALS, definitions=definitions)
    assert told["not_compared"][V2][-1] == (
        f"what `{V2}` has from {NEXT_DAY} 00:00 UTC on, which is held against nothing"
    )
    assert told["paths"] == {ORDERS: f"{place.lake.root}/tables/{V2}"}
    assert told["do_not_follow"]["tables"] == {TOTALS: [ORDERS]}
    assert "start it again, with a new checkpoint" in told["do_not_follow"]["others"]
    result = place.run("version", "cutover", V2, "--not-forked", TOTALS, definitions=definitions)
    assert f"{TOTALS} goes on being made of {ORDERS}, which is not current" in result.stdout


@pytest.mark.prove
def test_a_copy_that_follows_may_be_switched_to(shop_brought_up, tmp_path, monkeypatch):
    """What it launches beside the comparison is what the version before has: it comes all the time, and is no surprise."""
    place = copied(shop_brought_up, tmp_path / "place")
    compare, compared = switching.compare_all, list[int]()

    def beside(*named: Any, **how: Any) -> Any:
        found = compare(*named, **how)
        deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").delete("ordered_at >= '2024-02-01'")
        compared.append(deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").version())
        run(place, "copy", V2)
        assert deltalake.DeltaTable(f"{place.lake.root}/tables/{V2}").version() > compared[-1]
        return found

    monkeypatch.setattr(switching, "compare_all", beside)
    assert run(place, "cutover", V2, "--not-forked", TOTALS)["switched"]
    assert len(compared) == 1
    assert amounts(place, V2) == amounts(place, ORDERS)


@pytest.mark.prove
def test_what_is_launched_again_and_again_is_not_switched(shop_brought_up, tmp_path, monkeypatch):
    """If a launch comes into every comparison, what would be switched was never compared."""
    place = copied(shop_brought_up, tmp_path / "place")
    monkeypatch.setattr(switching, "_launched_since", lambda *_: [V2])
    refused = " ".join(run(place, "cutover", V2, code=2).split())
    assert f"`{V2}` was launched during each of 3 comparisons" in refused
    assert not (place.lake.root / "_current").exists()
