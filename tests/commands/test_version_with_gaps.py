"""A version of a table that has days which were never published: it is whole as soon as it has what that has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs.resources import Lakehouse
from tests.commands.places import Place, new_place
from tests.commands.test_version_retire import gaps
from tests.commands.versions import DAYS, V2, amounts, run, second
from tests.support.launching import ORDERS
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def copied_by_day(place: Place, **version: Any) -> Any:
    """Orders, and a second version of them by day, copied from the first."""
    spec = second(grain="daily", start=DAYS[0], version_of={"table": ORDERS, "cast": ["amount"], **version})
    return lakehouse_definitions(
        build_lakehouse_table(place.lake.spec),
        build_lakehouse_table(spec, inputs={ORDERS: place.lake.spec}),
        lakehouse=Lakehouse(root=str(place.lake.root)),
    )


def with_a_gap(root: Path) -> tuple[Place, Any, Any]:
    """Return orders of which a day was never there, and definitions in which the copy reads on, and reads no more."""
    place = new_place(root)
    for day in (DAYS[0], *DAYS[2:]):
        place.lake.export(day, orders(day, 4))
        assert place.lake.launch(day).succeeded
    return place, copied_by_day(place), copied_by_day(place, retired=True)


@pytest.mark.prove
def test_what_the_version_before_never_had_is_neither_copied_nor_missed(spark, tmp_path):
    """A day that its source never had keeps nobody from copying, switching and retiring; if it comes, it is copied."""
    place, definitions, later = with_a_gap(tmp_path)
    run(place, "deploy", V2, "--empty", definitions=definitions)
    (copied,) = run(place, "deploy", V2, definitions=definitions)["runs"]
    assert (copied["range"], copied["failure"]) == ([DAYS[0], DAYS[3]], "")
    assert run(place, "deploy", V2, definitions=definitions)["runs"] == []
    assert gaps(place, definitions) == []
    told = place.run("reconcile", V2, definitions=definitions)
    assert told.exit_code == 0, told.output
    run(place, "cutover", V2, definitions=definitions)
    place.lake.export(DAYS[1], orders(DAYS[1], 4))
    refused = " ".join(run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=later).split())
    assert f"1 partitions of `{ORDERS}`, `{DAYS[1]}` to `{DAYS[1]}`, lack rows of its source that were never" in refused
    assert place.lake.launch(DAYS[1]).succeeded
    assert gaps(place, definitions) == ["missing"]
    refused = " ".join(run(place, "retire", ORDERS, "--yes", ORDERS, code=2, definitions=later).split())
    assert f"1 of its partitions, `{DAYS[1]}` to `{DAYS[1]}`, are not as that has them now" in refused
    run(place, "deploy", V2, definitions=definitions)
    run(place, "retire", ORDERS, "--yes", ORDERS, definitions=later)
    assert amounts(place, V2) == amounts(place, ORDERS)
    assert len(amounts(place, V2)) == 16
