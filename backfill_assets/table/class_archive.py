"""An archive of the classes that a launch loads, so that each JVM starts some seconds faster.

It is made once, and nothing depends on it.

`python -m backfill_assets.table.class_archive` makes it, with a small table that is written, overwritten and read.

Source: JEP 350, Dynamic CDS Archives (Java 13 and later).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock
from pyspark.sql import Observation
from pyspark.sql import functions as F

from backfill_assets.core import sql
from backfill_assets.spark.java import class_archive
from backfill_assets.spark.session import classic_config, end, start_session
from backfill_assets.spark.settings import JAVA_OPTIONS, SparkSettings
from backfill_assets.table.transaction import Transactions

TIMEOUT_SECONDS = 300.0


def make_class_archive() -> bool:
    """Make the archive if it is not there; return whether it is now. Never raises for a JVM that cannot make one."""
    archive = class_archive()
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        return _made(archive)
    except OSError:  # the environment is somebody else's
        return False


def _made(archive: Path) -> bool:
    with FileLock(archive.with_name("classes.lock")):
        if archive.exists():
            return True
        for older in archive.parent.glob("classes-*.jsa"):  # of another Java, or of jars that were replaced
            older.unlink()
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            made = Path(scratch) / archive.name
            command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(made), scratch]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)  # noqa: S603 (this module)
                made.rename(archive)
            except (subprocess.SubprocessError, OSError):
                return False
    return True


def _load_classes(archive: str, scratch: str) -> None:
    """Do what a launch does, in a JVM that notes its classes when it ends."""
    config = classic_config(SparkSettings(extra={JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable"}))
    spark = start_session(config)
    table = f"{scratch}/table"
    rows = spark.range(100).select(
        "id", F.current_timestamp().alias("at"), F.lit("a").alias("name"), F.current_date().alias("dt")
    )
    columns = {"id": "bigint", "at": "timestamp", "name": "string", "dt": "date"}
    spark.sql(sql.create_table(table, columns, partitioned_by="dt"))
    transactions = Transactions(spark, table)
    for version, kind in enumerate(("parquet", "json")):
        folder = f"{scratch}/{kind}"
        rows.write.format(kind).save(folder)
        read = spark.read.schema(rows.schema).format(kind).load(folder).repartition(4, "dt")
        files = transactions.write(read.observe(Observation(), F.max(F.col("id"))), version=version)
        written = transactions.frame(files)
        written.groupBy("dt").agg(F.count(F.lit(1)), F.sum(F.shiftright(F.xxhash64("id", "name"), 32))).collect()
        values = {*files.rows_by_value()}
        transactions.commit([(files, values)], "dt IS NOT NULL", values, "{}", base=version, check=lambda _: None)
    spark.sql(sql.describe_history(table)).collect()
    spark.sql(sql.describe_detail(table)).collect()
    spark.read.text(f"{table}/_delta_log").count()
    spark.read.format("delta").load(table).groupBy("dt").count().collect()
    end(spark, timeout_seconds=TIMEOUT_SECONDS)  # when the archive is written


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _load_classes(sys.argv[1], sys.argv[2])
    elif not make_class_archive():
        sys.stderr.write(
            "No archive of classes could be made; each start of Spark takes some seconds longer, nothing else.\n"
        )
