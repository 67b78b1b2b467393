"""A live batch while a launch writes its files, on a local disk where writers of a commit wait for each other."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from backfill_assets.core.live.receipts import LiveReceipt
from tests.contracts.lakes import DAYS, FENCE, LIVE_DAY, DeltaShop, multiset, order, orders, parts, receipt_for, scan_of

pytestmark = pytest.mark.spark

DAY = DAYS[0]


def test_a_batch_does_not_wait_for_a_launch(spark, tmp_path):
    """A batch commits while the files of a launch are still written; both are in the table."""
    shop = DeltaShop(spark, tmp_path / "orders")
    shop.lake.create()
    started, goes_on = tmp_path / "started", tmp_path / "goes on"

    def wait(number: int) -> int:
        Path(str(started)).touch()
        until = time.monotonic() + 120
        while not Path(str(goes_on)).exists() and time.monotonic() < until:
            time.sleep(0.05)
        return number

    scan = scan_of(shop, {DAY: orders(DAY)})
    slow = scan.rows.coalesce(1).withColumn("order_id", F.udf(wait, "bigint", useArrow=False)("order_id"))
    staged = []
    launch = threading.Thread(
        target=lambda: staged.append(shop.lake.stage(replace(scan, rows=slow), publish_after=shop.lake.version()))
    )
    launch.start()
    try:
        until = time.monotonic() + 60
        while not started.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert started.exists()
        receipt = LiveReceipt("0", "bronze/orders", stream="a1", epoch=1, batch=0, fence_utc=FENCE.at_utc.isoformat())
        assert shop.live.append(shop.frame([order(50, LIVE_DAY)]), receipt, ("live:a1:1", 0))
        assert launch.is_alive(), "the launch still writes"
    finally:
        goes_on.touch()
        launch.join()
    with staged[0] as chunk:
        shop.lake.overwrite(chunk, parts(DAY), replace(receipt_for(shop, chunk, [DAY]), staged_from_version=0))
    assert multiset(shop.rows()) == multiset([*orders(DAY), order(50, LIVE_DAY)])
