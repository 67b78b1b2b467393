"""How much of a partition may differ: nothing, unless a spec says so, and what it lets pass is said."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.comparison import Comparison
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reconcile import reconcile
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, FakeSource, files_of, launch_with, orders_of, spec_with

DAY = ORDERS.grid.partition("2024-02-29")


def compared(differing: int, **tolerance: float) -> Comparison:
    """Hold a day of three rows against its source, so many of which somebody has changed in the table."""
    source, lake = FakeSource(ORDERS, files_of(ORDERS, DAY.key, DAY.key)), FakeLake(ORDERS)
    list(materialize(ORDERS, [DAY], source, lake, launch_with()))
    rows = orders_of(ORDERS, DAY.key)
    lake.commit_as_somebody_else({DAY.key: [{**r, "amount": 5} if n < differing else r for n, r in enumerate(rows)]})
    spec = spec_with(checks={"tolerance": tolerance}) if tolerance else ORDERS
    (found,) = reconcile(spec, [DAY], source, lake)
    return found


@pytest.mark.parametrize(
    ("differing", "tolerance", "passes"),
    [
        (1, {}, False),
        (1, {"rows": 1}, True),
        (2, {"rows": 1}, False),
        (1, {"share": 0.34}, True),
        (1, {"share": 0.33}, False),
        (2, {"rows": 1, "share": 1}, False),
        (2, {"rows": 2, "share": 0.7}, True),
    ],
)
def test_no_more_differs_than_is_let_pass(differing, tolerance, passes):
    """Up to the bound, included; with both bounds, up to the smaller. A row with another value counts once."""
    assert compared(differing, **tolerance).passed == passes


def test_what_is_let_pass_is_said():
    """With the rows that differ, as if it had failed; what does not differ says nothing."""
    found = compared(1, rows=1, share=0.5)
    assert found.tolerated.startswith("rows_match_source: both have 3 rows, but not the same: checksum `")
    assert found.tolerated.endswith(
        "1 rows only in the source, 1 only in the table. Let pass: `checks.tolerance` allows 1 rows and 0.5 of the "
        "source's rows. For example: row of 2024-02-29."
    )
    assert compared(0, rows=1).tolerated == compared(2, rows=1).tolerated == ""
