"""Out of memory, for real: a process with a small heap, rows that do not fit, and a JVM that lives on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Scan
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import MemoryExhaustedError, SparkGoneError, UnreadableSourceError
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import tally_rows
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.spark.failures import jvm_is_gone, translate_spark_error
from tests.lake.out_of_memory import SPEC
from tests.support.shop import (
    content,
    folder_of,
    launch,
    multiset,
    opened,
    orders,
    orders_spec,
    published_keys,
    write_parquet,
)

REPOSITORY = Path(__file__).parents[2]


def launched(root: Path, *, days: int, rows: int, megabytes: int) -> str:
    """Launch days of large rows in a process with 600 MB of heap; return what it printed."""
    for day in range(1, days + 1):
        folder = root / "landing" / "2024" / "01" / f"{day:02d}"
        folder.mkdir(parents=True)
        made = (
            {"blob_id": day * 1000 + n, "made_at": f"2024-01-{day:02d}T00:00:00Z", "blob": "x" * (megabytes << 20)}
            for n in range(rows)
        )
        (folder / "blobs.json").write_text("".join(json.dumps(row) + "\n" for row in made))
    command = [sys.executable, "-m", "tests.lake.out_of_memory", str(root), str(days)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TooMuchAtOnce(FilesSource):
    """Orders of which Spark can read one day at a time: with more, each row needs the longest text that Java has."""

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[DataFrame]:
        scan = super().scan(partitions, surveys)
        letter = F.substring("customer", 1, 1 if len(partitions) > 1 else 0)
        endless = F.length(F.repeat(letter, F.lit(2**31 - 1))) < 0
        return replace(scan, rows=scan.rows.withColumn("customer", F.when(endless, "x").otherwise(F.col("customer"))))


def test_real_lack_of_memory_halves_the_chunk(spark, tmp_path):
    """Java's own error, in Spark's tasks: each day is published alone, and every row is there once."""
    spec, said = orders_spec(), list[str]()
    days = [f"2024-01-{day:02d}" for day in range(1, 5)]
    for day in days:
        write_parquet(folder_of(tmp_path / "landing", day), orders(day))
    table = LakeTable(spark, spec, f"{tmp_path}/orders")
    table.create()
    source = TooMuchAtOnce(spark, spec, spec.source, str(tmp_path / "landing"))

    outcomes = launch(table, source, spec.grid.between(days[0], days[-1]), log=said.append)

    assert published_keys(outcomes) == days
    assert table.version() == len(days), "a commit for each"
    assert content(table.path) == multiset(row for day in days for row in orders(day))
    assert said[0] == "Spark ran out of memory over 4 partitions; continuing with halves."


@pytest.mark.prove
def test_a_chunk_that_does_not_fit_is_halved(tmp_path):
    """Four days are too much at once; each by itself fits. The launch goes on in the same JVM, and every row is there."""
    said = launched(tmp_path, days=4, rows=2, megabytes=15)
    assert "LOG Spark ran out of memory over 4 partitions; continuing with halves." in said
    assert "PUBLISHED 2024-01-04" in said
    ids = opened(tmp_path / "tables" / "blobs").to_pyarrow_table(columns=["blob_id"])["blob_id"].to_pylist()
    assert sorted(ids) == [1000, 1001, 2000, 2001, 3000, 3001, 4000, 4001]


@pytest.mark.prove
def test_a_partition_that_does_not_fit_goes_through_in_slices(tmp_path, spark):
    """One day is too much by itself: it is cut by key, published in one commit, and its tally is that of a machine with enough memory."""
    said = launched(tmp_path, days=1, rows=14, megabytes=15)
    assert "LOG Spark ran out of memory over 2024-01-01 alone; continuing with 8 slices of it by key." in said
    assert "PUBLISHED 2024-01-01" in said
    assert "ALIVE 7 1" in said, "one commit after the table was made"
    blobs = spark.range(1000, 1014).selectExpr(
        "id AS blob_id", "TIMESTAMP'2024-01-01T00:00:00Z' AS made_at", f"repeat('x', {15 << 20}) AS blob"
    )
    (expected,) = tally_rows(SPEC, blobs.withColumn("dt", F.to_date("made_at"))).values()
    assert f"TALLY {expected.rows} {expected.checksum:016x}" in said


@pytest.mark.prove
def test_a_partition_that_never_fits_is_named(tmp_path):
    """A row that is too much by itself ends the launch in our words; the table is as it was, and Spark still answers."""
    said = launched(tmp_path, days=1, rows=1, megabytes=200)
    (exhausted,) = [line for line in said.splitlines() if line.startswith("EXHAUSTED")]
    assert "Nothing was written. Give the driver more (`SPARK_DRIVER_MEMORY`)" in exhausted
    assert "continuing with 64 slices" in said
    assert "ALIVE 7 0" in said


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")]
)
def test_a_jvm_that_is_gone(error):
    """A call into a JVM that has ended is told in our words: what is published stays, and a retry helps."""
    with pytest.raises(type(error)) as caught:  # as py4j raises it
        exec("raise error", {"__name__": "py4j.clientserver", "error": error})
    assert jvm_is_gone(caught.value)
    ours = translate_spark_error(error, "bronze/orders")
    assert isinstance(ours, SparkGoneError)
    assert ours.retry_helps
    assert "whole in the table or absent" in ours.state


def test_a_connection_of_a_sources_own_is_not_the_jvm():
    """A source that reads from a service may lose it; that says nothing of Spark, and passes as it is."""
    with pytest.raises(ConnectionRefusedError) as caught:
        raise ConnectionRefusedError(111, "Connection refused")
    assert not jvm_is_gone(caught.value)
    assert translate_spark_error(caught.value, "bronze/orders") is None


@pytest.mark.parametrize(
    "cause", ["java.lang.OutOfMemoryError: Java heap space", "java.lang.IllegalStateException: unread block data"]
)
def test_a_lack_of_memory_is_no_damaged_file(cause):
    """A file that could not be read because memory ran out is not reported as damaged, even where Java hides the cause."""

    class FailedError(Py4JJavaError):
        def __init__(self):
            Exception.__init__(self)

        def __str__(self):
            return f"[FAILED_READ_FILE.NO_HINT] Encountered error\nCaused by: {cause}"

    ours = translate_spark_error(FailedError(), "bronze/orders")
    assert isinstance(ours, MemoryExhaustedError)
    assert not isinstance(ours, UnreadableSourceError)
