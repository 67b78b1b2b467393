"""A backfill of the whole history, again and again, beside a stream of hundreds of events a second: `make soak`.

The stream's trigger is one second. A writer, launches of the whole range one after the other, and a reader that is not
Spark work on one table. In the end every row is held against the files that landed and the export. The last lines are
`name: number`; the exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import numpy as np

from backfill_assets.demo.events import EventStream
from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.soak_processes import SAVE, Process, Reader, Soak, batches_of
from benchmarks.soak_truth import Landed, wrong_rows

ALLOWANCE_SECONDS = 2.0
"""A batch may be so much later than the longest publish that it had to wait for."""

RECENT_DAYS = 12
"""Days of history that every read looks at, with all that is live; every so often it is the whole table."""


def soak_for(soak: Soak, minutes: float, rate: float) -> tuple[dict[str, float], list[str]]:
    """Let everything run; return the figures, and what was promised and not kept."""
    soak.prepare()
    stream = EventStream(soak.events, soak.last_day, orders_per_day=soak.orders_per_day, seed=1)
    reader = Reader(soak.table, soak.last_day - timedelta(days=RECENT_DAYS))
    stop = threading.Event()

    def land() -> None:
        for _ in stream.run(rate=rate):
            if stop.is_set():
                return

    writer, launches = soak.writer(), list[Process]()
    threads = [threading.Thread(target=reader.run, daemon=True), threading.Thread(target=land, daemon=True)]
    try:
        stream.land(
            stream.events(1, np.random.default_rng(1))
        )  # the first batch waits for Spark to start, and is not measured
        writer.wait_until(lambda: bool(batches_of(writer.lines())))
        tell(f"the writer has started, {rate:,.0f} events a second from now on")
        for thread in threads:
            thread.start()
        started = time.monotonic()
        ends_at = started + 60 * minutes
        while time.monotonic() < ends_at:
            launches.append(soak.launch(len(launches), "MISSING" if len(launches) % 3 == 2 else "ALL"))
            launches[-1].must_end()
            newest = list(batches_of(writer.lines()).values())[-1]
            tell(
                f"{launches[-1].name} has ended; {stream.landed:,} events landed, the newest batch was "
                f"{newest.behind_seconds:.1f} s behind"
            )
        stop.set()
        threads[1].join()
        seconds = time.monotonic() - started
        writer.wait_until(lambda: sum(batch.rows for batch in batches_of(writer.lines()).values()) >= stream.landed)
        launches.append(soak.launch(len(launches), "MISSING"))  # folds the last late rows
        launches[-1].must_end()
        writer.process.send_signal(signal.SIGINT)
        writer.must_end()
        reader.ended.set()
        threads[0].join()
        reader.read(whole=True)
    finally:
        for process in (writer, *launches):
            if process.process.poll() is None:
                os.killpg(process.process.pid, signal.SIGKILL)
    return figures_of(soak, reader, [writer, *launches], lines=stream.landed, seconds=seconds)


def figures_of(
    soak: Soak, reader: Reader, processes: list[Process], *, lines: int, seconds: float
) -> tuple[dict[str, float], list[str]]:
    """Hold what happened against what was promised; of the processes the first is the writer."""
    writer, *launches = processes
    batches = batches_of(writer.lines())
    behind = sorted(batch.behind_seconds for number, batch in batches.items() if number)
    p50, p99 = (behind[min(len(behind) - 1, int(share * len(behind)))] for share in (0.5, 0.99))
    saves = [float(match[1]) for launch in launches for line in launch.lines() if (match := SAVE.search(line))]
    conflicts = [line for process in processes for line in process.conflicts()]
    landed = Landed.read(soak.events)
    figures: dict[str, float] = {
        "minutes": seconds / 60,
        "launches": len(launches),
        "publishes": len(saves),
        "events landed": lines,
        "events a second": lines / seconds,
        "rows live": sum(batch.live for batch in batches.values()),
        "rows late": sum(batch.late for batch in batches.values()),
        "rows quarantined": sum(batch.quarantined for batch in batches.values()),
        "batches": len(batches),
        "batch delay p50, seconds": p50,
        "batch delay p99, seconds": p99,
        "batch delay max, seconds": behind[-1],
        "longest publish, seconds": max(saves),
        "conflicts": len(conflicts),
        "reads": reader.reads,
        "duplicates seen": reader.duplicates,
        "rows wrong": wrong_rows(soak, landed),
    }
    limit = figures["longest publish, seconds"] + ALLOWANCE_SECONDS
    counted = (figures["rows live"], figures["rows late"], figures["rows quarantined"])
    promises: Mapping[str, bool] = {
        f"p99 <= longest publish + {ALLOWANCE_SECONDS:g} s ({p99:.1f} <= {limit:.1f})": p99 <= limit,
        "no conflicts": not conflicts,
        "the reader never saw a key twice": not reader.duplicates,
        "every event is live, late or quarantined, once": counted
        == (landed.live.total(), sum(map(len, landed.late.values())), landed.wrong),
        "every row is as exported and landed": not figures["rows wrong"],
    }
    for line in conflicts[:10]:
        tell(line)
    for promise, is_kept in promises.items():
        print(f"promise {promise}: {'kept' if is_kept else 'BROKEN'}")
    return figures, [promise for promise, is_kept in promises.items() if not is_kept]


def tell(what: str) -> None:
    """Say on the error stream how far it is; the result goes to the other one."""
    print(what, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="after the writer has started (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=300, help="events a second (default: %(default)s)")
    parser.add_argument("--days", type=int, default=1_096, help="of history (default: %(default)s)")
    parser.add_argument("--orders-per-day", type=int, default=300, help="average (default: %(default)s)")
    options = parser.parse_args()
    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    with tempfile.TemporaryDirectory(prefix="backfill_assets-soak-") as folder:
        figures, broken = soak_for(
            Soak(Path(folder), options.days, options.orders_per_day), options.minutes, options.rate
        )
    print()
    for name, figure in figures.items():
        print(f"{name}: {figure:g}" if isinstance(figure, int) else f"{name}: {figure:.2f}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
