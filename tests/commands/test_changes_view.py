"""`backfill-assets changes-view`: it prints statements and nothing else, or says why it has none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.assets.factory import tables_of
from backfill_assets.definitions import defs
from backfill_assets.live.changes.table import ChangesTable, Reach
from tests.commands.places import new_place

pytestmark = pytest.mark.spark


def test_the_command_prints_the_view(spark, tmp_path, monkeypatch):
    """Since the feed began, without asking the database; of a table without a feed, or of one that is empty, it says so."""
    monkeypatch.delenv("SHOP_DATABASE", raising=False)
    place, shop = new_place(tmp_path), defs(None)
    for key, words in (("bronze/orders", "has no `changes`"), ("bronze/customers", "has brought nothing yet")):
        refused = place.run("changes-view", key, definitions=shop)
        assert (refused.exit_code, refused.stdout, words in refused.stderr) == (2, "", True)
    tables, _ = tables_of(shop)
    changes = ChangesTable(spark, tables["bronze/customers"].spec, str(place.elsewhere / "tables/bronze/customers"))
    changes.create()
    changes.append(None, Reach(4711, 5000, datetime.now(UTC)))
    for dialect, rows in (("spark", f"delta.`{changes.path}`"), ("duckdb", f"delta_scan('{changes.path}')")):
        told = place.run("changes-view", "bronze/customers", "--dialect", dialect, definitions=shop)
        assert told.exit_code == 0
        assert f"SELECT * FROM {rows} WHERE after_position >= 4711" in told.stdout
