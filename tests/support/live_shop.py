"""A shop with a live stream for the tests: events are landed as files, history as an export, tables read with delta-rs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from backfill_assets.core.live.fence_moves import Move, move_fence
from backfill_assets.core.live.ports import Effects
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.live_table import LiveTable
from backfill_assets.live.writer import BatchReport, LiveWriter
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import folder_of, launch, write_parquet

SCHEMA = pa.schema(
    {
        "order_id": pa.int64(),
        "amount": pa.decimal128(18, 2),
        "ordered_at": pa.timestamp("us", "UTC"),
        "updated_at": pa.timestamp("us", "UTC"),
    }
)
NOW = datetime(2024, 1, 6, 12, tzinfo=UTC)
"""The time of day in these tests; the fence is at 2024-01-04."""


def live_spec(**changes: Any) -> TableSpec:
    facts: dict[str, Any] = {
        "key": "bronze/orders",
        "columns": {
            "order_id": "bigint",
            "amount": "decimal(18,2)",
            "ordered_at": "timestamp",
            "updated_at": "timestamp",
        },
        "key_columns": ["order_id"],
        "latest_wins_by": ["updated_at"],
        "event_time": "ordered_at",
        "grain": "daily",
        "start": "2024-01-01",
        "source": {"kind": "files", "path": "orders", "format": "parquet"},
        "live": {"path": "events", "starts": "2024-01-04", "trigger_seconds": 0.2},
    }
    return TableSpec.model_validate({**facts, **changes})


def event(order_id: int, ordered_at: str, *, amount: str = "1.00", updated_at: str | None = None) -> dict[str, Any]:
    """One order as it lands; times are ISO without a zone and mean UTC."""
    return {
        "order_id": order_id,
        "amount": amount,
        "ordered_at": f"{ordered_at}Z",
        "updated_at": f"{updated_at or ordered_at}Z",
    }


@dataclass
class Shop:
    """One table with a live stream below a root of its own."""

    spark: Any
    root: Path
    spec: TableSpec = field(default_factory=live_spec)
    reports: list[BatchReport] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.now = NOW
        self.numbers = count()
        self.landing.mkdir(parents=True, exist_ok=True)

    @property
    def landing(self) -> Path:
        return self.root / "landing" / "events"

    @property
    def path(self) -> Path:
        return self.root / "tables" / "bronze" / "orders"

    @property
    def delta(self) -> LakeTable:
        return LakeTable(self.spark, self.spec, str(self.path), self.said.append, lock_timeout_seconds=20)

    @property
    def table(self) -> LiveTable:
        return LiveTable(self.delta)

    @property
    def effects(self) -> Effects:
        return Effects(log=self.said.append, sleep=lambda _: None, now=lambda: self.now, wait_seconds=0)

    def writer(self, **changes: Any) -> LiveWriter:
        facts = {
            "checkpoint": str(self.root / "checkpoints"),
            "report": self.reports.append,
            "effects": self.effects,
            **changes,
        }
        return LiveWriter(self.table, self.spec.live, str(self.landing), **facts)

    def land(self, *events: dict[str, Any] | str) -> Path:
        """Land events as one file, by a rename."""
        path = self.landing / f"{next(self.numbers):04d}.json"
        hidden = path.with_name("." + path.name)
        hidden.write_text(
            "".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events), encoding="utf-8"
        )
        hidden.rename(path)
        return path

    def stream(self, **changes: Any) -> int:
        """Write all that has landed."""
        return self.writer(**changes).run(once=True)

    def export(self, day: str, *orders: dict[str, Any]) -> None:
        """Export one day of history, the whole of it."""
        rows = [
            {
                **order,
                "amount": Decimal(order["amount"]),
                "ordered_at": datetime.fromisoformat(order["ordered_at"]),
                "updated_at": datetime.fromisoformat(order["updated_at"]),
            }
            for order in orders
        ]
        write_parquet(folder_of(self.root / "landing" / "orders", day), rows, schema=SCHEMA)

    def launch(self, first: str, last: str, **changes: Any) -> Any:
        """Launch a range of history; returns its outcomes."""
        delta = self.delta
        delta.create()
        source = FilesSource(
            self.spark, self.spec, self.spec.source, str(self.root / "landing" / "orders"), self.said.append
        )
        return launch(delta, source, self.spec.grid.between(first, last), log=self.said.append, **changes)

    def move(self, at: str) -> Move:
        return move_fence(self.spec, self.table, datetime.fromisoformat(at), self.effects)

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        """What a table holds, read with delta-rs."""
        return deltalake.DeltaTable(f"{self.path}{suffix}").to_pyarrow_table().to_pylist()

    def ids(self, suffix: str = "") -> list[int]:
        return sorted(row["order_id"] for row in self.rows(suffix))
