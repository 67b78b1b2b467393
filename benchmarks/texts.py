"""Measures a launch over JSON lines and over CSV against a hand-written job.

    python -m benchmarks.texts

Each side is a fresh process, and both write the same days. The hand-written job trusts each value to Spark's own
readers; a launch reads each one exactly or names it. The last lines are `name: number`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from pyspark.sql import functions as F

from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment
from benchmarks.figures import spread, table
from benchmarks.hand_written import plain_session
from benchmarks.processes import launch_command
from benchmarks.text_tables import COLUMNS, FIRST_DAY, FORMATS, write_days
from benchmarks.two_sides import RATIO, Run, in_turn, medians


def by_hand(landing: str, form: str, path: str) -> None:
    """Read everything, overwrite everything: Spark's defaults plus Delta, nothing audited, checked or recorded."""
    spark = plain_session()
    schema = ", ".join(f"{name} {kind.removesuffix(' not null')}" for name, kind in COLUMNS.items())
    reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
    rows = reader.csv(landing, header=True) if form == "csv" else reader.json(landing)
    rows = rows.withColumn("day", F.to_date("ordered_at"))
    spark.createDataFrame([], rows.schema).write.format("delta").partitionBy("day").save(path)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", f"day >= '{FIRST_DAY}'")
    writer.save(path)


def measure(folder: Path, form: str, range_: str, runs: int) -> dict[str, list[Run]]:
    """Run both sides over the files of one format."""
    landing = str(folder / "lakehouse/landing" / form)
    module = [sys.executable, "-m", "benchmarks.texts"]
    return in_turn(
        folder,
        form,
        by_hand=[*module, "--by-hand", landing, form, str(folder / "by_hand")],
        launch=launch_command("benchmarks.text_tables", f"texts/{form}", "--partition-range", range_),
        table=f"texts/{form}",
        runs=runs,
    )


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
            found = measure(folder, form, f"{FIRST_DAY}...{last_day}", options.runs)
            seconds = medians(found)
            lines += [
                (f"{form}, {side}", seconds[side], spread([run.seconds for run in runs]))
                for side, runs in found.items()
            ]
            figures[f"{form}: {RATIO}"] = seconds["launch"] / seconds["hand-written"]
    print("\n".join(table("text formats", lines)), end="\n\n")
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f}")


if __name__ == "__main__":
    main()
