"""Out of memory, for real: a process with a small heap, rows that do not fit, and a JVM that lives on."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyarrow import parquet

from backfill_assets.errors import MemoryExhaustedError, SparkGoneError, UnreadableSourceError
from backfill_assets.spark.failures import jvm_is_gone, translate_spark_error
from tests.support.shop import (
    opened,
)

REPOSITORY = Path(__file__).parents[2]


def launched(root: Path) -> str:
    """Launch a day in a process with 512 MB of heap; return what it printed."""
    command = [sys.executable, "-m", "tests.lake.out_of_memory", str(root)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_day(root: Path, *, rows: int, letters: int) -> None:
    """Write a file of rows that are small on the disk and large in memory."""
    folder = root / "landing" / "2024" / "01" / "01"
    folder.mkdir(parents=True)
    schema = pyarrow.schema([("blob_id", "int64"), ("made_at", pyarrow.timestamp("us", "UTC")), ("blob", "string")])
    with parquet.ParquetWriter(folder / "blobs.parquet", schema, compression="zstd", use_dictionary=False) as file:
        for first in range(0, rows, 2_000):
            ids = range(first, min(first + 2_000, rows))
            columns = [list(ids), [datetime(2024, 1, 1, tzinfo=UTC)] * len(ids), [f"{n:0{letters}d}" for n in ids]]
            file.write_table(pyarrow.table(columns, schema=schema))


def test_a_partition_larger_than_memory_is_published(tmp_path):
    """Spark spills what does not fit: 640 MB of rows go through 512 MB of heap, in one commit, and each is there once."""
    write_day(tmp_path, rows=64_000, letters=10_000)
    said = launched(tmp_path)
    assert "PUBLISHED 2024-01-01 64000" in said
    assert "ALIVE 7 1" in said
    ids = opened(tmp_path / "tables" / "blobs").to_pyarrow_table(columns=["blob_id"])["blob_id"]
    assert (len(ids), len(ids.unique())) == (64_000, 64_000)


@pytest.mark.prove
def test_a_row_larger_than_memory_is_an_error(tmp_path):
    """The launch ends in our words, and says what helps; the table is as it was, and Spark still answers."""
    write_day(tmp_path, rows=1, letters=200 << 20)
    said = launched(tmp_path)
    (exhausted,) = [line for line in said.splitlines() if line.startswith("EXHAUSTED")]
    assert "Nothing was written. Give the driver more (`SPARK_DRIVER_MEMORY`)" in exhausted
    assert "chunk.max_partitions" in exhausted
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
