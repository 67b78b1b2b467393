"""Each reason for a backfill, on one table: a launch of what is missing writes the partitions that the reason is about."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from backfill_assets.lake.evolution import evolve
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import COLUMNS, folder_of, launch, orders, orders_spec, published_keys, rows_in, write_parquet

DAYS = ["2023-12-31", "2024-01-01", "2024-01-02"]


def test_each_reason_launches_its_own_partitions(spark, tmp_path):
    """A new source, days before the start, a corrected day, and new code with a new column."""
    landing, path = tmp_path / "landing", f"{tmp_path}/orders"

    def launched(code_version: str = "1", **changes: Any) -> list[str]:
        table = LakeTable(spark, orders_spec(**changes), path)
        table.create()
        source = FilesSource(spark, table.spec, table.spec.source, str(landing))
        partitions = table.spec.grid.between(str(table.spec.start), DAYS[-1])
        return published_keys(launch(table, source, partitions, only="missing", code_version=code_version))

    for day in DAYS:
        write_parquet(folder_of(landing, day), orders(day))
    assert launched() == DAYS[1:], "a new source is loaded from its beginning"
    earlier = {"start": DAYS[0]}
    assert launched(**earlier) == DAYS[:1], "days that the table did not have are history that was missing"
    write_parquet(folder_of(landing, DAYS[1]), orders(DAYS[1], amount=Decimal("7.50")))
    assert launched(**earlier) == DAYS[1:2], "a corrected day alone is read again"
    wider = {**earlier, "columns": {**COLUMNS, "note": {"type": "string", "optional": True}}}
    evolve(LakeTable(spark, orders_spec(**wider), path))
    assert launched("2", **wider) == DAYS, "other code makes all of history again"
    assert launched("2", **wider) == []

    rows = rows_in(path)
    assert len(rows) == 9
    assert {row["amount"] for row in rows if row["order_id"] in {o["order_id"] for o in orders(DAYS[1])}} == {
        Decimal("7.50")
    }
    assert {row["note"] for row in rows} == {None}
