"""What this process may look at itself, because Spark would see the same: folders on this machine's own disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from backfill_assets.spark.caching import is_of_a_server

HADOOP_FILES = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"}
"""Where files may lie that say what a plain path means."""


def local_path(uri: str) -> Path | None:
    """Return the path of a `file:` URI or a plain path; None for any other storage."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(re.sub(r"^file:/+", "/", uri))  # Hadoop does not unescape it either
    return None if "://" in uri else Path(uri)


def seen_as_spark_does(spark: SparkSession, uri: str) -> Path | None:
    """Return the folder that Spark means; None where it may be another one, or this process cannot know.

    What a Connect server sees is not known here, nor what a plain path means where Hadoop's own files may say so.
    """
    folder = local_path(uri)
    is_plain = folder is not None and "://" not in uri and not uri.startswith("file:")
    may_be_elsewhere = is_plain and (
        HADOOP_FILES & os.environ.keys() or spark.conf.get("spark.hadoop.fs.defaultFS", None) is not None
    )
    return None if may_be_elsewhere or is_of_a_server(spark) else folder
