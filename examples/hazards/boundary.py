"""Where history ends and the stream begins: written down twice, it is never the same instant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.errors import NaiveInstantError
from examples.hazards.scene import Case, SafeTable, Scene, days_published
from examples.hazards.shop import FIRST_DAY, NOW, STREAM_BEGAN, Order, Shop, write_export

NEW_YORK = ZoneInfo("America/New_York")


def run(spark: SparkSession, root: Path, shop: Shop) -> Iterator[Case]:
    """Both ends included; "now" of another zone; then the safe way."""
    began = f"{STREAM_BEGAN:%Y-%m-%d %H:%M:%S}"
    yield cut(Scene(spark, root / "inclusive", shop), f"ordered_at BETWEEN '{FIRST_DAY}' AND '{began}'")

    on_the_wall = (
        f"{STREAM_BEGAN.astimezone(NEW_YORK):%Y-%m-%d %H:%M:%S}"  # what now() shows there when the stream begins
    )
    yield cut(Scene(spark, root / "other_zone", shop), f"ordered_at < '{on_the_wall}'")
    yield safe(Scene(spark, root / "safe", shop))


def cut(scene: Scene, history: str) -> Case:
    """Load history up to the instant that one person wrote down; the stream takes what is at or after another's."""
    write_export(scene.export, scene.shop.as_of(NOW))
    with scene.appending_stream() as stream:
        scene.land(_live(scene.shop))
        stream.processAllAvailable()
        scene.exported().where(F.expr(history)).write.format("delta").mode("append").save(scene.table)
    return Case(scene.root.name, scene.wrong())


def safe(scene: Scene) -> Case:
    """One fence for both; it is moved by a day while the stream writes, from a clock in New York."""
    write_export(scene.export, scene.shop.as_of(NOW))
    events = _live(scene.shop)
    half = len(events) // 2
    table = SafeTable(scene)
    with table.streaming():
        scene.land(events[:half])
        table.wait_for(half)
        table.launch_all()
        refused = _refuses(table, datetime(2025, 12, 30, 9, 30))  # noqa: DTZ001 (without a zone on purpose)
        table.move_fence(datetime(2025, 12, 30, 9, 30, tzinfo=NEW_YORK))
        scene.land(events[half:])
        table.wait_for(len(events))
        launched = table.launch_all(only="missing")
    return Case("safe", scene.wrong(), {"published": days_published(launched), "naive_instants_refused": refused})


def _live(shop: Shop) -> list[Order]:
    """Return the orders that were made since the stream began: what a stream with `ordered_at >= ...` lets through."""
    return [event for event in shop.events() if event["ordered_at"] >= STREAM_BEGAN]


def _refuses(table: SafeTable, at: datetime) -> int:
    try:
        table.move_fence(at)
    except NaiveInstantError:
        return 1
    return 0
