"""Delta's log: reading commits back, finding our own, and saying in our words why one was not made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.live.batches import LiveReceipt, live_receipt_from_json
from backfill_assets.core.state.receipts import Receipt, receipt_from_json
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    BackfillAssetsError,
    CommitConflictError,
    MemoryExhaustedError,
    SparkGoneError,
    UnreadableSourceError,
    UnsafeWriteError,
)

SPARK_FAILURES = (PySparkException, Py4JError, ConnectionError)
"""What a failed Spark call raises: a job that fails is no PySparkException in a classic session, only py4j's error; a JVM that
is gone is an error of the connection to it."""

CONFLICTS: dict[type[PySparkException], str] = {
    ConcurrentAppendException: "another writer added files to these partitions",
    ConcurrentDeleteReadException: "another writer removed files of these partitions",
    ConcurrentDeleteDeleteException: "another writer removed the same files",
    ConcurrentTransactionException: "another writer committed under the same transaction id",
    ConcurrentWriteException: "another writer committed at the same time",
    MetadataChangedException: "another writer changed the table's properties or schema",
    ProtocolChangedException: "another writer changed the table's protocol",
    DeltaConcurrentModificationException: "another writer committed at the same time",
}
"""Every conflict that Delta reports, by its Python class. They share no base class but PySpark's own."""

_ACTIONS = (
    "add struct<partitionValues: map<string, string>, size: bigint, stats: string>, "
    "remove struct<partitionValues: map<string, string>, dataChange: boolean>, "
    "commitInfo struct<userMetadata: string>"
)


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One commit as the log has it.

    Args:
        rows: Rows by value of the partition column, summed over the files it added.
        size_bytes: Bytes by value of the partition column.
        touched: Values of the partition column of every file it added or removed.
        receipt: Ours, if history was written by it.
        live_receipt: Ours, if it is a commit of the live side.
    """

    version: int
    rows: dict[str, int]
    size_bytes: dict[str, int]
    touched: frozenset[str]
    receipt: Receipt | None
    live_receipt: LiveReceipt | None = None


def quoted_path(path: str) -> str:
    """Return a table's path as Spark SQL names it."""
    return "delta.`" + path.replace("`", "``") + "`"


def newest_version(spark: SparkSession, path: str) -> int:
    """Return the newest version of a table."""
    return int(spark.sql(f"DESCRIBE HISTORY {quoted_path(path)} LIMIT 1").collect()[0]["version"])


def receipts_after(spark: SparkSession, path: str, version: int, *, newest: int | None = None) -> dict[int, Receipt]:
    """Return our receipts in the log, by version, of the versions after the given one.

    Args:
        newest: Look at so many of the newest commits only.
    """
    limit = "" if newest is None else f" LIMIT {newest}"
    history = spark.sql(f"DESCRIBE HISTORY {quoted_path(path)}{limit}").where(F.col("version") > version)
    found: dict[int, Receipt] = {}
    for row in history.select("version", "userMetadata").collect():
        receipt = receipt_from_json(row["userMetadata"])
        if receipt is not None:
            found[int(row["version"])] = receipt
    return found


def live_receipts(spark: SparkSession, path: str, *, newest: int | None = None) -> Iterator[tuple[datetime, LiveReceipt]]:
    """Return the receipts of the live side in the log, the newest first, each with when it was committed.

    Args:
        newest: Look at so many of the newest commits only.
    """
    limit = "" if newest is None else f" LIMIT {newest}"
    history = spark.sql(f"DESCRIBE HISTORY {quoted_path(path)}{limit}").select(
        "version", F.unix_micros("timestamp").alias("micros"), "userMetadata"
    )
    for row in sorted(history.collect(), key=lambda row: -row["version"]):
        receipt = live_receipt_from_json(row["userMetadata"])
        committed = instant_of(row["micros"])
        if receipt is not None and committed is not None:
            yield committed, receipt


