"""In a place that never had the first version of a table readers are given a later one, and it is held against nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions, read
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, copied
from tests.commands.versions import (
    V2,
    amounts,
    both,
    copy_all,
    current,
    independent,
    run,
    steps,
)
from tests.support.launching import ORDERS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Path) -> Place:
    return copied(shop_with_totals, tmp_path)


@pytest.mark.prove
def test_a_project_begins_with_a_later_version(place):
    """Its first version is gone from the project, and was never made here: nothing else could ever be given to readers."""
    definitions = both(place, orders_v2=independent())
    run(place, "deploy", V2, "--empty", definitions=definitions)
    copy_all(place, definitions)
    later = build_lakehouse_table(independent(version_of={"table": ORDERS, "retired": True}))
    definitions = lakehouse_definitions(later, lakehouse=Lakehouse(root=str(place.lake.root)))
    refused = " ".join(run(place, "cutover", V2, code=2, definitions=definitions).split())
    assert f"Readers of `{ORDERS}` are given `{ORDERS}`, of which the project has no spec" in refused
    shutil.rmtree(f"{place.lake.root}/tables/{ORDERS}")
    gaps = place.run("gaps", definitions=definitions)
    assert gaps.exit_code == 2
    assert "`backfill-assets version cutover` switches" in " ".join(gaps.output.split())
    assert run(place, "cutover", V2, definitions=definitions)["current"] == {ORDERS: V2}
    assert current(place) == {ORDERS: V2}
    (step,) = [one for one in steps(place) if one["what"] == "cut over"]
    assert "held against nothing" in step["detail"]
    assert read(ORDERS, lakehouse=Lakehouse(root=str(place.lake.root))).count() == len(amounts(place, V2)) > 0
    assert place.run("gaps", definitions=definitions).exit_code == 0
    again = run(place, "cutover", V2, definitions=definitions)
    assert again["current"] == {ORDERS: V2}
    assert len([one for one in steps(place) if one["what"] == "cut over"]) == 1, "what is so already is noted once"
