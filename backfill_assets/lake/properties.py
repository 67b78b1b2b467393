"""The properties of a table: what it is made with, which one it is, and its fence, which one ALTER sets together."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.core import sql
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence, fence_of, first_fence
from backfill_assets.lake.local_log import newest_metadata, was_never_made
from backfill_assets.spark.failures import says_no_table

TABLE_ID = "backfill_assets.table_id"
"""Property of a table that is given once, when it is made: one that was deleted and made again is another."""

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


@dataclass(frozen=True, slots=True)
class Detail:
    """What a table that is there says of itself as a whole."""

    partition_columns: list[str]
    properties: dict[str, str]


def read_detail(spark: SparkSession, path: str) -> Detail:
    """Return what a table says of itself.

    `SHOW TBLPROPERTIES` would hide a value like `hourly`: there is a `url` in it, which Spark takes for a secret.
    """
    if known := newest_metadata(spark, path):
        return Detail(list(known["partitionColumns"]), dict(known["configuration"]))
    (row,) = spark.sql(sql.describe_detail(path)).select("partitionColumns", "properties").collect()
    return Detail(list(row["partitionColumns"]), dict(row["properties"]))


def read_properties(spark: SparkSession, path: str) -> dict[str, str] | None:
    """Return the properties of a table; None if it was not made. Spark adds the versions of the protocol."""
    if was_never_made(spark, path):
        return None
    if known := newest_metadata(spark, path):
        return dict(known["configuration"])
    try:
        rows = spark.sql(sql.show_properties(path)).collect()
    except AnalysisException as error:
        if says_no_table(error):
            return None
        raise
    return {row["key"]: row["value"] for row in rows}


def read_fence(spark: SparkSession, spec: TableSpec, path: str) -> Fence | None:
    """Return the fence of a table as it is now; where none is stored, the one that it will be given.

    A table that was not made has none stored, and neither has one that was made before its spec named a stream.

    Raises:
        FenceError: It cannot be read.
    """
    return stored_fence(spark, spec, path) or first_fence(spec)


def stored_fence(spark: SparkSession, spec: TableSpec, path: str) -> Fence | None:
    """Return the fence in a table's properties; None if there is none.

    Raises:
        FenceError: It cannot be read.
    """
    return fence_of(read_properties(spark, path) or {}, spec.key)


def write_fence(spark: SparkSession, path: str, fence: Fence) -> None:
    """Store a fence. Every writer in flight fails because of it, and tries again.

    Raises:
        pyspark.errors.PySparkException: Another writer changed the table's properties at the same time.
    """
    spark.sql(sql.set_properties(path, fence.properties()))
