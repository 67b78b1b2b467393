"""Measures what a launch costs as partitions get more, from ten to ten thousand; `make bench-scale` runs it.

Each number of partitions is one range launch in a fresh process into an empty lakehouse, with the same rows in each
partition. What should stay flat is what a partition costs; the table says what does and what does not. `--hourly` cuts
hours instead of days, and `--more` adds a launch of 30,000 partitions.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.asset_page import ask, webserver
from benchmarks.memory import watched
from benchmarks.processes import REPOSITORY, environment, launch_command

TABLE = "bronze/visits"
MODULE = "benchmarks.scale_tables"
LOAD = f"from {MODULE} import defs; defs().get_repository_def().load_all_definitions()"
MORE = 30_000
FIRST, LONG_AGO = datetime(1998, 1, 1, tzinfo=UTC), datetime(1938, 1, 1, tzinfo=UTC)
"""Ten thousand days before today, and more than thirty thousand."""


@dataclass(frozen=True)
class Scale:
    """One size: a lakehouse with so many partitions.

    Args:
        step: Length of a partition.
    """

    folder: Path
    count: int
    step: timedelta

    @property
    def hourly(self) -> bool:
        return self.step < timedelta(days=1)

    @property
    def first(self) -> datetime:
        return FIRST if FIRST + self.count * self.step < datetime.now(UTC) else LONG_AGO

    @property
    def root(self) -> Path:
        return self.folder / "lakehouse"

    @property
    def log(self) -> Path:
        return self.root / "tables" / TABLE / "_delta_log"

    def key(self, number: int) -> str:
        return f"{self.first + number * self.step:{'%Y-%m-%d-%H:00' if self.hourly else '%Y-%m-%d'}}"

    def write(self, rows: int) -> None:
        """Write a file of rows for each partition."""
        for number in range(self.count):
            start = self.first + number * self.step
            folder = self.root / "landing" / "visits" / f"{start:{'%Y/%m/%d/%H' if self.hourly else '%Y/%m/%d'}}"
            folder.mkdir(parents=True)
            ids = range(number * rows, number * rows + rows)
            times = [start + i * self.step / rows for i in range(rows)]
            made = {
                "visit_id": pa.array(ids, pa.int64()),
                "page": [f"/{i % 97}" for i in ids],
                "visited_at": pa.array(times, pa.timestamp("us", "UTC")),
            }
            pq.write_table(pa.table(made), folder / "visits.parquet")

    def clear(self) -> None:
        """Delete all but the landing data."""
        for path in (self.root / "tables", self.folder / "dagster_home", self.folder / "events"):
            shutil.rmtree(path, ignore_errors=True)
        (self.folder / "dagster_home").mkdir()
        (self.folder / "events").mkdir()
        shutil.copy(REPOSITORY / "dagster.yaml", self.folder / "dagster_home")
        os.sync()

    def environment(self) -> dict[str, str]:
        log = {"enabled": "true", "rolling.enabled": "false", "compress": "false", "dir": str(self.folder / "events")}
        of_scale = {
            "SCALE_START": f"{self.first:%Y-%m-%d}",
            "SCALE_GRAIN": "hourly" if self.hourly else "daily",
            "SPARK_EXTRA_CONF": ";".join(f"spark.eventLog.{name}={value}" for name, value in log.items()),
        }
        return environment(self.root, self.folder / "dagster_home", **of_scale)

    def start(self, first: int, last: int) -> subprocess.Popen[str]:
        """Start a launch of partitions, by number, both included."""
        keys = f"{self.key(first)}...{self.key(last)}"
        command = launch_command(MODULE, TABLE, "--partition-range", keys)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    # -- what is measured ------------------------------------------------------------------------------------------

    def tasks(self) -> int:
        """Return how many Spark tasks the launches ran."""
        return sum(
            line.count('"Event":"SparkListenerTaskEnd"')
            for file in (self.folder / "events").iterdir()
            for line in file.open()
        )

    def commits(self) -> int:
        """Return how many commits there are after the one that made the table."""
        return len(list(self.log.glob("*[0-9].json"))) - 1

    def files(self) -> int:
        return sum(1 for _ in (self.root / "tables" / TABLE).glob("dt=*/*.parquet"))

    def page_seconds(self) -> float:
        """Return how long a webserver takes to answer what the asset's page asks, the second time, when it is warm."""
        with webserver(MODULE, self.folder, self.environment()) as url:
            ask(url)
            started = time.perf_counter()
            ask(url)
            return time.perf_counter() - started

    def load_seconds(self) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", LOAD], cwd=self.folder, env=self.environment(), check=True)
        return time.perf_counter() - started


