"""Readers never join rows of two versions: what is refused because something else would stay, or was not compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.places import copied
from tests.commands.versions import TOTALS_V2, V2, current, run, second, without_first_totals
from tests.support.launching import ORDERS, TOTALS

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
