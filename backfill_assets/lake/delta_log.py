"""A Delta table by its path: its rows at a version, and its log with the commits that are ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core import sql
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.operations import LoggedOperation
from backfill_assets.core.live.receipts import LiveReceipt, live_receipt_from_json
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import Receipt, receipt_from_json
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.errors import NOTHING_WRITTEN, UnsafeWriteError
from backfill_assets.lake import local_log
from backfill_assets.lake.commit_files import file_options
from backfill_assets.lake.paths import commit_file
from backfill_assets.spark.failures import says_no_table
from backfill_assets.table.log import live_rows

_COMING = 20
"""Commits that may come while the newest are listed."""


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One commit as the log has it.

    Args:
        rows: Rows by value of the partition column, summed over the files it added.
        size_bytes: Bytes by value of the partition column.
        rows_removed: Rows by value of the partition column, summed over the files it removed, without those that their
            deletion vectors had removed before; None where a file has no statistics.
        touched: Values of the partition column of every file it added or removed; not of those that it only stored
            otherwise, as OPTIMIZE does.
        stored: Values of the partition column of every file that it added or removed.
        changes_table: Whether it changed what the table is: its columns, properties or features.
        touched_anything: Whether it wrote files of which the log does not say in which partition they lie.
        added, removed: Paths of the files that it added, and removed, as the log has them.
        receipt: Ours, if history was written by it.
        live_receipt: Ours, if it is a commit of the live side.
    """

    version: int
    rows: dict[str, int]
    size_bytes: dict[str, int]
    touched: frozenset[str]
    receipt: Receipt | None
    live_receipt: LiveReceipt | None = None
    touched_anything: bool = False
    rows_removed: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    changes_table: bool = False

    def left_alone(self, partition: Partition) -> bool:
        """Say whether a partition has the same files, of the same columns, as before the commit."""
        return not (self.changes_table or self.touched_anything or str(partition.value) in self.stored)

    def wrote(self, partition: Partition) -> bool:
        """Say whether the commit changed a partition.

        It did if it added or removed rows of it; or if its receipt names it: a partition that had no rows, and was
        published without any, has no file to show for it.
        """
        in_receipt = self.receipt is not None and partition.key in self.receipt.partitions
        return self.touched_anything or str(partition.value) in self.touched or in_receipt


def open_table(spark: SparkSession, path: str, version: int | None = None) -> DataFrame | None:
    """Return the rows of a table, at a version or the newest; None if the table was not made.

    Args:
        version: One that the table is known to have.
    """
    reader = spark.read.format("delta").options(**file_options(spark, path))
    if version is not None:
        return reader.option("versionAsOf", version).load(path)
    if local_log.was_never_made(spark, path):
        return None
    try:
        rows = reader.load(path)
        rows.schema  # noqa: B018 (only now a Connect server looks)
    except AnalysisException as error:
        if says_no_table(error):
            return None
        raise
    return rows


def no_table(spec: TableSpec, path: str) -> UnsafeWriteError:
    """Return the error for a write into a table that is not there: the write itself would make one."""
    return UnsafeWriteError(
        f"`{spec.key}`: there is no table at `{path}` to write into; it was deleted, or never made.",
        state=NOTHING_WRITTEN,
        remedy="Launch again: a launch makes the table before it writes.",
    )


def newest_version(spark: SparkSession, path: str) -> int:
    """Return the newest version of a table; -1 if it was not made.

    A commit is there as soon as its file is, so a log that can be listed from here says it at once. Elsewhere Spark is
    asked, which takes a tenth of a second.
    """
    if (newest := local_log.newest_commit(spark, path)) is not None:
        return newest
    if local_log.was_never_made(spark, path):
        return -1
    rows = _rows_of(lambda: spark.sql(sql.describe_history(path, newest=1)))
    return int(rows[0]["version"]) if rows else -1


def receipts_after(spark: SparkSession, path: str, version: int, *, newest: int | None = None) -> dict[int, Receipt]:
    """Return our receipts in the log, by version, of the versions after the given one; none if there is no table.

    Args:
        newest: Look at so many of the newest commits only.
    """
    found: dict[int, Receipt] = {}
    for number, metadata in user_metadata(spark, path, version, newest=newest).items():
        receipt = receipt_from_json(metadata)
        if receipt is not None:
            found[number] = receipt
    return found


def live_receipts(
    spark: SparkSession, path: str, *, newest: int | None = None
) -> Iterator[tuple[datetime, LiveReceipt]]:
    """Return the receipts of the live side in the log, the newest first, each with when it was committed.

    Args:
        newest: Look at so many of the newest commits only.
    """

    def history() -> DataFrame:
        commits = spark.sql(sql.describe_history(path, newest=newest))
        return commits.select("version", F.unix_micros("timestamp").alias("micros"), "userMetadata")

    for row in sorted(_rows_of(history), key=lambda row: -row["version"]):
        receipt = live_receipt_from_json(row["userMetadata"])
        committed = instant_of(row["micros"])
        if receipt is not None and committed is not None:
            yield committed, receipt


def landed_until(spark: SparkSession, path: str) -> datetime | None:
    """Return when the newest file landed that a table's stream has written; None where it has written nothing."""
    landed = [receipt.landed_utc for _, receipt in live_receipts(spark, path)]
    return max((datetime.fromisoformat(newest) for _, newest in filter(None, landed)), default=None)


def committed(spark: SparkSession, path: str, *, newest: int | None = None) -> dict[int, datetime]:
    """Return when each of the newest versions of a table was committed, or of all; none if there is no table."""

    def history() -> DataFrame:
        commits = spark.sql(sql.describe_history(path, newest=newest))
        return commits.select("version", F.unix_micros("timestamp").alias("micros"))

    instants = {int(row["version"]): instant_of(row["micros"]) for row in _rows_of(history)}
    return {version: instant for version, instant in instants.items() if instant is not None}


