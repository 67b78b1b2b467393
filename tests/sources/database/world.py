"""A database of its own for a test, and a table of the lakehouse that is filled from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.outcomes import Outcome
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.context import SourceContext
from backfill_assets.sources.database.source import DatabaseSource, build
from tests.support import postgres
from tests.support.postgres import Server
from tests.support.shop import Row, launch, orders, orders_spec

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")


@dataclass(frozen=True)
class World:
    """One database and one table.

    Args:
        variable: Environment variable with the database's address.
    """

    spark: SparkSession
    server: Server
    name: str
    variable: str
    lake: LakeTable
    spec: TableSpec

    @property
    def source(self) -> DatabaseSource:
        """A source that has seen nothing yet."""
        assert self.spec.source.kind_name() == "jdbc"
        return build(self.spec.source, SourceContext(self.spec, self.spark, str))

    @property
    def partitions(self) -> list[Partition]:
        return self.spec.grid.between(DAYS[0], DAYS[-1])

    def launch(self, partitions: Sequence[Partition] | None = None, **how: Any) -> list[Outcome]:
        return launch(self.lake, how.pop("source", None) or self.source, partitions or self.partitions, **how)

    def execute(self, *statements: str) -> None:
        with self.server.connected(self.name) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def insert(self, rows: Sequence[Row], table: str = "orders") -> None:
        with self.server.connected(self.name) as connection:
            postgres.insert(connection, rows, table)

    def rows(self, table: str = "orders") -> list[Mapping[str, Any]]:
        with self.server.connected(self.name) as connection:
            return postgres.rows_of(connection, table)


def new_world(
    spark: SparkSession, root: Path, *, make: str = postgres.ORDERS, of: Mapping[str, Any] | None = None, **spec: Any
) -> World:
    """Make a database with a table in it, and the lakehouse's table.

    Args:
        make: Statements that make the database's table.
        of: More of the spec's `source`.
        spec: More of the spec.
    """
    name, variable = postgres.new_database()
    server = postgres.shared_server()
    with server.connected(name) as connection:
        connection.execute(make.encode())
    source = {"kind": "jdbc", "connection": variable, "table": "orders", **(of or {})}
    table = orders_spec(source=source, **spec)
    return World(spark, server, name, variable, LakeTable(spark, table, f"{root}/table"), table)


def shop(spark: SparkSession, root: Path, **spec: Any) -> World:
    """Three orders on each of four days."""
    world = new_world(spark, root, **spec)
    world.insert([row for day in DAYS for row in orders(day)])
    return world
