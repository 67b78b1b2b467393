"""Measures a launch over TPC-H's `orders` and `lineitem`, which anybody can make, against a hand-written job.

    pip install tpchgen-cli
    python -m benchmarks.tpch --scale 1

Each side is a fresh process and reads the same Parquet files; both write the same months. The last lines are
`name: number`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.figures import table, tell
from benchmarks.memory import watched
from benchmarks.processes import REPOSITORY, environment, launch_command
from benchmarks.tpch_tables import EVENT_TIME, FIRST_MONTH, LAST_MONTH

MODULE = "benchmarks.tpch_tables"


def by_hand(landing: str, path: str, event_time: str) -> None:
    """Read everything, overwrite everything: Spark's defaults plus Delta, nothing audited, checked or recorded."""
    spark = (
        SparkSession.builder.config(
            "spark.jars", ",".join(str(jar) for jar in delta_jars(settings_from_environment(os.environ)))
        )
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.read.parquet(landing).withColumn("month", F.trunc(event_time, "month"))
    spark.createDataFrame([], rows.schema).write.format("delta").partitionBy("month").save(path)
    (
        rows.repartition("month")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"month >= '{FIRST_MONTH}' AND month <= '1998-12-01'")
        .save(path)
    )
    done = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]
    print("rows:", done["operationMetrics"]["numOutputRows"])


@dataclass(frozen=True)
class Run:
    """One process that was run to its end: its seconds, the largest memory of it and what it started, its output."""

    seconds: float
    peak_bytes: int
    output: str


def run(folder: Path, command: list[str]) -> Run:
    """Run a process over the lakehouse of a folder."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder / "lakehouse", folder / "dagster_home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with watched(process) as peak:
        output, _ = process.communicate()
    if process.returncode:
        sys.exit("\n".join(output.splitlines()[-40:]))
    return Run(time.perf_counter() - started, peak.size_bytes, output)


def clear(folder: Path) -> None:
    """Delete all but the landing data."""
    for path in (folder / "lakehouse" / "tables", folder / "dagster_home", folder / "by_hand"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / "dagster_home").mkdir()
    shutil.copy(REPOSITORY / "dagster.yaml", folder / "dagster_home")
    os.sync()


def rows_in(path: Path) -> int:
    """Return how many rows a table has, as another reader counts them."""
    import deltalake

    return deltalake.DeltaTable(str(path)).count()


def make_data(landing: Path, scale: str) -> None:
    """Write the two tables as Parquet files."""
    generator = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if generator is None:
        sys.exit("tpchgen-cli is not installed; `pip install tpchgen-cli` brings it")
    what = ("--tables=orders,lineitem", "--parts=4", f"--output-dir={landing}")
    subprocess.run([generator, "parquet", "-s", scale, *what], check=True, stdout=subprocess.DEVNULL)


def measure(folder: Path, name: str, runs: int) -> dict[str, list[Run]]:
    """Run both sides over one of the tables."""
    found: dict[str, list[Run]] = {"hand-written": [], "launch": []}
    landing, table_path = folder / "lakehouse/landing" / name, folder / "lakehouse/tables/tpch" / name
    by_itself = [sys.executable, "-m", "benchmarks.tpch", "--by-hand", str(landing), str(folder / "by_hand")]
    for _ in range(runs):
        clear(folder)
        done = run(folder, [*by_itself, EVENT_TIME[name]])
        keys = ("--partition-range", f"{FIRST_MONTH}...{LAST_MONTH[name]}")
        launched = run(folder, launch_command(MODULE, f"tpch/{name}", *keys))
        ours, theirs = rows_in(table_path), int(done.output.rsplit("rows:", 1)[1])
        if ours != theirs:
            sys.exit(
                f"{name}: the hand-written job wrote {theirs:,} rows and the launch {ours:,}: there is nothing to "
                "compare."
            )
        found["hand-written"].append(done)
        found["launch"].append(launched)
        tell(f"{name}, by hand", done.seconds)
        tell(f"{name}, launched", launched.seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scale",
        default="1",
        help="TPC-H's scale factor; 1 has 1.5 million orders of 6 million items (default: %(default)s)",
    )
    parser.add_argument("--runs", type=int, default=3, help="of each side (default: %(default)s)")
    parser.add_argument("--by-hand", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.by_hand:
        by_hand(*options.by_hand)
        return
    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    lines: list[tuple[str, float, str]] = []
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="backfill_assets-tpch-") as made:
        folder = Path(made)
        make_data(folder / "lakehouse/landing", options.scale)
        for name in EVENT_TIME:
            found = measure(folder, name, options.runs)
            medians = {side: statistics.median(run.seconds for run in runs) for side, runs in found.items()}
            peaks = {side: max(run.peak_bytes for run in runs) / 1e6 for side, runs in found.items()}
            lines += [(f"{name}, {side}", median, f"{peaks[side]:,.0f} MB") for side, median in medians.items()]
            figures[f"{name}: range launch / hand-written job"] = medians["launch"] / medians["hand-written"]
            figures |= {f"{name}: memory, {side}, MB": peak for side, peak in peaks.items()}
    print("\n".join(table("TPC-H", lines)), end="\n\n")
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")


if __name__ == "__main__":
    main()