def logged(spark: SparkSession, path: str, *, after: int = -1) -> list[LoggedOperation]:
    """Return what a table's own history says of the commits after a version that it still has, in order."""
    newest = None if after < 0 else newest_version(spark, path) - after
    if newest is not None and newest <= 0:
        return []

    def history() -> DataFrame:
        set_properties = F.coalesce(F.col("operationParameters")["properties"], F.lit("{}")).alias("properties")
        at = F.unix_micros("timestamp").alias("micros")
        commits = spark.sql(sql.describe_history(path, newest=None if newest is None else newest + _COMING))
        return commits.select("version", at, "operation", set_properties, "userMetadata").where(
            F.col("version") > after
        )

    found: list[LoggedOperation] = []
    for row in sorted(_rows_of(history), key=lambda row: row["version"]):
        at = instant_of(row["micros"])
        assert at is not None, "Delta gives every commit a time"  # noqa: S101 (its promise)
        properties: Any = json.loads(row["properties"])
        named = properties if isinstance(properties, dict) else {}
        live = live_receipt_from_json(row["userMetadata"])
        operation = LoggedOperation(int(row["version"]), at, row["operation"], {**named})
        found.append(replace(operation, live=live.kind, stream=live.stream, rows=live.rows) if live else operation)
    return found


def user_metadata(spark: SparkSession, path: str, after: int, *, newest: int | None = None) -> dict[int, str | None]:
    """Return what the commits after a version carry, by version; earlier ones are not read, however many there are.

    Args:
        newest: Look at so many of the newest commits only.
    """
    coming = _COMING
    while True:
        found = newest_version(spark, path)
        first = max(after + 1, 0 if newest is None else found - newest + 1)
        if found < first:
            return {}
        here = local_log.user_metadata(spark, path, first)
        if here is not None:
            return here
        asked = found - first + 1 + coming
        carried = {int(row["version"]): row["userMetadata"] for row in _rows_of(partial(_carried, spark, path, asked))}
        if len(carried) < asked or min(carried) <= first:  # all there are, or all that were asked for
            return {version: metadata for version, metadata in carried.items() if version >= first}
        coming += max(carried) - found  # so many came while the log was read, so more may the next time


def _carried(spark: SparkSession, path: str, newest: int) -> DataFrame:
    return spark.sql(sql.describe_history(path, newest=newest)).select("version", "userMetadata")


def _rows_of(history: Callable[[], DataFrame]) -> list[Row]:
    """Return what a look into a table's log shows; nothing if there is no table."""
    try:
        return history().collect()
    except AnalysisException as error:
        if says_no_table(error):
            return []
        raise


def read_commits(spark: SparkSession, path: str, versions: Sequence[int], partition_column: str) -> list[LoggedCommit]:
    """Read commits from the log, in the order of their versions."""
    found: dict[int, LoggedCommit] = {}
    elsewhere: dict[int, list[str]] = {}
    for version, lines in local_log.lines_of(spark, path, versions):
        if lines is None:
            elsewhere[version] = []
        else:
            with local_log.readable(commit_file(path, version)):
                found[version] = _commit_of(version, lines, partition_column)
    if elsewhere:
        texts = spark.read.text([commit_file(path, version) for version in elsewhere])
        for row in texts.select("value", F.col("_metadata.file_name").alias("file")).collect():
            elsewhere[int(row["file"][:20])].append(row["value"])
    for version, lines in elsewhere.items():
        with local_log.readable(commit_file(path, version)):
            found[version] = _commit_of(version, lines, partition_column)
    return [found[version] for version in sorted(found)]


def _commit_of(version: int, lines: Sequence[str], partition_column: str) -> LoggedCommit:
    """Sum up the actions of one commit, a JSON text each."""
    rows: dict[str, int] = {}
    size_bytes: dict[str, int] = {}
    rows_removed: dict[str, int | None] = {}
    touched: set[str] = set()
    paths: dict[bool, set[str]] = {True: set(), False: set()}
    stored: set[str] = set()
    touched_anything = changes_table = False
    metadata: str | None = None
    for line in lines:
        action: dict[str, Any] = json.loads(line) if line else {}
        metadata = (action.get("commitInfo") or {}).get("userMetadata") or metadata
        added, removed = action.get("add"), action.get("remove")
        file: dict[str, Any] = added or removed or {}
        values: dict[str, Any] | None = file.get("partitionValues")
        partition: Any = (values or {}).get(partition_column)  # None where others wrote NULL
        changes_table = changes_table or "metaData" in action or "protocol" in action
        if file:
            paths[bool(added)].add(file["path"])
            stored.add(str(partition))
        if removed:
            so_far, count = rows_removed.get(partition, 0), live_rows(removed)
            rows_removed[partition] = None if so_far is None or count is None else so_far + count
        if added:
            rows[partition] = rows.get(partition, 0) + (live_rows(file) or 0)
            size_bytes[partition] = size_bytes.get(partition, 0) + file["size"]
        if file and file.get("dataChange") is not False:
            if values is not None and partition_column in values:
                touched.add(partition)
            elif removed or values:  # of a table whose columns are mapped, the log has other names
                touched_anything = True
    receipt, live_receipt = receipt_from_json(metadata), live_receipt_from_json(metadata)
    return LoggedCommit(
        version,
        rows,
        size_bytes,
        frozenset(touched),
        receipt,
        live_receipt=live_receipt,
        touched_anything=touched_anything,
        rows_removed=rows_removed,
        added=frozenset(paths[True]),
        removed=frozenset(paths[False]),
        stored=frozenset(stored),
        changes_table=changes_table,
    )
