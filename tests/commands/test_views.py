"""`backfill-assets views`: it prints statements and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.assets.factory import tables_of
from backfill_assets.definitions import defs
from backfill_assets.live.changes.table import ChangesTable, Reach
from tests.commands.places import new_place

pytestmark = pytest.mark.spark


def test_views_of_tables_and_of_raw_changes(spark, tmp_path, monkeypatch):
    """A table or a feed that does not exist yet is a comment, and a name that does not exist is refused."""
    monkeypatch.delenv("SHOP_DATABASE", raising=False)
    place, shop = new_place(tmp_path), defs(None)
    refused = place.run("views", "bronze/nothing", definitions=shop)
    assert (refused.exit_code, refused.stdout, "There is no table" in refused.stderr) == (2, "", True)
    remarks = [line for line in place.run("views", definitions=shop).stdout.splitlines() if line.startswith("--")]
    assert "-- bronze/orders has no view: no launch has made it yet" in remarks
    assert "-- bronze/customers_from_changes has no view: its feed has brought nothing yet" in remarks
    tables, _ = tables_of(shop)
    changes = ChangesTable(spark, tables["bronze/customers"].spec, str(place.elsewhere / "tables/bronze/customers"))
    changes.create()
    changes.append(None, Reach(4711, 5000, datetime.now(UTC)))
    for dialect, rows in (("spark", f"delta.`{changes.path}`"), ("duckdb", f"delta_scan('{changes.path}')")):
        shown = place.run("views", "bronze/customers", "--dialect", dialect, definitions=shop)
        assert shown.exit_code == 0
        assert f"SELECT * FROM {rows} WHERE after_position >= 4711" in shown.stdout
        assert "bronze/orders" not in shown.stdout
