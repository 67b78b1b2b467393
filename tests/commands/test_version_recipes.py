"""What is done with tables that a version does not fit at once: each ends in a comparison and a cut-over."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from backfill_assets.lake import definition
from tests.commands.places import Place, copied
from tests.commands.versions import (
    DAYS,
    TOTALS_V2,
    V2,
    T,
    amounts,
    both,
    current,
    independent,
    run,
    steps,
    stream,
    streamed,
)
from tests.support.launching import ORDERS, TOTALS
from tests.support.live_shop import event
from tests.support.shop import folder_of, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def place(shop_with_totals: Place, tmp_path: Path) -> Place:
    return copied(shop_with_totals, tmp_path)


@pytest.mark.prove
def test_a_source_that_is_replaced_whole(place):
    """They differ until one whole replacement has come into both; half of one is not switched to."""
    definitions = both(place, orders_v2=independent())
    run(place, "deploy", V2, "--empty", definitions=definitions)
    for day in DAYS:
        for file in folder_of(place.lake.root / "landing/orders", day).glob("*"):
            file.unlink()
        folder_of(place.lake.root / "landing/orders", day).rmdir()
    replaced = {day: orders(day, 5, amount=Decimal("3.50")) for day in DAYS}
    for day in DAYS[:2]:
        place.lake.export(day, replaced[day])
    run(place, "deploy", V2, code=1, definitions=definitions)
    assert place.lake.launch(*DAYS[:2], tables=(ORDERS, TOTALS)).succeeded
    found = run(place, "deploy", V2, "--check", code=1, definitions=definitions)["compared"][0]
    assert [one["day"] for one in found["differing"]] == DAYS[2:]
    assert "differ" in run(place, "cutover", V2, "--patience", "0", code=2, definitions=definitions)
    for day in DAYS[2:]:
        place.lake.export(day, replaced[day])
    run(place, "deploy", V2, code=1, definitions=definitions)
    assert place.lake.launch(*DAYS[2:], tables=(ORDERS, TOTALS)).succeeded
    run(place, "deploy", V2, "--check", definitions=definitions)
    run(place, "cutover", V2, definitions=definitions)
    assert amounts(place, V2) == [Decimal("3.50")] * 20


def test_a_table_that_is_not_in_production(place):
    """An empty version is switched to when the table's name is typed, and only then; that it was is kept."""
    definitions = both(place, orders_v2=independent())
    run(place, "deploy", V2, "--empty", definitions=definitions)
    refused = run(place, "cutover", V2, "--accept-loss", V2, code=2, definitions=definitions)
    assert f"`{V2}` is not the table's name, `{ORDERS}`" in refused
    assert not (place.lake.root / "_current").exists()
    run(place, "cutover", V2, "--accept-loss", ORDERS, "--reason", "the first load", definitions=definitions)
    assert (current(place), amounts(place, V2)) == ({ORDERS: V2, TOTALS: TOTALS_V2}, [])
    (step,) = [one for one in steps(place) if (one["what"], one["key"]) == ("cut over", V2)]
    why = "the loss is accepted: the table is not in production; the first load"
    assert (step["equal"], step["reason"]) == (False, why)
    assert "16 rows" not in step["detail"], "what is lost is named by day"
    assert "although" in step["detail"]


@pytest.mark.prove
def test_ingestion_that_moves(spark, tmp_path, monkeypatch):
    """The old stream is stopped, and the history of both shows who gets batches; what lies before that day is compared."""
    place, shop, definitions = streamed(spark, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(definition, "utc_now", lambda: datetime(2024, 1, 20, tzinfo=UTC))
        run(place, "deploy", V2, "--empty", definitions=definitions)
    shop.land(event(10, "2024-01-05T10:00:00"), event(11, "2024-01-31T23:59:59.999999"))
    stream(place, ORDERS, definitions)
    moved = [event(12, f"{T}T00:00:00", amount="2.25"), event(13, "2024-02-03T10:00:00", amount="3.25")]
    lines = [{**{k: v for k, v in one.items() if k != "amount"}, "total": one["amount"]} for one in moved]
    (place.lake.root / "landing/events_v2/0.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stream(place, V2, definitions)
    stream(place, ORDERS, definitions)
    assert [batches(place, key, definitions) for key in (ORDERS, V2)] == [2, 2], "rows of the old one, and of the new"
    run(place, "deploy", V2, code=1, definitions=definitions)
    assert "first on 2024-02-01: 0 rows only in the former" in " ".join(
        run(place, "cutover", V2, "--patience", "0", code=2, definitions=definitions).split()
    )
    (found,) = run(place, "deploy", V2, "--check", "--before", T, definitions=definitions)["compared"]
    assert (found["rows"], found["not_compared"]) == (
        4,
        [f"what `{V2}` has from {T} 00:00 UTC on, which is held against nothing"],
    )
    shop.land(event(14, "2024-02-02T10:00:00"))  # of a producer that has not moved
    stream(place, ORDERS, definitions)
    told = run(place, "cutover", V2, "--before", T, "--reason", "ingestion has moved", definitions=definitions)
    assert told["current"] == {ORDERS: V2}
    assert told["not_compared"][V2][1:] == [f"1 rows that `{ORDERS}` has from then on: `{V2}` may lack them"]


@pytest.mark.prove
def test_what_was_compared_in_part_is_not_taken_for_the_whole(place):
    """It is shown and kept with its day, is no reason to cut over, and nobody leaves out history by a wrong day."""
    nothing = " ".join(run(place, "deploy", V2, "--before", "2024-01-01", code=2).split())
    assert f"`{ORDERS}` and `{V2}` have no time in common" in nothing
    assert "What was made and copied stays; it was not compared." in nothing
    assert run(place, "deploy", V2, "--before", DAYS[1])["equal"]

    def seen() -> tuple[str, str]:
        (one,) = [one for one in run(place, "status", ORDERS)["versions"] if one["key"] == V2]
        return one["compared"].partition(" at ")[0], one["following"]

    assert seen() == ("equal in part", f"version deploy {V2}")
    (step,) = [one for one in steps(place) if (one["what"], one["key"]) == ("compared", V2)]
    assert step["detail"].startswith(f"only before {DAYS[1]}: `{ORDERS}` at version ")
    assert f"12 rows that `{ORDERS}` has from then on: `{V2}` may lack them" in step["detail"]
    refused = " ".join(run(place, "cutover", V2, "--before", "2024-01-02", code=2).split())
    assert f"`{V2}` was held against `{ORDERS}` only before 2024-01-02, which leaves out 16 rows that" in refused
    assert not (place.lake.root / "_current").exists()
    run(place, "deploy", V2, "--check")
    assert seen() == ("equal", f"version cutover {V2}")
    run(place, "cutover", V2, "--patience", "0", "--before", DAYS[1], "--except", "the rest is known")
    (step,) = [one for one in steps(place) if (one["what"], one["key"]) == ("cut over", V2)]
    assert step["detail"].startswith(f"only before {DAYS[1]}: equal; not compared: ")


def batches(place: Place, key: str, definitions: dg.Definitions) -> int:
    """Rows that the batches of a stream have brought, as `history` tells."""
    told: list[dict[str, Any]] = json.loads(place.run("history", key, "--json", definitions=definitions).stdout)[
        "operations"
    ]
    return sum(one["rows_after"] or 0 for one in told if one["what"] == "live batches")
