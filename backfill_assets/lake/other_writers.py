"""What others than us did to a table, as far as its log and its rows say."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from backfill_assets.core.live.receipts import MARK as LIVE_MARK
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import MARK, PublishedPartition, marked_body
from backfill_assets.lake.delta_log import read_commits, user_metadata


def written_by_others(
    spark: SparkSession, spec: TableSpec, path: str, published: Mapping[str, PublishedPartition]
) -> dict[str, int]:
    """Return the newest version by which somebody else wrote each partition after its receipt, by key.

    Only what the log still has can be told. Where it does not say in which partition a removed file lay, it may have
    been any.
    """
    since = min((receipt.version for receipt in published.values()), default=None)
    if since is None:
        return {}
    versions = [
        version
        for version, metadata in sorted(user_metadata(spark, path, since).items())
        if marked_body(metadata, MARK) is None and marked_body(metadata, LIVE_MARK) is None
    ]
    found: dict[str, int] = {}
    for commit in read_commits(spark, path, versions, spec.partition_column):
        keys = {spec.grid.key_of(value) for value in commit.touched}
        concerned = published if commit.touched_anything else keys & published.keys()
        found |= {key: commit.version for key in concerned if commit.version > published[key].version}
    return found