def _end(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate()
    if process.returncode:
        sys.exit("\n".join(output.splitlines()[-40:]) + f"\n\nThe launch ended with exit code {process.returncode}.")


def measure(scale: Scale, rows: int) -> dict[str, float]:
    """Launch all partitions of one size in one range; return figures by name."""
    scale.clear()
    started = time.perf_counter()
    launch = scale.start(0, scale.count - 1)
    with watched(launch) as peak:
        _end(launch)
        seconds = time.perf_counter() - started
    log_bytes = sum(path.stat().st_size for path in scale.log.iterdir())
    dagster_bytes = sum(path.stat().st_size for path in (scale.folder / "dagster_home").rglob("*") if path.is_file())
    return {
        "partitions": scale.count,
        "rows": scale.count * rows,
        "seconds": seconds,
        "ms a partition": 1000 * seconds / scale.count,
        "tasks": scale.tasks(),
        "commits": scale.commits(),
        "files": scale.files(),
        "memory, MB": peak.size_bytes / 1e6,
        "log, kB": log_bytes / 1e3,
        "log, bytes a partition": log_bytes / scale.count,
        "Dagster's history, MB": dagster_bytes / 1e6,
        "definitions, s": scale.load_seconds(),
        "asset's page, s": scale.page_seconds(),
    }


def side_by_side(scale: Scale) -> float:
    """Return how much faster two launches of the halves at the same time are than one of the whole."""
    scale.clear()
    _end(scale.start(0, 0))  # the table is there for both sides
    started = time.perf_counter()
    _end(scale.start(0, scale.count - 1))
    whole = time.perf_counter() - started
    scale.clear()
    _end(scale.start(0, 0))
    started = time.perf_counter()
    halves = [scale.start(0, scale.count // 2 - 1), scale.start(scale.count // 2, scale.count - 1)]
    for half in halves:
        _end(half)
    return whole / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--partitions", default="10,100,1000,3000,10000", help="how many, with commas (default: %(default)s)"
    )
    parser.add_argument("--more", action="store_true", help=f"launch {MORE:,} partitions too, which takes long")
    parser.add_argument("--rows", type=int, default=300, help="in each partition (default: %(default)s)")
    parser.add_argument("--hourly", action="store_true", help="partitions are hours; they are days else")
    parser.add_argument(
        "--parallel",
        type=int,
        default=1000,
        help="partitions of the two launches side by side, 0 for none (default: %(default)s)",
    )
    options = parser.parse_args()
    step = timedelta(hours=1) if options.hourly else timedelta(days=1)
    counts = [int(text) for text in options.partitions.split(",")] + [MORE] * options.more
    figures: list[dict[str, float]] = []
    speed_up = None
    with tempfile.TemporaryDirectory(prefix="backfill_assets-scale-") as folder:
        for count in counts:
            scale = Scale(Path(folder) / str(count), count, step)
            scale.write(options.rows)
            figures.append(measure(scale, options.rows))
            print(f"{count:,} partitions: {figures[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
        if options.parallel:
            scale = Scale(Path(folder) / "parallel", options.parallel, step)
            scale.write(options.rows)
            speed_up = side_by_side(scale)
    width = max(len(name) for name in figures[0])
    for name in figures[0]:
        print(
            f"{name:<{width}}"
            + "".join(
                f"{column[name]:>12,.{0 if column[name] >= 100 or column[name] == int(column[name]) else 2}f}"
                for column in figures
            )
        )
    print()
    for column in figures:
        print(f"ms a partition at {column['partitions']:,}: {column['ms a partition']:.1f}")
    if speed_up is not None:
        print(f"two launches side by side / one launch, speed-up: {speed_up:.2f}")


if __name__ == "__main__":
    main()
