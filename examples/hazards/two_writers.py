"""Two writers of one range: a backfill and a stream that both believe that the last days are theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter

from examples.hazards.scene import Case, SafeTable, Scene, days_left_out, days_published
from examples.hazards.shop import FIRST_DAY, LAST_DAY, NOW, Order, Shop, write_export

NOON = datetime(2025, 12, 31, 12, tzinfo=UTC)
"""Where the stream is when the backfill begins; or, in another case, when the export was taken."""

WEEK = f"dt >= '{FIRST_DAY}' AND dt <= '{LAST_DAY}'"


def run(spark: SparkSession, root: Path, shop: Shop) -> Iterator[Case]:
    """Append beside the stream; overwrite under it; overwrite with an export older than it; then the safe way."""
    yield append(Scene(spark, root / "append", shop))
    yield overwrite_first(Scene(spark, root / "overwrite_first", shop))
    yield overwrite_last(Scene(spark, root / "overwrite_last", shop))
    yield safe(Scene(spark, root / "safe", shop))


def append(scene: Scene) -> Case:
    """Both append: what is in the export and in the stream is there twice."""
    return _written_between(scene, "append", lambda rows: rows.mode("append"))


def overwrite_first(scene: Scene) -> Case:
    """The overwrite removes what the stream wrote; what the stream writes next was in the export already."""
    return _written_between(scene, "overwrite_first", lambda rows: rows.mode("overwrite").option("replaceWhere", WEEK))


def _written_between(scene: Scene, name: str, how: Callable[[DataFrameWriter], DataFrameWriter]) -> Case:
    """Write the export of the day's end between two halves of the stream."""
    before, after = _parted(scene.shop.events())
    write_export(scene.export, scene.shop.as_of(NOW))
    with scene.appending_stream() as stream:
        scene.land(before)
        stream.processAllAvailable()
        how(scene.exported().write.format("delta")).save(scene.table)
        scene.land(after)
        stream.processAllAvailable()
    return Case(name, scene.wrong())


def overwrite_last(scene: Scene) -> Case:
    """The overwrite removes what the stream knew and the export, taken at noon, did not."""
    write_export(scene.export, scene.shop.as_of(NOON))
    with scene.appending_stream() as stream:
        scene.land(scene.shop.events())
        stream.processAllAvailable()
        scene.exported().write.format("delta").mode("overwrite").option("replaceWhere", WEEK).save(scene.table)
    return Case("overwrite_last", scene.wrong())


def safe(scene: Scene) -> Case:
    """The same week and the noon's export: launched whole, while a live writer appends what lands in the meantime."""
    events = scene.shop.events()
    write_export(scene.export, scene.shop.as_of(NOON))
    table = SafeTable(scene)
    with table.streaming():
        shop_goes_on = threading.Thread(target=_land_bit_by_bit, args=(scene, events))
        shop_goes_on.start()
        launched = table.launch_all()
        shop_goes_on.join()
        table.wait_for(len(events))
        folded = table.launch_all(only="missing")
    facts = {
        "published": days_published(launched),
        "left_out": days_left_out(launched),
        "folded": days_published(folded),
    }
    return Case("safe", scene.wrong(), facts)


def _parted(events: list[Order]) -> tuple[list[Order], list[Order]]:
    """Return the events until noon, and those after."""
    return [e for e in events if e["updated_at"] < NOON], [e for e in events if e["updated_at"] >= NOON]


def _land_bit_by_bit(scene: Scene, events: list[Order], files: int = 5) -> None:
    size = -(-len(events) // files)
    for start in range(0, len(events), size):
        scene.land(events[start : start + size])
        time.sleep(0.5)
