"""A backfill behind a live stream with the project's own commands, both killed on the way: every event is there once in the end."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.commands_running import Process, batches, history, live_writer
from tests.e2e.new_year import DECEMBER, EXPORTED, LATE_DAYS, NEW_YEAR, turn_of_the_year
from tests.e2e.world import ORDERS, new_world, shop_orders
from tests.support.live_receipts import live_receipts
from tests.support.shop import rows_in

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.prove]


def test_a_backfill_behind_a_stream_with_both_killed(tmp_path: Path):
    """A stream writes, a launch behind it is killed and resumed, the writer is killed and started again, the fence is moved while
    both run, the export is corrected: in the end every event is there once, and no reader ever saw a key twice or half a day."""
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"\nseed {seed}\n")
    dice = random.Random(seed)
    world = new_world(tmp_path)
    corrected = {day: shop_orders(day, EXPORTED + 2, status="corrected") for day in dice.sample(DECEMBER, 3)}
    with turn_of_the_year(world, corrected, dice) as turn:
        writer = turn.started(live_writer(world))
        first = turn.started(history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=3))
        writer.wait_until(lambda: batches(writer))
        after = dice.randint(1, 2)
        first.wait_until(lambda: len(first.said(r"Chunk \d+ of \d+ is version")) >= after)
        time.sleep(dice.uniform(0, 1.5))
        first.kill()
        resumed = turn.started(history(world, DECEMBER[0], LATE_DAYS[-1], max_partitions_per_chunk=3, only="MISSING"))
        time.sleep(dice.uniform(0, 5))
        writer.kill()
        again = turn.started(live_writer(world))
        again.wait_until(lambda: batches(again))
        fence = turn.started(
            Process(world, "backfill_assets.cli", "fence", ORDERS, "--at", "2026-01-03T00:00:00Z", "--json")
        )
        assert fence.end() == 0, fence.text()
        assert resumed.end() == 0, resumed.text()
        assert resumed.said("Left out"), resumed.text()

        turn.landing.kinds[:] = ["open", "new year", "late order"]  # those of the new year are late by now
        turn.exports |= corrected
        turn.exports |= {day: [*turn.landing.landed_of(day), *shop_orders(day, 2)] for day in NEW_YEAR}
        for day in [*corrected, *NEW_YEAR]:
            world.export(day, turn.exports[day])
        time.sleep(3)
        turn.landing.kinds[:] = ["open"]
        with turn.landing.lock:
            landed = turn.landing.lines
        again.wait_until(lambda: sum(map(sum, batches(writer, again).values())) >= landed)
        last = turn.started(history(world, DECEMBER[0], NEW_YEAR[-1], only="MISSING"))
        assert last.end() == 0, last.text()
        assert last.said("Left out"), last.text()

        turn.land_no_more()
        again.wait_until(lambda: sum(map(sum, batches(writer, again).values())) >= turn.landing.lines)
        again.process.send_signal(signal.SIGINT)
        assert again.end() == 0, again.text()
        time.sleep(0.5)
    turn.check()
    receipts = [receipt for receipt in live_receipts(world.path()) if receipt["kind"] == "batch"]
    assert sorted(receipt["batch"] for receipt in receipts) == list(range(len(receipts)))
    counts = [sum(receipt[name] for receipt in receipts) for name in ("rows", "late_rows", "quarantined_rows")]
    assert sum(counts) == turn.landing.lines
    beside = [len(rows_in(f"{world.path()}_{name}")) for name in ("late", "quarantine")]
    assert beside == counts[1:] == [counts[1], turn.landing.wrong]
    for process in turn.processes:
        assert process.said("overtaken|is tried again") == []
