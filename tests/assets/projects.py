"""Tables in YAML, and projects of their own that load them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from backfill_assets.assets.lakehouse import load_tables
from backfill_assets.errors import TableSpecError

ORDERS = """\
type: backfill_assets.LakehouseTable
attributes:
  key: bronze/orders
  columns:
    order_id: bigint not null
    ordered_at: timestamp
    amount: decimal(18,2)
  key_columns: [order_id]
  event_time: ordered_at
  grain: daily
  start: 2024-01-01
  source:
    kind: files
    path: orders
    format: parquet
"""
TOTALS = """\
type: backfill_assets.LakehouseTable
attributes:
  key: silver/totals
  columns:
    day: date
    orders: bigint
  event_time: day
  grain: daily
  start: 2024-01-01
  source:
    kind: delta
    tables: [bronze/orders]
    transform: .transform.totals
"""
TRANSFORM = '''\
"""The rows of silver/totals."""

from pyspark.sql import functions as F


def totals(orders):
    """Return one row a day."""
    return orders.groupBy(F.to_date("ordered_at").alias("day")).agg(F.count("*").alias("orders"))
'''


@dataclass
class Project:
    """A project of its own, as somebody who copies the reference lakehouse has it."""

    root: Path
    package: str

    def write(self, path: str, text: str) -> Path:
        file = self.root / self.package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def load(self) -> dg.Definitions:
        return load_tables(self.root / self.package)

    def refused(self) -> list[str]:
        """What is wrong, one line each, as the loader says it."""
        with pytest.raises(TableSpecError) as refused:
            self.load()
        assert "Nothing was loaded." in str(refused.value)
        problems: list[str] = refused.value.facts["problems"]
        assert all(problem in str(refused.value) for problem in problems)
        return problems


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def asset_of(definitions: dg.Definitions, key: str) -> dg.AssetsDefinition:
    (found,) = [
        asset
        for asset in definitions.assets or []
        if isinstance(asset, dg.AssetsDefinition) and asset.key.to_user_string() == key
    ]
    return found
