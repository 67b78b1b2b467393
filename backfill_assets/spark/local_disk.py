"""What this process may look at itself, because Spark would see the same: folders on this machine's own disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from backfill_assets.core.spec.fields import is_uri
from backfill_assets.spark.caching import is_of_a_server
from backfill_assets.spark.later import setting

HADOOP_FILES = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"}
"""Where files may lie that say what a plain path means."""

MACHINE = "spark.backfill_assets.machine"
"""Setting of our own Connect server: on which machine, and in which container, it runs."""


def local_path(uri: str) -> Path | None:
    """Return the path of a `file:` URI or a plain path; None for any other storage."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(re.sub(r"^file:/+", "/", uri))  # Hadoop does not unescape it either
    return None if is_uri(uri) else Path(uri)


def seen_as_spark_does(spark: SparkSession, uri: str) -> Path | None:
    """Return the folder that Spark means; None where it may be another one, or this process cannot know.

    What a Connect server of another machine or container sees is not known here, nor what a plain path means where
    Hadoop's own files may say so.
    """
    folder = local_path(uri)
    is_plain = folder is not None and not is_uri(uri)
    may_be_elsewhere = is_plain and (
        HADOOP_FILES & os.environ.keys() or setting(spark, "spark.hadoop.fs.defaultFS") is not None
    )
    return None if may_be_elsewhere or _is_elsewhere(spark) else folder


def this_machine() -> str:
    """Return what processes that see the same files have in common, and no others; empty if that is not known."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        mounts, root = Path("/proc/self/ns/mnt").readlink(), Path("/").stat()
    except OSError:  # no Linux
        return ""
    return f"{started} {mounts} {root.st_dev}:{root.st_ino}"


def _is_elsewhere(spark: SparkSession) -> bool:
    """Say whether Spark may see other files than this process."""
    return is_of_a_server(spark) and (setting(spark, MACHINE) or "unknown") != this_machine()
