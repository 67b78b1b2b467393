"""Which versions of a table wrote some partitions, by its log; or may have, because the log has forgotten them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.lake.delta_log import committed, newest_version, read_commits
from backfill_assets.spark.failures import says_no_table


def versions_writing(
    spark: SparkSession,
    path: str,
    versions: Sequence[int],
    partition_column: str,
    partitions: Sequence[Partition],
    *,
    forgotten_too: bool = False,
) -> list[int]:
    """Return those of some versions that wrote any of these partitions; none of a table that is not there.

    Args:
        forgotten_too: Return those too that the log has forgotten: they may have.

    Raises:
        AnalysisException: The log has forgotten some of them, and they were not asked for.
    """
    lost: list[int] = []
    try:
        commits = read_commits(spark, path, versions, partition_column)
    except AnalysisException as error:
        newest = newest_version(spark, path)
        if not says_no_table(error) or (newest >= 0 and not forgotten_too):
            raise
        if newest < 0:
            return []
        span = max(newest - versions[0] + 1, 1)  # a log may be long, and a launch asks with each chunk
        there = committed(spark, path, newest=span)
        lost = [version for version in versions if version not in there]
        commits = read_commits(spark, path, [version for version in versions if version in there], partition_column)
    return sorted(lost + [commit.version for commit in commits if any(map(commit.wrote, partitions))])
