"""A backfill behind a live stream with the project's own commands, both killed on the way: every event is there once in the end."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.commands_running import Process, batches, history, live_writer
from tests.e2e.new_year import DECEMBER, EXPORTED, LATE_DAYS, NEW_YEAR, OPEN_DAY, Landing, Reader, newest
from tests.e2e.world import ORDERS, SCHEMA, new_world, shop_orders
from tests.support.live_receipts import live_receipts
from tests.support.shop import multiset, rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.prove]


def test_a_backfill_behind_a_stream_with_both_killed(tmp_path: Path):
    """A stream writes, a launch behind it is killed and resumed, the writer is killed and started again, the fence is moved while
    both run, the export is corrected: in the end every event is there once, and no reader ever saw a key twice or half a day."""
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"\nseed {seed}\n")
    dice = random.Random(seed)
    world = new_world(tmp_path)
    exports = {day: shop_orders(day, EXPORTED) for day in DECEMBER + LATE_DAYS}
    corrected = {day: shop_orders(day, EXPORTED + 2, status="corrected") for day in dice.sample(DECEMBER, 3)}
    for day, rows in exports.items():
        world.export(day, rows)
    allowed = {
        day: [newest(*rows), *([newest(*corrected[day])] if day in corrected else [])] for day, rows in exports.items()
    }
    landing = Landing(world.lakehouse / "landing/order_events", dice)
    landing.land([landing.line("open")])
    reader = Reader(world.path(), allowed)
    threads = [threading.Thread(target=side.run, daemon=True) for side in (landing, reader)]
    processes: list[Process] = []

    def started(process: Process) -> Process:
        processes.append(process)
        return process

    try:
        for thread in threads:
            thread.start()
        writer = started(live_writer(world))
        first = started(history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=3))
        writer.wait_until(lambda: batches(writer))
        after = dice.randint(1, 2)
        first.wait_until(lambda: len(first.said(r"Chunk \d+ of")) >= after)
        time.sleep(dice.uniform(0, 1.5))
        first.kill()
        resumed = started(history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=3, only="MISSING"))
        time.sleep(dice.uniform(0, 5))
        writer.kill()
        again = started(live_writer(world))
        again.wait_until(lambda: batches(again))
        fence = started(
            Process(world, "backfill_assets.cli", "fence", ORDERS, "--at", "2026-01-03T00:00:00Z", "--json")
        )
        assert fence.end() == 0, fence.text()
        assert resumed.end() == 0, resumed.text()
        assert resumed.said("Left out"), resumed.text()

        landing.kinds[:] = ["open", "new year", "late order"]  # those of the new year are late by now
        exports |= corrected
        exports |= {day: [*landing.landed_of(day), *shop_orders(day, 2)] for day in NEW_YEAR}
        for day in [*corrected, *NEW_YEAR]:
            world.export(day, exports[day])
        time.sleep(3)
        landing.kinds[:] = ["open"]
        with landing.lock:
            landed = landing.lines
        again.wait_until(lambda: sum(map(sum, batches(writer, again).values())) >= landed)
        last = started(history(world, DECEMBER[0], NEW_YEAR[-1], only="MISSING"))
        assert last.end() == 0, last.text()
        assert last.said("Left out"), last.text()

        landing.ended.set()
        threads[0].join()
        again.wait_until(lambda: sum(map(sum, batches(writer, again).values())) >= landing.lines)
        again.process.send_signal(signal.SIGINT)
        assert again.end() == 0, again.text()
        time.sleep(0.5)
    finally:
        landing.ended.set()
        reader.ended.set()
        for thread in threads:
            thread.join()
        for process in processes:
            process.kill()

    assert reader.wrong == []
    assert reader.reads > 5
    expected = multiset(landing.rows[OPEN_DAY], SCHEMA.names)
    for day, rows in exports.items():
        expected += newest(*rows, *landing.rows.get(day, []))
    found = world.content()
    assert found - expected == Counter(), "rows that nobody exported or landed, or that came twice"
    assert expected - found == Counter(), "rows that were lost"
    receipts = [receipt for receipt in live_receipts(world.path()) if receipt["kind"] == "batch"]
    assert sorted(receipt["batch"] for receipt in receipts) == list(range(len(receipts)))
    counts = [sum(receipt[name] for receipt in receipts) for name in ("rows", "late_rows", "quarantined_rows")]
    assert sum(counts) == landing.lines
    beside = [len(rows_in(f"{world.path()}_{name}")) for name in ("late", "quarantine")]
    assert beside == counts[1:] == [counts[1], landing.wrong]
    for process in processes:
        assert process.said("overtaken|is tried again") == []
