"""The nightly look where it cannot look: nothing that was not seen is green, and no table spoils another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from backfill_assets.assets import reconciliation
from tests.assets.test_reconciliation import DAY_1, evaluation_of
from tests.support.launching import ORDERS, TOTALS, Lake, Ran, new_lake
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
def test_a_lakehouse_that_is_not_there_is_not_green(tmp_path: Path, spark: Any):
    """Neither source nor table nor receipts: whoever looks at another root, or before it is mounted, finds nothing to blame."""
    lake = new_lake(tmp_path)
    lake.export(DAY_1, orders(DAY_1))
    assert lake.launch(DAY_1, tables=(ORDERS, TOTALS)).succeeded
    for part in ("landing", "tables"):
        (lake.root / part).rename(lake.root / f"{part}_away")
    seen = lake.watch()
    for table in (ORDERS, TOTALS):
        found = evaluation_of(seen, table)
        assert not found.passed
        assert f"`{table}`: Dagster knows of 1 published partitions, and there is neither a table at" in str(
            found.description
        )
    for part in ("landing", "tables"):
        (lake.root / f"{part}_away").rename(lake.root / part)
    assert evaluation_of(lake.watch()).passed


def watched(lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[Ran, dg.AssetCheckEvaluation]:
    """The nightly look where that at the orders ends with an error; the check of the other table passes, theirs does not."""
    lake.export(DAY_1, orders(DAY_1))
    assert lake.launch(DAY_1, tables=(ORDERS, TOTALS)).succeeded
    look = reconciliation.look_at_table

    def faulty(instance: Any, table: Any, *others: Any) -> Any:
        if table.spec.key == ORDERS:
            raise error
        return look(instance, table, *others)

    monkeypatch.setattr(reconciliation, "look_at_table", faulty)
    seen = lake.watch()
    assert evaluation_of(seen, TOTALS).passed
    found = evaluation_of(seen)
    assert not found.passed
    return seen, found


@pytest.mark.prove
def test_an_error_that_nobody_foresaw_spoils_no_other_table(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    """A fault of ours, or of a library: the check of its table fails with the error's type, and the log says where it arose."""
    seen, found = watched(new_lake(tmp_path), monkeypatch, ValueError("substring not found"))
    what = "`bronze/orders` could not be looked at: ValueError: substring not found."
    assert str(found.description).startswith(f"{what} Nothing was changed.")
    assert f"{what}\nTraceback" in seen.log
    assert "in faulty" in seen.log
