"""Three years loaded into a table while its stream runs: the ways that go wrong, and ours."""

from __future__ import annotations

import threading
import time
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.sql import functions as F

from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.publish import materialize
from backfill_assets.sources.files.source import FilesSource
from tests.support.fakes import launch_with
from tests.support.live_shop import Shop, event, live_spec
from tests.support.shop import opened

EXPORTED = [event(1, "2024-01-02T10:00:00"), event(2, "2024-01-03T10:00:00"), event(3, "2024-01-04T10:00:00")]
"""What the old system knew at noon on 2024-01-04, when the stream had written the table for half a day."""
STREAMED = [
    EXPORTED[2],
    event(4, "2024-01-04T15:00:00"),
    event(1, "2024-01-02T10:00:00", amount="-1.00", updated_at="2024-01-04T16:00:00"),  # a refund
]
TRUTH = {1: "-1.00", 2: "1.00", 3: "1.00", 4: "1.00"}


def kept(shop: Shop) -> list[tuple[int, str]]:
    return sorted((row["order_id"], str(row["amount"])) for row in shop.rows())


def written(shop: Shop, orders: list[dict[str, Any]]) -> Any:
    """A writer of orders by day, as people write it."""
    rows = [(one["order_id"], Decimal(one["amount"]), one["ordered_at"], one["updated_at"]) for one in orders]
    frame = shop.spark.createDataFrame(rows, "order_id bigint, amount decimal(18,2), ordered string, updated string")
    frame = frame.select(
        "order_id",
        "amount",
        F.to_timestamp("ordered").alias("ordered_at"),
        F.to_timestamp("updated").alias("updated_at"),
    )
    return frame.withColumn("dt", F.to_date("ordered_at")).write.format("delta").partitionBy("dt")


def test_two_writers_of_one_day_lose_or_double_rows(shop):
    """An append doubles rows, an overwrite loses rows; our launch of the same days does neither."""
    appended, overwritten = Shop(shop.spark, shop.root / "appended"), Shop(shop.spark, shop.root / "overwritten")
    for naive in (appended, overwritten):
        written(naive, STREAMED).save(str(naive.path))
    written(appended, EXPORTED).mode("append").save(str(appended.path))
    written(overwritten, EXPORTED).mode("overwrite").option("replaceWhere", "dt >= '2024-01-01'").save(
        str(overwritten.path)
    )
    assert appended.ids() == [1, 1, 2, 3, 3, 4]
    assert overwritten.ids() == [1, 2, 3]
    assert kept(overwritten)[0] == (1, "1.00"), "the refund is lost too"

    for order in EXPORTED:
        shop.export(order["ordered_at"][:10], order)
    shop.launch("2024-01-02", "2024-01-04")
    shop.land(*STREAMED)
    shop.stream()
    shop.launch("2024-01-02", "2024-01-04")
    assert kept(shop) == sorted(TRUTH.items())


FIRST, FENCE = date(2023, 1, 1), date(2026, 1, 1)
MONTHS = [date(2023 + n // 12, n % 12 + 1, 1) for n in range(36)]


def test_three_years_land_while_the_stream_goes_on(spark, tmp_path):
    """History lands in chunks; between two chunks the stream writes; no event is lost and none is there twice."""
    spec = live_spec(
        grain="monthly",
        start=FIRST.isoformat(),
        source={"kind": "files", "path": "orders", "format": "parquet", "gaps": "allowed"},
        live={"path": "events", "starts": FENCE.isoformat(), "trigger_seconds": 0.1},
    )
    shop = Shop(spark, tmp_path, spec)
    shop.now = shop.now.replace(year=2026, month=2)
    for number, first in enumerate(MONTHS):
        last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
        for half, day in enumerate((first, last)):
            shop.export(day.isoformat(), event(2 * number + half, f"{day}T23:59:59.999999"))
    january = [FENCE + timedelta(days=n) for n in range(31)]
    live, stop = [event(1000 + n, f"{day}T00:00:00") for n, day in enumerate(january)], threading.Event()
    late = event(0, "2023-01-01T23:59:59.999999", amount="9.00", updated_at="2026-01-15T00:00:00")
    waiting = [live[:15], [*live[15:], late]]
    shop.delta.create()
    writer = threading.Thread(target=lambda: shop.writer().run(stop=stop))
    writer.start()
    try:
        source = FilesSource(spark, spec, spec.source, str(tmp_path / "landing/orders"))
        partitions = spec.grid.between(MONTHS[0].isoformat(), MONTHS[-1].isoformat())
        chunks = materialize(spec, partitions, source, shop.delta, launch_with(max_partitions_per_chunk=18))
        for outcome in chunks:
            assert isinstance(outcome, Published)
            shop.land(*(events := waiting.pop(0)))
            wait_for(shop, sum(batch.rows for batch in shop.reports) + len(events))
    finally:
        stop.set()
        writer.join()
    shop.launch(MONTHS[0].isoformat(), MONTHS[0].isoformat(), only="missing")

    assert shop.ids() == [*range(72), *range(1000, 1031)]
    assert kept(shop)[0] == (0, "9.00"), "the late change is part of its month"
    operations = [entry["operationParameters"].get("mode") for entry in reversed(opened(shop.path).history())]
    turns = [mode for mode, following in pairwise([*operations, None]) if mode and mode != following]
    assert turns == ["Overwrite", "Append"] * 2 + ["Overwrite"], "the stream wrote between the chunks"


def wait_for(shop: Shop, rows: int) -> None:
    until = time.monotonic() + 60
    while sum(batch.rows for batch in shop.reports) < rows:
        assert time.monotonic() < until, f"{rows} events were not written within a minute"
        time.sleep(0.05)
