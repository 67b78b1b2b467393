"""`preview`: one partition as a launch would make it, with its rows, its counters and its audit; nothing is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.commands.places import Place, below, new_place
from tests.support.launching import ORDERS
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAY, BAD, BEYOND = "2024-01-01", "2024-01-02", "2024-01-03"


@pytest.fixture
def place(tmp_path) -> Place:
    """A good day, and one with a key that comes twice."""
    place = new_place(tmp_path)
    place.lake.export(DAY, orders(DAY, 4, customer=None))
    place.lake.export(BAD, orders(BAD, 4, order_id=7))
    return place


def preview(place: Place, day: str, *more: str, code: int = 0, table: str = ORDERS) -> Any:
    result = place.run("preview", table, "--partition", day, "--json", *more)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_partition_is_shown_as_it_would_be(place):
    """Typed values, as many rows as asked for, what was counted; a launch then does what was said, and is told identical."""
    before = below(place.lake.root)
    found = preview(place, DAY, "--rows", "3")
    assert below(place.lake.root) == before
    assert found["columns"][:3] == [
        {"name": "order_id", "type": "bigint"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "decimal(18,2)"},
    ]
    first = orders(DAY, 4)[0]
    assert sorted(found["rows"])[0] == [str(first["order_id"]), None, "0.25", "2024-01-01 00:00:00Z"]
    assert (len(found["rows"]), found["passed"], found["identical"]) == (3, True, False)
    assert found["counters"] == {
        "source_rows": 4,
        "late_rows": 0,
        "superseded_rows": 0,
        "unreadable_rows": 0,
        "rows_then": 4,
        "rows_now": 0,
    }
    assert place.lake.launch(DAY).succeeded
    assert preview(place, DAY)["identical"]
    shown = place.run("preview", ORDERS, "--partition", DAY)
    assert (shown.exit_code, "identical: not written" in shown.stdout, "NULL" in shown.stdout) == (0, True, True)


def test_what_would_be_refused_says_why(place):
    """The exit code is 1, and the rows are there to look at."""
    found = preview(place, BAD, code=1)
    assert (found["passed"], len(found["rows"])) == (False, 4)
    assert "`order_id`" in " ".join(found["findings"]) or "twice" in " ".join(found["findings"])


@pytest.mark.prove
def test_what_cannot_be_read_is_an_error(place):
    """A day that the source has not completed, and what is no day of the table."""
    for wrong, said in ((BEYOND, "is complete up to"), ("yesterday", "yesterday")):
        result = place.run("preview", ORDERS, "--partition", wrong)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
