"""What others than us did to a table, as far as its log and its rows say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.live.receipts import MARK as LIVE_MARK
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.receipts import MARK, PublishedPartition, marked_body
from backfill_assets.lake import local_log
from backfill_assets.lake.delta_log import open_table, read_commits, user_metadata
from backfill_assets.lake.tally import rows_by_partition
from backfill_assets.spark.expressions import by_partition, collected, is_no_partition


def rows_outside_grid(
    spec: TableSpec, rows: DataFrame, published: Callable[[], Mapping[str, PublishedPartition]]
) -> dict[str, int]:
    """Return how many rows lie in values of the partition column that are no partition, by value.

    What we published there ourselves, when the table began earlier, is not among them.
    """
    counted = collected(by_partition(spec, rows.where(is_no_partition(spec)), F.count(F.lit(1)).alias("n")))
    found = {"NULL" if row["value"] is None else str(row["value"]): int(row["n"]) for row in counted}
    keys = {value: spec.grid.key_of(value) for value in sorted(found)}
    outside = {value: found[value] for value, key in keys.items() if not spec.grid.is_key(key)}
    ours = published() if outside else {}
    return {value: count for value, count in outside.items() if keys[value] not in ours}


def have_written(spark: SparkSession, spec: TableSpec, path: str) -> bool:
    """Say whether anybody but us may have written rows of a table. They have not if the log still has every commit."""
    if not local_log.is_whole(spark, path):
        return True
    theirs = _without_our_mark(user_metadata(spark, path, -1))
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
    rows = open_table(spark, path, version) if partitions else None
    if rows is None:
        return []
    now = rows_by_partition(spec, rows.where(replace_where(spec.partition_column, partitions)))
    return [p.key for p in partitions if now.get(p.key, 0) != published[p.key].partition.rows]


def _without_our_mark(carried: Mapping[int, str | None]) -> list[int]:
    """Return the versions whose commits carry nothing of ours, in order."""
    return [
        version
        for version, metadata in sorted(carried.items())
        if marked_body(metadata, MARK) is None and marked_body(metadata, LIVE_MARK) is None
    ]
