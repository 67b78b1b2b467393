"""Guards on measures, in real launches: what is not as expected is not published, and what was measured is seen."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from tests.support.launching import new_lake
from tests.support.shop import multiset, opened, orders

DAYS = ["2024-01-01", "2024-01-02"]
EXPECT = [{"measure": "sum(amount)", "within": 0.1}, {"measure": "null_share(amount)", "at_most": 0.5}]


def halved(rows):
    return [{**row, "amount": (row["amount"] / 2).quantize(Decimal("0.01"))} for row in rows]


@pytest.mark.prove
def test_a_damaged_day_is_written_anew_in_spite_of_a_guard(tmp_path):
    """What the table has of it cannot be read, so there is nothing to compare with."""
    lake = new_lake(tmp_path, expect=EXPECT)
    lake.export(DAYS[0], orders(DAYS[0], 10))
    assert lake.launch(DAYS[0]).succeeded
    for name in lake.files()[DAYS[0]]:
        (lake.path() / name).unlink()
    assert lake.launch(DAYS[0]).succeeded
    assert lake.content() == multiset(orders(DAYS[0], 10))


def test_halved_revenue_is_blocked(tmp_path):
    """A logic bug that halves revenue: the day stays, the check says from what to what, and a person may let it in."""
    lake = new_lake(tmp_path, expect=EXPECT)
    for day in DAYS:
        lake.export(day, orders(day, 10))
    first = lake.launch(DAYS[0], DAYS[-1])
    assert first.succeeded
    total = float(sum(row["amount"] for row in orders(DAYS[0], 10)))
    assert first.metadata(DAYS[0])["sum(amount)"] == total, "a number, so that Dagster plots it"
    assert first.evaluations()[DAYS[0]].metadata["sum(amount)"].value == total
    before = lake.files()
    lake.export(DAYS[1], halved(orders(DAYS[1], 10)))
    refused = lake.launch(DAYS[0], DAYS[-1])
    assert not refused.succeeded
    assert "measures_are_as_expected" in refused.failure
    assert "`allow_unexpected: true` in the launch's config" in refused.failure
    assert refused.verdicts() == {DAYS[0]: True, DAYS[1]: False}
    said = refused.evaluations()[DAYS[1]].metadata["measures_are_as_expected"].value
    assert "in the table and" in said
    assert lake.files() == before
    assert lake.launch(DAYS[1], allow_unexpected=True).succeeded
    assert lake.content() == multiset([*orders(DAYS[0], 10), *halved(orders(DAYS[1], 10))])
    rows = [row for row in opened(f"{lake.path()}_history").to_pyarrow_table().to_pylist() if row["what"] == "publish"]
    told = json.loads(max(rows, key=lambda row: row["version"])["detail"])["measures"]
    assert [(name, before is not None) for name, _, before, _ in told] == [
        ("sum(amount)", True),
        ("null_share(amount)", False),
    ]
