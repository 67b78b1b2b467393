"""Readers never join rows of two versions: what is refused because something else would stay, or was not compared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_assets import build_lakehouse_table
from backfill_assets.commands.version import switching
from backfill_assets.errors import VersionError
from tests.commands.places import copied
from tests.commands.versions import TOTALS_V2, V2, both, current, independent, run, second, totals, without_first_totals
from tests.support.launching import ORDERS, TOTALS, daily_totals

V3 = f"{ORDERS}__v3"

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
def test_nothing_goes_back_without_what_is_made_of_it(shop_brought_up, tmp_path: Path):
    """The first version of what is made of it is retired, and its spec removed, as `retire` advises."""
    place = copied(shop_brought_up, tmp_path / "place")
    run(place, "cutover", V2)
    following = {one["key"]: one["following"] for one in run(place, "status")["versions"]}
    assert following == {ORDERS: "", V2: f"version retire {ORDERS}", TOTALS: "", TOTALS_V2: f"version retire {TOTALS}"}
    run(place, "retire", TOTALS, "--yes", TOTALS)
    without = without_first_totals(place, second())
    refused = " ".join(run(place, "rollback", ORDERS, code=2, definitions=without).split())
    assert f"`{TOTALS_V2}` stays current, and is made of `{V2}`, which would not be any more" in refused
    assert current(place) == {ORDERS: V2, TOTALS: TOTALS_V2}


@pytest.mark.parametrize(
    ("spec", "launched"),
    [(second(), []), (independent(), [TOTALS_V2])],
    ids=["made of a copy", "made of what has a source of its own"],
)
def test_what_is_launched_after_it_was_compared_is_compared_again(spec: Any, launched: list[str]):
    """Only a copy that follows, and what is made of copies alone, brings nothing but what the version before has by then."""
    receipt = SimpleNamespace(kind="publish", source={"versions": {V2: 7}})
    lakes = {key: {} for key in (ORDERS, V2, TOTALS)} | {TOTALS_V2: {3: receipt}}
    chosen: Any = SimpleNamespace(
        specs={V2: spec, TOTALS_V2: totals()},
        lake=lambda key, _: SimpleNamespace(receipts_after=lambda _: lakes[key]),
    )
    found: Any = [
        SimpleNamespace(before=before, new=new, before_version=1, new_version=2)
        for before, new in ((ORDERS, V2), (TOTALS, TOTALS_V2))
    ]
    assert switching._launched_since(chosen, found, print) == launched


def test_a_refresh_is_no_launch():
    """A table that follows a database is refreshed every few seconds: else no version of it could be switched to."""
    receipt = SimpleNamespace(kind="publish", source={"kind": "changes", "folded_to": 5})
    launched = SimpleNamespace(kind="publish", source={"kind": "jdbc"})
    found: Any = [SimpleNamespace(before=ORDERS, new=V2, before_version=1, new_version=2)]
    for of_new, expected in (({3: receipt}, []), ({3: receipt, 4: launched}, [V2])):
        receipts = {ORDERS: {2: receipt}, V2: of_new}
        chosen: Any = SimpleNamespace(
            specs={V2: independent()}, lake=lambda key, _, r=receipts: SimpleNamespace(receipts_after=lambda _: r[key])
        )
        assert switching._launched_since(chosen, found, print) == expected


@pytest.mark.prove
def test_a_rehearsal_leaves_out_what_looks_back_behind_its_sample(shop_brought_up, tmp_path: Path):
    """The first days of the sample are made of days that it has not: they are no failure."""
    place = copied(shop_brought_up, tmp_path / "place")
    looks_back = {"kind": "delta", "tables": [{"table": V2, "start_offset": -1}]}
    orders_v2 = independent()
    made = build_lakehouse_table(totals(source=looks_back), daily_totals, inputs={V2: orders_v2, TOTALS: totals()})
    definitions = both(place, made, orders_v2=orders_v2)
    found = run(
        place, "rehearse", V2, "--into", str(tmp_path / "rehearsal"), "--last", "3", definitions=definitions, code=None
    )
    assert found["problems"] == []
    assert [one["days"] for one in found["tables"]] == [3, 2]


def test_what_is_left_by_name_may_be_a_second_version():
    """Only whoever goes back leaves it without a word; at a cut-over it was named, or that was refused."""
    chosen: Any = SimpleNamespace(specs={V2: second(), V3: second(key=V3), TOTALS_V2: totals()}, pairs=())
    now: Any = SimpleNamespace(by_name={ORDERS: SimpleNamespace(key=V2), TOTALS: SimpleNamespace(key=TOTALS_V2)})
    forward = switching.Asked("cut over", {ORDERS: V3}, {ORDERS: V2}, "", "")
    switching._refuse_mixture(chosen, forward, now)
    back = switching.Asked("rolled back", {ORDERS: ORDERS}, {ORDERS: V2}, "", "")
    with pytest.raises(VersionError, match="stays current, and is made of"):
        switching._refuse_mixture(chosen, back, now)
