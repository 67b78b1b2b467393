"""Measures a launch over TPC-H's `orders` and `lineitem`, which anybody can make, against a hand-written job.

    pip install tpchgen-cli
    python -m benchmarks.tpch --scale 1

Each side is a fresh process and reads the same Parquet files; both write the same months. The last lines are `name:
number`.
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
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.run import OWN_SETTINGS, REPOSITORY, table
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


def run(folder: Path, *arguments: str) -> tuple[float, str]:
    """Run Python to its end; return the seconds and what it printed."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    environment = kept | {
        "PYTHONPATH": str(REPOSITORY),
        "LAKEHOUSE_ROOT": str(folder / "lakehouse"),
        "DAGSTER_HOME": str(folder / "dagster_home"),
    }
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit("\n".join(done.stdout.splitlines()[-40:]))
    return time.perf_counter() - started, done.stdout


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scale",
        default="1",
        help="TPC-H's scale factor; 1 has 1.5 million orders of 6 million items (default: %(default)s)",
    )
    parser.add_argument("--runs", type=int, default=2, help="of each side (default: %(default)s)")
    parser.add_argument("--by-hand", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.by_hand:
        by_hand(*options.by_hand)
        return
    generator = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if generator is None:
        parser.error("tpchgen-cli is not installed; `pip install tpchgen-cli` brings it")
    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    lines: list[tuple[str, float, str]] = []
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="backfill_assets-tpch-") as made:
        folder = Path(made)
        landing = folder / "lakehouse" / "landing"
        command = [
            generator,
            "parquet",
            "-s",
            options.scale,
            "--tables=orders,lineitem",
            "--parts=4",
            f"--output-dir={landing}",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name, event_time in EVENT_TIME.items():
            seconds: dict[str, list[float]] = {"hand-written": [], "launch": []}
            for _ in range(options.runs):
                clear(folder)
                took, said = run(
                    folder,
                    "-m",
                    "benchmarks.tpch",
                    "--by-hand",
                    str(landing / name),
                    str(folder / "by_hand"),
                    event_time,
                )
                seconds["hand-written"].append(took)
                keys = f"{FIRST_MONTH}...{LAST_MONTH[name]}"
                select = f'key:"tpch/{name}"'
                took, _ = run(
                    folder,
                    "-m",
                    "dagster",
                    "asset",
                    "materialize",
                    "-m",
                    MODULE,
                    "--select",
                    select,
                    "--partition-range",
                    keys,
                )
                seconds["launch"].append(took)
                ours, theirs = rows_in(folder / "lakehouse" / "tables" / "tpch" / name), int(said.rsplit("rows:", 1)[1])
                if ours != theirs:
                    sys.exit(
                        f"{name}: the hand-written job wrote {theirs:,} rows and the launch {ours:,}: there is "
                        "nothing to compare."
                    )
                print(
                    f"{name}: {seconds['hand-written'][-1]:.1f} s by hand, {took:.1f} s launched",
                    file=sys.stderr,
                    flush=True,
                )
            medians = {side: statistics.median(each) for side, each in seconds.items()}
            lines += [(f"{name}, {side}", median, "") for side, median in medians.items()]
            figures[f"{name}: range launch / hand-written job"] = medians["launch"] / medians["hand-written"]
    print("\n".join(table("TPC-H", lines)), end="\n\n")
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")


if __name__ == "__main__":
    main()
