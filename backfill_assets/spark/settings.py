"""Where Spark runs and with which settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from backfill_assets.errors import ConfigurationError

DELTA_VERSION = "4.4.0"


SPARK_VERSION = "4.2.0"


_MEMORY_OF_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def share_of_memory(limits: Iterable[Path] = _MEMORY_OF_CONTAINER) -> str:
    """Return the heap that a driver gets where nobody says: a quarter of what this machine or its container has.

    So much Java takes by itself; Spark would give it 1 GB whatever there is. At least 1 GB, at most 8.

    Args:
        limits: Files with the bytes that a container may use; there may be none, or `max` in them.
    """
    has_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in limits:
        with suppress(OSError, ValueError):
            has_bytes = min(has_bytes, int(limit.read_text()))
    return f"{min(max(has_bytes // 4 // 2**20, 1024), 8192)}m"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and what it may use.

    Args:
        master: Classic Spark: `local[*]` or a cluster's URL.
        remote: A Spark Connect server, `sc://host:port`; the master is not used then.
        driver_memory: For a driver that this process starts, as Java writes it: `4g`, `1536m`.
        jars_dir: Folder with the Delta jars, for machines without a network; else they are fetched once into a cache.
        extra: More Spark settings; they win over the project's own.

    The last ones and the server's address may hold secrets; they are not in its text.
    """

    master: str = "local[*]"
    remote: str | None = field(default=None, repr=False)
    driver_memory: str = field(default_factory=share_of_memory)
    jars_dir: Path | None = None
    extra: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def settings_from_environment(environment: Mapping[str, str]) -> SparkSettings:
    """Read `SPARK_MASTER`, `SPARK_REMOTE`, `SPARK_DRIVER_MEMORY`, `SPARK_JARS_DIR`, `SPARK_EXTRA_CONF` (`a=b;c=d`).

    Raises:
        ConfigurationError: A part of the last one is no setting.
    """
    pairs = [pair.partition("=") for pair in environment.get("SPARK_EXTRA_CONF", "").split(";") if pair.strip()]
    if wrong := [number for number, (_, equals, _) in enumerate(pairs, start=1) if not equals]:
        raise ConfigurationError(  # what is there may be a part of a secret
            f"`SPARK_EXTRA_CONF`: part {wrong[0]} of {len(pairs)} has no `=`.",
            state="Nothing was started.",
            remedy="Write it as `name=value;name=value`; a value cannot have a `;` in it.",
        )
    jars_dir = environment.get("SPARK_JARS_DIR")
    return SparkSettings(
        master=environment.get("SPARK_MASTER", "local[*]"),
        remote=environment.get("SPARK_REMOTE") or None,
        driver_memory=environment.get("SPARK_DRIVER_MEMORY") or share_of_memory(),
        jars_dir=Path(jars_dir) if jars_dir else None,
        extra={name.strip(): value.strip() for name, _, value in pairs},
    )


CLASS_PATH, JARS = "spark.driver.extraClassPath", "spark.jars"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""Three settings that are joined with a user's own instead of replaced by them."""


LOCAL_FILE_SYSTEM = "spark.backfill_assets.localFileSystem"
"""Class of the file system that makes the files of commits on this disk; empty: Hadoop's own."""


SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "static",
    # the default writes INT96, which other readers dislike
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",  # half the size of snappy, and no slower
    # list in the driver: a job of 1,096 tasks costs more
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.openCostInBytes": "65536",  # many small files share a task
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # staged rows are kept for seconds
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks is for logs of millions of files
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "true",
    "spark.databricks.delta.stats.collect": "true",
    # a version is older than what it held: a launch's of today may replace what a version of last year had, and an undo
    # reads that. Files that are gone are noticed when they are read
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # a file that cannot be read, or that a table's log names and is gone, is no file without rows
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # a partition that had no rows and has none is published too
    "spark.databricks.delta.skipRecordingEmptyCommits": "false",
}
"""What a session must have whatever it runs on; `connect.py` sets it on a Connect session, which brings its own."""
