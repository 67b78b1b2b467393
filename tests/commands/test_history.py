"""`history`: every publish, undo, refusal and stop of a table, and what others did to it, in one list."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.commands.places import Place, below, copied, new_place
from tests.support.launching import ORDERS
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 5)]


def history(place: Place, *more: str) -> list[dict[str, Any]]:
    """The operations of a table, the oldest first."""
    result = place.run("history", ORDERS, "--json", *more)
    assert result.exit_code == 0, result.output
    return list(reversed(json.loads(result.stdout)["operations"]))


@pytest.fixture(scope="module")
def at_first(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Place:
    """A launch in two chunks; one that was refused a day; one that failed; somebody's delete; and an undo."""
    place = new_place(tmp_path_factory.mktemp("place"))
    lake = place.lake
    for day in DAYS:
        lake.export(day, orders(day, 4))
    assert lake.launch(DAYS[0], DAYS[-1], reason="first load", max_partitions_per_chunk=2).succeeded
    lake.export(DAYS[0], orders(DAYS[0], 4, amount=Decimal("9.99")))
    lake.export(DAYS[1], orders(DAYS[1], 1))
    refused = lake.launch(DAYS[0], DAYS[1])
    assert not refused.succeeded
    (lake.root / "landing/orders").rename(lake.root / "landing/away")
    assert not lake.launch(DAYS[2], reason="too early").succeeded
    (lake.root / "landing/away").rename(lake.root / "landing/orders")
    deltalake.DeltaTable(str(lake.path())).delete(f"dt = '{DAYS[3]}'")
    assert place.run("undo", refused.run.run_id, "--reason", "wrong amounts").exit_code == 0
    return place


@pytest.fixture
def place(at_first: Place, tmp_path: Path) -> Place:
    return copied(at_first, tmp_path)


@pytest.mark.prove
def test_everything_is_told_and_nothing_written(place):
    """What, which partitions, rows before and after, by whom, why; commits of one launch are one; it outlives the log."""
    before = below(place.lake.root)
    found = history(place)
    assert below(place.lake.root) == before
    assert [one["what"] for one in found] == [
        *("made", "published", "published", "refused", "failed", "somebody else", "undone")
    ]
    _, first, second, refused, failed, theirs, undone = found
    assert (first["versions"], first["partitions"], first["rows_before"], first["rows_after"]) == ([1, 2], DAYS, 0, 16)
    assert (first["reason"], bool(first["by"]), first["seconds"] > 0) == ("first load", True, True)
    assert (second["partitions"], second["rows_before"], second["rows_after"]) == ([DAYS[0]], 4, 4)
    assert refused["partitions"] == [DAYS[1]]
    assert "max_shrink" in refused["why"]
    assert (failed["reason"], "landing/orders" in failed["why"], failed["versions"]) == ("too early", True, None)
    assert theirs["why"] == "DELETE"
    assert (undone["partitions"], undone["reason"]) == ([DAYS[0]], "wrong amounts")

    assert [one["what"] for one in history(place, "--partition", DAYS[1])] == [
        *("made", "published", "refused", "failed", "somebody else")
    ]
    kept = {one["what"]: one["undo_until"] and datetime.fromisoformat(one["undo_until"]) for one in found}
    assert {what for what, until in kept.items() if until} == {"published", "undone"}
    assert 29 <= (kept["undone"] - datetime.now(UTC)).days <= 30
    shown = place.run("history", ORDERS, "--newest", "3")
    assert f"The newest launch can be undone until {kept['undone']:%Y-%m-%d}." in shown.output
    assert "... and 4 older ones" in shown.output

    rows = deltalake.DeltaTable(f"{place.lake.path()}_history").to_pyarrow_table().to_pylist()
    told = [(one["what"], one["partition"]) for one in rows if one["what"] in ("failed", "refused")]
    assert sorted(told, key=str) == [("failed", None), ("refused", DAYS[1])]


@pytest.mark.prove
def test_what_a_cleaned_log_has_told_is_told_all_the_same(place):
    """Also what others did, which no receipt names; another reader finds it."""
    log, copy = place.lake.path() / "_delta_log", f"{place.lake.path()}_history"
    commits = sorted(log.glob("*.json"))
    assert place.lake.launch(DAYS[2], only="MISSING").succeeded
    before = history(place)
    deltalake.DeltaTable(str(place.lake.path())).create_checkpoint()
    for file in [*commits[:-1], *log.glob("*.crc")]:
        file.unlink()
    assert history(place) == before
    rows = deltalake.DeltaTable(copy).to_pyarrow_table().to_pylist()
    told = sorted((one["version"], json.loads(one["detail"])["operation"]) for one in rows if one["what"] == "commit")
    assert [version for version, _ in told] == list(range(len(commits)))
    assert {"CREATE TABLE", "DELETE"} <= {operation for _, operation in told}


def test_a_table_that_was_never_made_has_no_history(tmp_path):
    """Looking at it makes nothing."""
    place = new_place(tmp_path)
    assert history(place) == []
    assert not place.lake.path().exists()