def read_commits(spark: SparkSession, path: str, versions: Sequence[int], partition_column: str) -> list[LoggedCommit]:
    """Read commits from the log, in the order of their versions."""
    if not versions:
        return []
    log = re.sub(r"([\[\]{}*?\\])", r"\\\1", path)  # a reader of files takes these for a pattern
    files = [f"{log}/_delta_log/{version:020d}.json" for version in versions]
    actions: DataFrame = spark.read.schema(_ACTIONS).json(files).select("*", F.col("_metadata.file_name").alias("file"))
    values = F.coalesce(F.col("add.partitionValues"), F.col("remove.partitionValues"))
    rows = actions.select(
        F.substring("file", 1, 20).cast("bigint").alias("version"),
        F.element_at(values, partition_column).alias("partition"),
        F.col("add").isNotNull().alias("is_add"),
        F.col("remove").isNotNull().alias("is_remove"),
        F.col("add.size").alias("size"),
        F.get_json_object("add.stats", "$.numRecords").cast("bigint").alias("records"),
        F.col("commitInfo.userMetadata").alias("metadata"),
    ).where("is_add OR is_remove OR metadata IS NOT NULL")
    commits = {version: _Collected() for version in versions}
    for row in rows.collect():
        commits[row["version"]].take(row)
    return [
        LoggedCommit(version, c.rows, c.size_bytes, frozenset(c.touched), receipt_from_json(c.metadata), live_receipt_from_json(c.metadata))
        for version, c in sorted(commits.items())
    ]


class _Collected:
    """What the rows of one commit's file add up to."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.size_bytes: dict[str, int] = {}
        self.touched: set[str] = set()
        self.metadata: str | None = None

    def take(self, row: Row) -> None:
        partition = row["partition"]
        if row["is_add"]:
            self.rows[partition] = self.rows.get(partition, 0) + (row["records"] or 0)
            self.size_bytes[partition] = self.size_bytes.get(partition, 0) + row["size"]
        if row["is_add"] or row["is_remove"]:
            self.touched.add(partition)
        if row["metadata"] is not None:
            self.metadata = row["metadata"]


def in_our_words(error: Exception, table: str) -> BackfillAssetsError | None:
    """Return what a failed Spark call means; None where it is no conflict and no lack of memory."""
    for kind, meaning in CONFLICTS.items():
        if isinstance(error, kind):
            return CommitConflictError(
                f"`{table}`: {meaning} while this commit was prepared.",
                state=NOTHING_WRITTEN,
                remedy="The launch reads everything again and tries once more; launch again if it gave up.",
                conflict=kind.__name__,
            )
    text = str(error)
    if jvm_is_gone(error):
        return SparkGoneError(
            f"`{table}`: Spark's JVM has ended in the middle of its work.",
            state="What was published before is recorded; the chunk in flight is whole in the table or absent.",
            remedy="Launch again with `only: MISSING`. If it ran out of memory, give it more (`SPARK_DRIVER_MEMORY`).",
        )
    if MemoryExhaustedError.is_meant_by(error):
        return MemoryExhaustedError(
            f"`{table}`: Spark ran out of memory.",
            state=NOTHING_WRITTEN,
            remedy="Give the driver more (`SPARK_DRIVER_MEMORY`), or make chunks smaller (`chunk.max_partitions`).",
        )
    if unreadable := re.search(r"\b(FAILED_READ_FILE|CANNOT_READ_FILE|MALFORMED_RECORD|CANNOT_MERGE_SCHEMAS)[\w.]*", text):
        return UnreadableSourceError(
            f"`{table}`: a file could not be read to its end ({unreadable[0]}): {_line_with(unreadable[0], text)}",
            state=NOTHING_WRITTEN,
            remedy="Look at that file; put it right or take it away, and launch again.",
        )
    if "DELTA_REPLACE_WHERE_MISMATCH" in text:
        return UnsafeWriteError(
            f"`{table}`: a row lies outside the partitions that were to be replaced, or has NULL where none is allowed: "
            f"{_line_with('DELTA_REPLACE_WHERE_MISMATCH', text)}",
            state=NOTHING_WRITTEN,
            remedy="The audit lets no such row through; the rows changed after it, or another schema than the spec's is at work.",
        )
    return None


def jvm_is_gone(error: BaseException) -> bool:
    """Say whether a call failed because there is no JVM any more that could answer, or a Connect server that knows us."""
    return isinstance(error, (Py4JNetworkError, ConnectionError)) or any(mark in str(error) for mark in _GONE)


_GONE = ("Answer from Java side is empty", "StatusCode.UNAVAILABLE", "INVALID_HANDLE.SESSION_")


def _line_with(condition: str, text: str) -> str:
    """Return the line of a failure that names its condition; others are the way to it."""
    return next(line.strip() for line in text.splitlines() if condition in line)[:300]
