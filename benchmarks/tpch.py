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
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import functions as F

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.figures import table
from benchmarks.hand_written import plain_session
from benchmarks.processes import launch_command
from benchmarks.tpch_tables import EVENT_TIME, FIRST_MONTH, LAST_MONTH
from benchmarks.two_sides import RATIO, Run, in_turn, medians

MODULE = "benchmarks.tpch_tables"


def by_hand(landing: str, path: str, event_time: str) -> None:
    """Read everything, overwrite everything: Spark's defaults plus Delta, nothing audited, checked or recorded."""
    spark = plain_session()
    rows = spark.read.parquet(landing).withColumn("month", F.trunc(event_time, "month"))
    spark.createDataFrame([], rows.schema).write.format("delta").partitionBy("month").save(path)
    (
        rows.repartition("month")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"month >= '{FIRST_MONTH}' AND month <= '1998-12-01'")
        .save(path)
    )


def make_data(landing: Path, scale: str) -> None:
    """Write the two tables as Parquet files."""
    generator = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if generator is None:
        sys.exit("tpchgen-cli is not installed; `pip install tpchgen-cli` brings it")
    what = ("--tables=orders,lineitem", "--parts=4", f"--output-dir={landing}")
    subprocess.run([generator, "parquet", "-s", scale, *what], check=True, stdout=subprocess.DEVNULL)


def measure(folder: Path, name: str, runs: int) -> dict[str, list[Run]]:
    """Run both sides over one of the tables."""
    landing, range_ = folder / "lakehouse/landing" / name, f"{FIRST_MONTH}...{LAST_MONTH[name]}"
    module = [sys.executable, "-m", "benchmarks.tpch"]
    return in_turn(
        folder,
        name,
        by_hand=[*module, "--by-hand", str(landing), str(folder / "by_hand"), EVENT_TIME[name]],
        launch=launch_command(MODULE, f"tpch/{name}", "--partition-range", range_),
        table=f"tpch/{name}",
        runs=runs,
    )


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
            seconds = medians(found)
            peaks = {side: max(run.peak_bytes for run in runs) / 1e6 for side, runs in found.items()}
            lines += [(f"{name}, {side}", median, f"{peaks[side]:,.0f} MB") for side, median in seconds.items()]
            figures[f"{name}: {RATIO}"] = seconds["launch"] / seconds["hand-written"]
            figures |= {f"{name}: memory, {side}, MB": peak for side, peak in peaks.items()}
    print("\n".join(table("TPC-H", lines)), end="\n\n")
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")


if __name__ == "__main__":
    main()
