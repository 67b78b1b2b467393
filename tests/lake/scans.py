"""Rows as a source hands them over."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.ports import Scan
from backfill_assets.core.spec.table import TableSpec
from tests.support.shop import frame_of


def scan(
    spark: SparkSession,
    spec: TableSpec,
    rows: dict[str, list[dict[str, Any]]] | list[dict[str, Any]],
    *,
    scattered: bool = False,
) -> Scan[Any]:
    """Rows as a source stages them; by the file they come from, or without files."""
    if isinstance(rows, list):
        return Scan(frame_of(spark, spec, rows, partitioned=False), {}, {})
    frames = [
        frame_of(spark, spec, part, partitioned=False).withColumn("_ba_file_id", F.lit(i).cast("bigint"))
        for i, part in enumerate(rows.values())
    ]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    return Scan(frame, {}, {}, dict(enumerate(rows)), scattered)
