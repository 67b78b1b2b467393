"""The fence as it is stored: four properties of the table, which one ALTER sets together."""

from __future__ import annotations

from pyspark.sql import SparkSession

from backfill_assets.core.state.fence import Fence, fence_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.delta_log import quoted_path


def read_fence(spark: SparkSession, spec: TableSpec, path: str) -> Fence | None:
    """Return the fence of a table as it is now; None where there is none.

    Raises:
        FenceError: It cannot be read.
    """
    properties = spark.sql(f"SHOW TBLPROPERTIES {quoted_path(path)}").collect()  # cheap: unlike DESCRIBE DETAIL it counts no files
    return fence_of({row["key"]: row["value"] for row in properties}, spec.key)


def write_fence(spark: SparkSession, path: str, fence: Fence) -> None:
    """Store a fence. Every writer in flight fails of it, and tries again.

    Raises:
        pyspark.errors.PySparkException: Another writer changed the table's properties at the same time.
    """
    spark.sql(f"ALTER TABLE {quoted_path(path)} SET TBLPROPERTIES ({listed(fence.properties())})")


def listed(properties: dict[str, str]) -> str:
    """Return properties as they stand between the brackets of TBLPROPERTIES."""
    return ", ".join(f"'{name}' = '{escaped(value)}'" for name, value in properties.items())


def escaped(text: str) -> str:
    """Return text as it stands between single quotes in Spark SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
