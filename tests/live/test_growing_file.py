"""A file that landed too early: whoever writes it goes on while the stream reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backfill_assets.live.changed_files import changed_since_listed
from backfill_assets.live.live_table import LiveTable
from tests.support.live_shop import event

pytestmark = pytest.mark.spark


@pytest.mark.prove
def test_a_file_that_grows_while_it_is_read_is_named(shop, monkeypatch):
    """The batch has what was counted, whole lines of it and each once; what came later is in no table, and the file is named."""
    landed = shop.land(event(1, "2024-01-05T10:00:00"), event(2, "2024-01-02T11:00:00"))
    append = LiveTable.append

    def grow_and_append(table: LiveTable, *arguments: Any) -> bool:
        with landed.open("a") as file:
            file.write(json.dumps(event(3, "2024-01-05T12:00:00")) + '\n{"order_id": 4, "am')
        return append(table, *arguments)

    monkeypatch.setattr(LiveTable, "append", grow_and_append)
    shop.stream()
    monkeypatch.setattr(LiveTable, "append", append)
    shop.stream()
    assert (shop.ids(), shop.ids("_late")) == ([1], [2])
    assert [report.receipt.rows for report in shop.reports] == [1]
    assert not shop.path.with_name("orders_quarantine").exists()
    found = changed_since_listed(
        shop.spark, str(shop.root / "checkpoints"), shop.table.fence().stream, str(shop.landing)
    )
    assert found is not None
    assert [file.path for file in found[0]] == [f"file:{landed}"]
