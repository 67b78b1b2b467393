"""Kinds of source that are tables of this lakehouse: what is committed there can be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.lake.table import LakeTable
from tests.contracts.sources import DAYS, ONE_MORE, RAW, Kind, built
from tests.support.shop import COLUMNS, Row, frame_of, orders_spec, receipt_for


def filled(spark: SparkSession, root: Path) -> tuple[LakeTable, Callable[[str, Sequence[Row]], None]]:
    """Return a table of the orders, and what publishes one more row or another one on a day of it."""
    below = LakeTable(spark, orders_spec(key_columns=[]), f"{root}/bronze")
    below.create()

    def publish(rows: dict[str, list[Row]], receipt_id: str) -> None:
        named = [below.spec.grid.partition(day) for day in rows]
        receipts = {day: PartitionReceipt(len(rows[day]), "", None, None, "", 0) for day in rows}
        frame = frame_of(spark, below.spec, [row for day in rows for row in rows[day]])
        staged = StagedChunk(frame, {}, {}, None, lambda: None)
        below.overwrite(staged, named, receipt_for(below, named, receipt_id, partitions=receipts))

    publish(RAW, "r0")
    return below, lambda day, more: publish({day: [*RAW[day], *more]}, f"r{below.version()}")


def table(spark: SparkSession, root: Path) -> Kind:
    """Another table."""
    below, publish = filled(spark, root)
    source = {"kind": "delta", "tables": ["bronze/orders"]}
    spec = orders_spec(key="silver/orders", latest_wins_by=["amount"], source=source)
    return Kind(spec, built(spark, spec, root, below), root, add=lambda: publish(DAYS[2], [ONE_MORE]), spoil=None)


def version(spark: SparkSession, root: Path) -> Kind:
    """The version before of the same table, with amounts that may not fit any more."""
    below, publish = filled(spark, root)
    spec = orders_spec(
        key="bronze/orders__v2",
        columns={**COLUMNS, "amount": "decimal(6,2)"},
        latest_wins_by=["amount"],
        source={"kind": "version", "table": "bronze/orders"},
        version_of={"table": "bronze/orders", "cast": ["amount"]},
    )
    return Kind(
        spec,
        built(spark, spec, root, below),
        root,
        add=lambda: publish(DAYS[2], [ONE_MORE]),
        spoil=lambda: publish(DAYS[0], [{**RAW[DAYS[0]][0], "amount": Decimal("1234567.89")}]),
        spoiled=AuditRule.VALUES_FIT_THEIR_TYPES,
        is_counted=False,
    )
