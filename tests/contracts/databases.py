"""Kinds of source that are tables of a PostgreSQL database: as it is now, and with the feed of its changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.core.history.audit import AuditRule
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.feed import FeedReader
from backfill_assets.live.changes.landed import CaptureTable
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import ChangesTable, Reach
from backfill_assets.sources.context import SourceContext
from backfill_assets.sources.database.connection import Database
from backfill_assets.sources.database.source import build
from tests.contracts.sources import DAYS, ONE_MORE, RAW, ROWS, Kind, built
from tests.support import postgres
from tests.support.shop import Row, orders_spec

NOT_A_NUMBER = {**RAW[DAYS[0]][0], "amount": Decimal("NaN")}


def new_orders(rows: Mapping[str, Sequence[Row]], *more: str) -> tuple[str, str, Callable[[Row], None]]:
    """Make a database with orders; return its name, the variable with its address, and what inserts one more row."""
    name, variable = postgres.new_database()
    with postgres.shared_server().connected(name) as connection:
        for statement in (postgres.ORDERS, *more):
            connection.execute(statement.encode())
        postgres.insert(connection, [row for some in rows.values() for row in some])

    def insert(row: Row) -> None:
        with postgres.shared_server().connected(name) as connection:
            postgres.insert(connection, [row])

    return name, variable, insert


def database(spark: SparkSession, root: Path) -> Kind:
    """It is read as it is now."""
    _, variable, insert = new_orders(RAW)
    source = {"kind": "jdbc", "connection": variable, "table": "orders", "complete_until": "2024-01-05"}
    spec = orders_spec(latest_wins_by=["amount"], source=source)
    return Kind(
        spec,
        built(spark, spec, root),
        root,
        add=lambda: insert(ONE_MORE),
        spoil=lambda: insert(NOT_A_NUMBER),
        spoiled=AuditRule.VALUES_FIT_THEIR_TYPES,
        keeps_what_was=False,
    )


def changed(spark: SparkSession, root: Path) -> Kind:
    """The database has a feed, and what it has changed has landed whenever somebody looks. Keys are unique there."""
    name, variable, insert = new_orders(ROWS, "ALTER TABLE orders REPLICA IDENTITY FULL")
    source = {"kind": "jdbc", "connection": variable, "table": "orders"}
    spec = orders_spec(source=source, changes={"capture": name, "wait_seconds": 30})
    landing = root.with_name("changes") / name
    tables = [CaptureTable("public", "orders")]
    capture = Capture(name, Database.of_a_capture(variable, name), tables, landing, heartbeat_seconds=0.1)

    class LandedAtOnce(FeedReader):
        def reach(self) -> Reach | None:
            capture.run(once=True, pause_seconds=0.05, stop=threading.Event())
            return super().reach()

    def new() -> ChangedSource:
        read = build(spec.source, SourceContext(spec, spark, str))
        lake = LakeTable(spark, spec, f"{root}/orders")
        reader = LandedAtOnce(ChangesTable(spark, spec, lake.path), read, landing)
        return ChangedSource(spec, spec.changes, read, reader, lake, now=lambda: datetime(2024, 1, 4, 12, tzinfo=UTC))

    return Kind(
        spec,
        new,
        root,
        add=lambda: insert(ONE_MORE),
        spoil=lambda: insert(NOT_A_NUMBER),
        spoiled=AuditRule.VALUES_FIT_THEIR_TYPES,
        keeps_what_was=False,
        stands_still=False,
        raw=ROWS,
    )
