"""The contract of `Lake.measures`: the same of staged rows as of the table's, over lists and over Delta alike."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.contracts.lakes import DAYS, order, parts, publish, scan_of, spec_with, stage

DAY, OTHER, EMPTY_DAY = DAYS[:3]
FILES = {
    DAY: [order(1, DAY, amount="1.25"), order(2, DAY, amount="-0.05"), order(3, DAY, amount=None)],
    OTHER: [order(4, OTHER, amount=None, updated=None)],
}
EXPECTING = spec_with(
    expect=[
        {"measure": measure, "at_least": 0}
        for measure in ("count(*)", "sum(amount)", "avg(amount)", "min(amount)", "max(amount)", "null_share(amount)")
    ]
    + [{"measure": "sum(order_id)", "by": "amount", "at_least": 0}]
)
MEASURES = {
    DAY: {
        "count(*)": {"": 3},
        "sum(amount)": {"": Decimal("1.20")},
        "avg(amount)": {"": Decimal("0.6")},
        "min(amount)": {"": Decimal("-0.05")},
        "max(amount)": {"": Decimal("1.25")},
        "null_share(amount)": {"": Decimal(1) / 3},
        "sum(order_id) by amount": {"1.25": 1, "-0.05": 2, None: 3},
    },
    OTHER: {
        "count(*)": {"": 1},
        "sum(amount)": {"": None},
        "avg(amount)": {"": None},
        "min(amount)": {"": None},
        "max(amount)": {"": None},
        "null_share(amount)": {"": 1},
        "sum(order_id) by amount": {None: 4},
    },
}


def test_staged_rows_and_the_tables_measure_the_same(shop):
    """Exactly, by group, and NULL is a group; a partition without rows has no measures; versions keep theirs."""
    publish(shop, FILES)
    first = shop.lake.version()
    lake = shop.with_spec(EXPECTING)
    assert lake.measures(parts(DAY, OTHER, EMPTY_DAY)) == MEASURES
    with stage(shop, scan_of(shop, FILES)) as staged:
        assert lake.measures(parts(DAY), staged=staged) == {DAY: MEASURES[DAY]}
    publish(shop, {DAY: [order(1, DAY, amount="7")]})
    assert lake.measures(parts(DAY))[DAY]["sum(amount)"] == {"": 7}
    assert lake.measures(parts(DAY), version=first) == {DAY: MEASURES[DAY]}


@pytest.mark.prove
def test_a_table_that_was_never_made_measures_nothing(unmade):
    """Nor is it made by that."""
    assert unmade.with_spec(EXPECTING).measures(parts(DAY)) == {}
    assert not unmade.is_anything_there()
