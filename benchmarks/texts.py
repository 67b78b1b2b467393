"""Measures a launch over JSON lines and over CSV against a hand-written job.

    python -m benchmarks.texts

Each side is a fresh process, and both write the same days. The hand-written job trusts each value to Spark's own
readers; a launch reads each one exactly or names it. The last lines are `name: number`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.figures import spread, table, tell
from benchmarks.processes import launch_command
from benchmarks.text_tables import COLUMNS, FIRST_DAY, FORMATS, write_days
from benchmarks.tpch import clear, rows_in, run


def by_hand(landing: str, form: str, path: str) -> None:
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
    schema = ", ".join(f"{name} {kind.removesuffix(' not null')}" for name, kind in COLUMNS.items())
    reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
    rows = reader.csv(landing, header=True) if form == "csv" else reader.json(landing)
    rows = rows.withColumn("day", F.to_date("ordered_at"))
    spark.createDataFrame([], rows.schema).write.format("delta").partitionBy("day").save(path)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", f"day >= '{FIRST_DAY}'")
    writer.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=50, help="daily files (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=40_000, help="of each file, about (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="of each side (default: %(default)s)")
    parser.add_argument("--by-hand", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.by_hand:
        by_hand(*options.by_hand)
        return
    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    lines: list[tuple[str, float, str]] = []
    figures: dict[str, float] = {}
    last_day = FIRST_DAY + timedelta(days=options.days - 1)
    with tempfile.TemporaryDirectory(prefix="backfill_assets-texts-") as made:
        folder = Path(made)
        for form in FORMATS:
            landing = folder / "lakehouse/landing" / form
            write_days(landing, form, days=options.days, rows=options.rows)
            found: dict[str, list[float]] = {"by hand": [], "launched": []}
            for _ in range(options.runs):
                clear(folder)
                hand = [sys.executable, "-m", "benchmarks.texts", "--by-hand", str(landing), form]
                found["by hand"].append(run(folder, [*hand, str(folder / "by_hand")]).seconds)
                keys = ("--partition-range", f"{FIRST_DAY}...{last_day}")
                launched = launch_command("benchmarks.text_tables", f"texts/{form}", *keys)
                found["launched"].append(run(folder, launched).seconds)
                ours, theirs = rows_in(folder / f"lakehouse/tables/texts/{form}"), rows_in(folder / "by_hand")
                if ours != theirs:
                    sys.exit(f"{form}: the hand-written job wrote {theirs:,} rows and the launch {ours:,}.")
                for side, seconds in found.items():
                    tell(f"{form}, {side}", seconds[-1])
            lines += [(f"{form}, {side}", statistics.median(all_), spread(all_)) for side, all_ in found.items()]
            medians = {side: statistics.median(seconds) for side, seconds in found.items()}
            figures[f"{form}: range launch / hand-written job"] = medians["launched"] / medians["by hand"]
    print("\n".join(table("text formats", lines)), end="\n\n")
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")


if __name__ == "__main__":
    main()
