"""Tables over other tables: a transform, its spec, and inputs with true receipts."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.tables import TablesSpec
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.tables import TablesSource, Transform
from tests.support.shop import Row, frame_of, orders_spec, receipt_for

SALES = {"day": "date", "orders": "bigint", "revenue": "decimal(28,2)"}


def daily_sales(bronze: DataFrame) -> DataFrame:
    """One row for each day."""
    by_day = bronze.groupBy(F.to_date("ordered_at").alias("day"))
    return by_day.agg(F.count("*").alias("orders"), F.sum("amount").cast("decimal(28,2)").alias("revenue"))


def sales_spec(**changes: Any) -> TableSpec:
    facts = {
        "key": "silver/sales",
        "columns": SALES,
        "key_columns": ["day"],
        "event_time": "day",
        "source": {"kind": "delta", "tables": ["bronze/orders"]},
    }
    return orders_spec(**{**facts, **changes})


def publish(table: LakeTable, rows: dict[str, list[Row]], receipt_id: str) -> None:
    """Put rows into a table as a launch would, with true receipts."""
    named = [table.spec.grid.partition(key) for key in rows]
    frame = frame_of(table.spark, table.spec, [row for part in rows.values() for row in part])
    receipts = {key: PartitionReceipt(len(part), "", None, None, "", 0) for key, part in rows.items()}
    staged = StagedChunk(frame, {}, {}, None, lambda: None)
    table.overwrite(staged, named, receipt_for(table, named, receipt_id, partitions=receipts))


def source_of(spec: TableSpec, *inputs: LakeTable, transform: Transform | None = None) -> TablesSource:
    assert isinstance(spec.source, TablesSpec)
    return TablesSource(spec, spec.source, list(inputs), transform)


def days(spec: TableSpec, first: str, last: str | None = None) -> list[Partition]:
    return spec.grid.between(first, last or first)
