"""A project of its own whose table is made from its files, and launched."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from backfill_assets.cli import main
from backfill_assets.commands.project import Project as Loaded
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.runs.table import Table
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import launch, published_keys

FIRST, DAYS = date(2023, 1, 1), 5
DEFINITIONS = """\
from pathlib import Path

import dagster as dg

from backfill_assets.assets.lakehouse import lakehouse_definitions, load_tables


@dg.definitions
def defs():
    return lakehouse_definitions(load_tables(Path(__file__).parent))
"""


@dataclass
class Project:
    """A project of its own, with its own lakehouse."""

    root: Path
    spark: Any

    @property
    def landing(self) -> Path:
        return self.root / "lakehouse/landing"

    @property
    def yaml(self) -> Path:
        return self.root / "shop_of_schemas/defs/bronze/orders/defs.yaml"

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    def schema(self, *arguments: str) -> Result:
        return self.run("schema", "bronze/orders", "--definitions", "shop_of_schemas.definitions", *arguments)

    @property
    def table(self) -> Table:
        return Loaded.load("shop_of_schemas.definitions").table("bronze/orders").table

    def launch(self, last: date, **changes: Any) -> list[str]:
        table = self.table
        delta = LakeTable(self.spark, table.spec, f"{self.root}/lakehouse/tables/bronze/orders")
        delta.create()
        source = FilesSource(self.spark, table.spec, table.spec.source, f"{self.landing}/orders")
        named = table.spec.grid.between(FIRST.isoformat(), last.isoformat())
        return published_keys(launch(delta, source, named, code_version=table.code_version, **changes))

    @property
    def path(self) -> Path:
        return self.root / "lakehouse/tables/bronze/orders"


@dataclass(frozen=True)
class First:
    """A first `defs.yaml`, and what was in the table when it had been launched."""

    text: str
    spec: TableSpec
    content: Counter[tuple[Any, ...]]
