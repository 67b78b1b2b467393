"""Measures what this project costs against what people would do instead; `make bench` runs it.

Every side is a fresh process, and wall seconds count, from the command to its end. Sides alternate, so that a machine
that slows down slows down all of them; absolute seconds differ from machine to machine, and the ratios are what to
compare. Both sides must have written the same number of rows, otherwise there is no result. The last lines are
`name: number`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from backfill_assets.demo.orders import write_orders
from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.explained import RangeLaunch
from benchmarks.figures import spread, table, tell
from benchmarks.sides import Bench

FIRST_DAY = date(2023, 1, 1)
SINGLE_LAUNCHES = 3
DEFINITION_LOADS = 3
LOAD = "from backfill_assets.definitions import defs; defs().get_repository_def().load_all_definitions()"


@dataclass
class Measured:
    """Seconds of every side, run after run.

    Args:
        singles: Launches of one partition, each with a JVM of its own.
        warm: The same, on a Connect server that runs already.
        again: The range once more, of which nothing has changed.
    """

    loads: list[float] = field(default_factory=list)
    singles: list[RangeLaunch] = field(default_factory=list)
    warm: list[RangeLaunch] = field(default_factory=list)
    by_hand: list[float] = field(default_factory=list)
    ours: list[RangeLaunch] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    reconciled: list[float] = field(default_factory=list)


def measure(bench: Bench, runs: int) -> Measured:
    """Run every side."""
    found = Measured()
    bench.clear()
    found.loads = [bench.process("-c", LOAD).must_succeed().seconds for _ in range(DEFINITION_LOADS + 1)][1:]
    tell("definitions load", statistics.median(found.loads))
    measure_one_partition(bench, found)
    bench.hand_written(last_day=bench.first_day)  # which warms the disk's cache for the other side
    for _ in range(runs):
        measure_range(bench, found)
    return found


def measure_one_partition(bench: Bench, found: Measured) -> None:
    """Launch single partitions: each in a process with a JVM, and then on a server that runs already."""
    days = [bench.first_day + timedelta(days=n) for n in range(min(SINGLE_LAUNCHES + 1, bench.days))]
    for day in days:
        found.singles.append(bench.launch_day(day))
        tell("launch of one partition", found.singles[-1].seconds)
    bench.clear()
    with bench.warm_server() as reached:
        for day in days:
            found.warm.append(bench.launch_day(day, reached))
            tell("launch of one partition on a warm server", found.warm[-1].seconds)
    found.singles = found.singles[1:] or found.singles  # the first one also warmed the disk's cache
    found.warm = found.warm[1:] or found.warm  # and the server's compiler


def measure_range(bench: Bench, found: Measured) -> None:
    """Run both sides over the whole range, ours twice, and reconcile it."""
    bench.clear()
    seconds, rows = bench.hand_written()
    found.by_hand.append(seconds)
    tell("hand-written job", seconds)
    bench.clear()
    found.ours.append(bench.launch_range())
    tell("range launch", found.ours[-1].seconds)
    commits = bench.commits()
    found.again.append(bench.launch_range().seconds)
    tell("the same range again", found.again[-1])
    if bench.commits() != commits:
        sys.exit(f"The second launch made {bench.commits() - commits} commits; nothing had changed.")
    found.reconciled.append(bench.reconcile())
    tell("reconcile", found.reconciled[-1])
    if found.ours[-1].rows not in (None, rows):
        sys.exit(
            f"The hand-written job wrote {rows:,} rows and the launch {found.ours[-1].rows:,}: nothing to compare."
        )


# -- what came of it ---------------------------------------------------------------------------------------------------


def first_partition(launches: list[RangeLaunch]) -> float | None:
    """Return the median of the seconds from a step's start until its first partition can be seen."""
    seconds = [launch.first_seconds for launch in launches if launch.first_seconds is not None]
    return statistics.median(seconds) if seconds else None


def figures_of(found: Measured, days: int) -> dict[str, float | None]:
    """Return the figures by name."""
    launch_seconds = statistics.median(launch.seconds for launch in found.ours)
    single_seconds = statistics.mean(launch.seconds for launch in found.singles)
    checks = [launch.check_seconds / launch.seconds for launch in found.ours if launch.check_seconds is not None]
    return {
        "range launch / hand-written job": launch_seconds / statistics.median(found.by_hand),
        "one launch per partition / range launch, per partition": single_seconds / (launch_seconds / days),
        "checks / range launch": statistics.median(checks) if checks else None,
        "reconcile / range launch": statistics.median(found.reconciled) / launch_seconds,
        "relaunch of an unchanged range / range launch": statistics.median(found.again) / launch_seconds,
        "definitions load, seconds": statistics.median(found.loads),
        "one partition, from the step's start until it is there, seconds": first_partition(found.singles),
        "the same on a warm Connect server, seconds": first_partition(found.warm),
    }


def lines_of(found: Measured) -> list[str]:
    """Return the lines of the tables: seconds of each process, and where those of the range launch go."""
    whole = [
        ("hand-written job", found.by_hand),
        ("range launch, checks included", [launch.seconds for launch in found.ours]),
        ("the same range again", found.again),
        ("reconcile", found.reconciled),
        ("launch of one partition, checks included", [launch.seconds for launch in found.singles]),
        ("the same on a warm Connect server", [launch.seconds for launch in found.warm]),
        ("definitions load", found.loads),
    ]
    lines = table("process", [(name, statistics.median(seconds), spread(seconds)) for name, seconds in whole])
    names = list(dict.fromkeys(name for launch in found.ours for name in launch.parts))
    if names:
        launch_seconds = statistics.median(launch.seconds for launch in found.ours)
        parts = [(name, statistics.median(launch.parts.get(name, 0.0) for launch in found.ours)) for name in names]
        rows_of = [(name, seconds, f"{seconds / launch_seconds:.0%}") for name, seconds in parts]
        lines += ["", *table("part of the range launch", rows_of)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=1_096, help="daily files (default: %(default)s)")
    parser.add_argument("--orders-per-day", type=int, default=3_000, help="average (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="of each side (default: %(default)s)")
    options = parser.parse_args()
    if min(options.days, options.orders_per_day, options.runs) < 1:
        parser.error("days, orders per day and runs start at 1")

    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    with tempfile.TemporaryDirectory(prefix="backfill_assets-bench-") as folder:
        bench = Bench(Path(folder), FIRST_DAY, FIRST_DAY + timedelta(days=options.days - 1))
        written = write_orders(
            bench.landing, first_day=FIRST_DAY, days=options.days, orders_per_day=options.orders_per_day, seed=1
        )
        found = measure(bench, options.runs)
    print(
        f"{written.files:,} files, {written.rows:,} orders, {written.size_bytes / 1e6:,.0f} MB; {os.cpu_count()} "
        "cores\n"
    )
    print("\n".join(lines_of(found)), end="\n\n")
    for name, figure in figures_of(found, options.days).items():
        print(f"{name}: {'n/a' if figure is None else f'{figure:.2f}'}")


if __name__ == "__main__":
    main()
