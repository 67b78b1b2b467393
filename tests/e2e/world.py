"""TheWorldShop's own definitions, in a lakehouse and a history of their own, run by real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from backfill_assets.core.spec.table import TableSpec
from tests.support.interpreted import extra_conf
from tests.support.launching import Lake
from tests.support.shop import Row, content, files_by_partition, folder_of, multiset, write_parquet

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MODULE = "backfill_assets.definitions"
ORDERS, SALES = "bronze/orders", "silver/daily_sales"

SCHEMA = pa.schema(
    {
        "order_id": pa.int64(),
        "customer_id": pa.int64(),
        "customer_name": pa.string(),
        "country": pa.string(),
        "ordered_at": pa.timestamp("us", "UTC"),
        "amount": pa.decimal128(18, 2),
        "currency": pa.string(),
        "status": pa.string(),
        "updated_at": pa.timestamp("us", "UTC"),
    }
)


def shop_orders(day: str, count: int = 3, **same: Any) -> list[Row]:
    """A few of the shop's orders of one day; `same` gives all of them a value."""
    first = date.fromisoformat(day)
    start = datetime(first.year, first.month, first.day, 8, tzinfo=UTC)
    return [
        {
            "order_id": first.toordinal() * 100 + i,
            "customer_id": i,
            "customer_name": f"customer {i}",
            "country": "DE",
            "ordered_at": start + timedelta(hours=i),
            "amount": Decimal(f"{i + 1}.50"),
            "currency": "EUR",
            "status": "paid",
            "updated_at": start + timedelta(hours=i, minutes=1),
            **same,
        }
        for i in range(count)
    ]


def expected(*days: str, count: int = 3, **same: Any) -> Counter[tuple[Any, ...]]:
    """The rows of some days, as they should be in the table."""
    return multiset((row for day in days for row in shop_orders(day, count, **same)), SCHEMA.names)


class ShopLake(Lake):
    """The shop's tables, launched in this process over the same lakehouse and history."""

    @property
    def definitions(self) -> dg.Definitions:
        from backfill_assets.definitions import defs

        return defs(None)

    @property
    def spec(self) -> TableSpec:
        raise NotImplementedError("the shop's specs are in its YAML")


@dataclass(frozen=True)
class World:
    """One lakehouse and one DAGSTER_HOME.

    Args:
        settings: Of a Spark Connect server, if its processes are to borrow sessions there.
    """

    root: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "dagster_home"

    @property
    def lakehouse(self) -> Path:
        return self.root / "lakehouse"

    @property
    def environment(self) -> dict[str, str]:
        warehouse = {"spark.sql.warehouse.dir": f"{self.root / 'warehouse'}"}
        own = {"SPARK_MASTER": "local[2]", "SPARK_EXTRA_CONF": extra_conf(warehouse)}
        return {
            **{name: value for name, value in os.environ.items() if name != "DAGSTER_EVENT_BATCH_SIZE"},
            "DAGSTER_HOME": str(self.home),
            "LAKEHOUSE_ROOT": str(self.lakehouse),
            "SPARK_DRIVER_MEMORY": "1g",
            **(self.settings or own),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "COLUMNS": "160",
        }

    def copy(self, root: Path) -> World:
        """Return a copy, history included."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return World(root, self.settings)

    # -- the source ----------------------------------------------------------------------------------------------------

    def export(self, day: str, rows: list[Row]) -> None:
        """What the old system has of one day."""
        write_parquet(folder_of(self.lakehouse / "landing/orders", day), rows, schema=SCHEMA)

    # -- processes -----------------------------------------------------------------------------------------------------

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in a process of its own."""
        program = str(BIN / command[0])
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def dg_launch(self, keys: str, partition_range: str) -> subprocess.CompletedProcess[str]:
        return self.run("dg", "launch", "-m", MODULE, "--assets", keys, "--partition-range", partition_range)

    def dagster_materialize(self, keys: str, partition_range: str) -> subprocess.CompletedProcess[str]:
        return self.run(
            "dagster", "asset", "materialize", "-m", MODULE, "--select", keys, "--partition-range", partition_range
        )

    @contextmanager
    def here(self) -> Iterator[ShopLake]:
        """Open the same history and lakehouse in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("DAGSTER_HOME", "LAKEHOUSE_ROOT"):
                patch.setenv(name, self.environment[name])
            with dg.DagsterInstance.get() as instance:
                yield ShopLake(self.lakehouse, instance)

    # -- what is there afterwards --------------------------------------------------------------------------------------

    def path(self, table: str = ORDERS) -> Path:
        return self.lakehouse / "tables" / table

    def content(self, days: Iterable[str] | None = None) -> Counter[tuple[Any, ...]]:
        """The orders in the table, of some days or all, as delta-rs reads them."""
        rows = content(self.path(), SCHEMA.names)
        at = SCHEMA.names.index("ordered_at")
        return (
            rows if days is None else Counter({row: n for row, n in rows.items() if str(row[at].date()) in set(days)})
        )

    def files(self) -> dict[str, set[str]]:
        return files_by_partition(self.path())

    def shown(self, *days: str, table: str = ORDERS) -> dict[str, str]:
        """How Dagster shows each partition."""
        with self.here() as lake:
            return lake.shown(*days, table=table)


def new_world(root: Path, settings: Mapping[str, str] | None = None) -> World:
    """Return an empty lakehouse and a DAGSTER_HOME with the project's settings, as `make setup` makes it."""
    world = World(root, settings or {})
    world.home.mkdir(parents=True)
    shutil.copy(ROOT / "dagster.yaml", world.home)
    return world
