"""What the small tables beside a table have in common, which a launch fills from values that it has at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.table.commit_files import file_options

SMALL_TABLE = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.checkpointInterval": "100",
    "delta.enableDeletionVectors": "false",
}
"""Properties that such a table is made with."""


def small_table_options(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the options with which such a table is written, and made where it is not there."""
    return {**SMALL_TABLE, **file_options(spark, path)}


def frame_of(spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: str) -> DataFrame:
    """Return rows as a frame; they travel as one JSON text, since a list of Python rows would start Python workers.

    Args:
        columns: Names and types, as in a statement that makes a table.
    """
    one = spark.range(1)  # first: without a session no expression can be made
    return one.select(F.inline(F.from_json(F.lit(json.dumps(rows)), f"array<struct<{columns}>>"))).coalesce(1)
