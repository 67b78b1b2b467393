"""Reconciliation keeps rows only where it has to name some."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reconcile import reconcile
from tests.support.fake_lake import FakeLake
from tests.support.fakes import ORDERS, FakeSource, files_of, orders_of

DAYS = ORDERS.grid.between("2024-02-27", "2024-03-01")
LEAP_DAY = DAYS[2]


class OfOneCall(FakeSource):
    """Makes all rows of a chunk in one call of a transform."""

    def makes_chunks_at_once(self):
        return True


@pytest.mark.parametrize(("kind", "read_again"), [(FakeSource, [LEAP_DAY]), (OfOneCall, DAYS)])
def test_only_what_differs_is_read_again(kind, read_again):
    """Rows are kept only where some have to be named; of what is made in one call, all that was made together."""
    source, lake = kind(ORDERS, files_of(ORDERS, "2024-02-27", "2024-03-01")), FakeLake(ORDERS)
    list(materialize(ORDERS, DAYS, source, lake, Launch("run", "run", code_version="1")))
    lake.commit_as_somebody_else({LEAP_DAY.key: orders_of(ORDERS, LEAP_DAY.key)[1:]})
    staged, really = [], lake.stage

    def noting(scan, *arguments, **how):
        found = really(scan, *arguments, **how)
        staged.append((sorted(found.tallies), found.kept is not None))
        return found

    lake.stage = noting
    (found,) = [c for c in reconcile(ORDERS, DAYS, source, lake, code_version="1") if not c.passed]
    assert found.partition == LEAP_DAY
    assert str(found.failures[0]).endswith("For example: row of 2024-02-29.")
    assert staged == [([day.key for day in DAYS], False), ([day.key for day in read_again], True)]
