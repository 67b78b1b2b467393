"""Very many tiny batches: what grows with their number, the log and the stream's own files, stands in no row's way."""

from __future__ import annotations

import os
import random
import threading

import pytest

from tests.support.live_shop import Shop, event, live_spec

BATCHES = int(os.environ.get("BATCHES", "500"))


@pytest.mark.prove
def test_each_of_many_tiny_batches_is_there_once(spark, tmp_path):
    """One event a batch, the writer stopped after drawn ones, the fence moved and history launched between: each once."""
    dice = random.Random(20240104)
    live = {"path": "events", "starts": "2024-01-04", "max_files_per_trigger": 1, "trigger_seconds": 0.01}
    shop = Shop(spark, tmp_path, live_spec(live=live))
    events = [event(number, f"2024-01-0{dice.choice('3456')}T10:00:00") for number in range(BATCHES)]
    for landed in events:
        shop.land(landed)
    export = {
        day: [landed for landed in events if landed["ordered_at"].startswith(day)]
        for day in ("2024-01-03", "2024-01-04")
    }
    shop.export("2024-01-03", event(BATCHES, "2024-01-03T10:00:00"))  # what came late for that day is not in the export
    shop.export("2024-01-04", *export["2024-01-04"])

    written: set[int] = set()  # a batch that was stopped before Spark noted it is told of again
    while len(written) < BATCHES:
        stop, until = threading.Event(), min(BATCHES, len(written) + dice.randint(1, BATCHES // 3))

        def report(batch, stop=stop, until=until):
            written.add(batch.receipt.batch)
            if len(written) >= until:
                stop.set()

        shop.writer(report=report).run(stop=stop)
        shop.launch("2024-01-03", "2024-01-03")
    shop.move("2024-01-05T00:00:00+00:00")
    shop.launch("2024-01-03", "2024-01-04")

    batches = [receipt.batch for _, receipt in shop.table.receipts() if receipt.kind == "batch"]
    assert sorted(batches) == list(range(BATCHES))
    assert shop.ids() == list(range(BATCHES + 1))
    assert shop.ids("_late") == [landed["order_id"] for landed in export["2024-01-03"]]
