"""What others than us did to a table, as far as its log and its rows say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.live.receipts import MARK as LIVE_MARK
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import MARK, PublishedPartition, marked_body
from backfill_assets.lake import local_log
from backfill_assets.lake.delta_log import newest_version, read_commits, user_metadata
from backfill_assets.lake.rows_now import rows_now
from backfill_assets.spark.expressions import by_partition, collected, column, is_no_partition


def rows_outside_grid(spec: TableSpec, rows: DataFrame, now_utc: datetime) -> dict[str, int]:
    """Return how many rows lie in values that are no partition, whoever wrote them, by value.

    A partition that has not begun yet does not count, unless a stream or a change feed fills the table.
    """
    outside = is_no_partition(spec)
    last, is_streamed = None, spec.live or spec.changes or spec.source.is_of_version
    if not is_streamed and now_utc >= spec.grid.start_utc:
        last = str(spec.grid.partition_of(now_utc).value)
        outside |= column(spec.partition_column) > F.lit(last)
    counted = collected(by_partition(spec, rows.where(outside), F.count(F.lit(1)).alias("n")))
    found = {"NULL" if row["value"] is None else str(row["value"]): int(row["n"]) for row in counted}
    return {
        value: found[value]
        for value in sorted(found)
        if not spec.grid.is_key(spec.grid.key_of(value)) or (last is not None and value > last)
    }


def may_lie_outside_grid(spark: SparkSession, spec: TableSpec, path: str) -> bool:
    """Say whether a table may have rows in values that are no partition, by its log alone.

    It has none if the log still has every commit, we made each that brought rows, and our receipts name partitions.
    """
    if not local_log.is_whole(spark, path):
        return True
    carried = user_metadata(spark, path, -1)
    ours = {key for metadata in carried.values() for key in (marked_body(metadata, MARK) or {}).get("partitions", ())}
    if not all(map(spec.grid.is_key, ours)):  # the table began earlier then
        return True
    theirs = _without_our_mark(carried)
    return any(c.touched or c.touched_anything for c in read_commits(spark, path, theirs, spec.partition_column))


def written_by_others(
    spark: SparkSession,
    spec: TableSpec,
    path: str,
    published: Mapping[str, PublishedPartition],
    *,
    version: int | None = None,
) -> dict[str, int]:
    """Return the newest version by which somebody else wrote each partition after its receipt, by key.

    Where the log does not say in which partition a removed file lay, it may have been any. Of commits that it has
    forgotten only the number of rows tells: then it is the newest version that may have been it.

    Args:
        version: Of which the rows are counted; the newest if not given.
    """
    since = min((receipt.version for receipt in published.values()), default=None)
    if since is None:
        return {}
    carried = user_metadata(spark, path, since)
    versions, oldest = _without_our_mark(carried), min(carried, default=since + 1)
    unknown = {key: known for key, known in published.items() if known.version + 1 < oldest}
    found = dict.fromkeys(_with_other_counts(spark, spec, path, unknown, version), oldest - 1)
    for commit in read_commits(spark, path, versions, spec.partition_column):
        keys = {spec.grid.key_of(value) for value in commit.touched}
        concerned = published if commit.touched_anything else keys & published.keys()
        found |= {key: commit.version for key in concerned if commit.version > published[key].version}
    return found


def _with_other_counts(
    spark: SparkSession,
    spec: TableSpec,
    path: str,
    published: Mapping[str, PublishedPartition],
    version: int | None,
) -> list[str]:
    """Return the keys of partitions that have another number of rows than their receipts say."""
    partitions = spec.grid.from_start(filter(spec.grid.is_key, published))
    if not partitions or (version is None and newest_version(spark, path) < 0):
        return []
    now = rows_now(spark, spec, path, partitions, version=version)
    return [p.key for p in partitions if now.get(p.key, 0) != published[p.key].partition.rows]


def _without_our_mark(carried: Mapping[int, str | None]) -> list[int]:
    """Return the versions whose commits carry nothing of ours, in order."""
    return [
        version
        for version, metadata in sorted(carried.items())
        if marked_body(metadata, MARK) is None and marked_body(metadata, LIVE_MARK) is None
    ]
