"""Tables over files of any layout, and rows for a month or some hours."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from tests.support.shop import Row, orders, orders_spec


def files_spec(*, grain: str = "daily", time_zone: str = "UTC", start: str = "2024-01-01", **source: Any) -> TableSpec:
    facts = {"kind": "files", "path": "orders", "format": "parquet", **source}
    return orders_spec(source=facts, grain=grain, time_zone=time_zone, start=start)


def table_of(spark: SparkSession, spec: TableSpec, path: Path) -> LakeTable:
    table = LakeTable(spark, spec, str(path))
    table.create()
    return table


def days_of_month(month: str, days: int, count: int = 1) -> list[Row]:
    return [row for day in range(1, days + 1) for row in orders(f"{month}-{day:02}", count)]


def hours(first: datetime, count: int) -> list[Row]:
    """One order in each hour, half past."""
    return [
        {
            "order_id": i,
            "customer": "c",
            "amount": Decimal("1.00"),
            "ordered_at": first + timedelta(hours=i, minutes=30),
        }
        for i in range(count)
    ]
