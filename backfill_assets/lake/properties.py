"""The properties of a table: what it is made with, which one it is, and its fence, which one ALTER sets together."""

from __future__ import annotations

from pyspark.sql import SparkSession

from backfill_assets.core import sql
from backfill_assets.core.state.fence import Fence

PROPERTIES = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
    "delta.enableDeletionVectors": "false",
    "delta.writePartitionColumnsToParquet": "false",
}
"""Set when a table is made, and never altered: an ALTER fails every writer in flight."""


def write_fence(spark: SparkSession, path: str, fence: Fence) -> None:
    """Store a fence. Every writer in flight fails because of it, and tries again.

    Raises:
        pyspark.errors.PySparkException: Another writer changed the table's properties at the same time.
    """
    spark.sql(sql.set_properties(path, fence.properties()))
