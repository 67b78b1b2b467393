"""How the files of a Delta table are made and read on this disk.

Hadoop's own local file system starts a process for the permissions of each file and folder, some thousand in a launch
of 1,096 partitions; another one asks the JVM. That one lists a linked folder as itself, and takes the set-group bit
from the folders that it makes: so it is for tables of which neither matters. What Delta's log names is read by it too,
through links as well: Delta keeps what it knows of a table by the options that it is opened with, and would work out
the same log once for what reads and once more for what writes.
"""

from __future__ import annotations

import stat
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.spark.local_disk import seen_as_spark_does
from backfill_assets.spark.settings import LOCAL_FILE_SYSTEM

OPTION = "fs.file.impl"


def file_options(spark: SparkSession, table_path: str) -> dict[str, str]:
    """Return the options by which Delta reads and writes with the session's faster file system; none if it may not.

    | table's folder, and its log's | session               | options |
    |-------------------------------|-----------------------|---------|
    | folders                       | has one               | its     |
    | folders                       | names another one     | none    |
    | a link, or not here           | has one               | none    |
    | with the set-group bit        | has one               | none    |
    | -                             | of a server elsewhere | none    |

    Source: Delta Lake documentation, "Configure Delta storage credentials": options that begin with `fs.`.
    """
    file_system, folder = spark.conf.get(LOCAL_FILE_SYSTEM, None), seen_as_spark_does(spark, table_path)
    if not file_system or spark.conf.get(f"spark.hadoop.{OPTION}", None) or folder is None:
        return {}
    if not all(map(_is_plain, (folder, folder / "_delta_log"))):
        return {}
    return {OPTION: file_system, f"{OPTION}.disable.cache": "true"}  # else Hadoop takes the one that it has


def _is_plain(folder: Path) -> bool:
    """Say whether this is a folder, no link to one, that does not hand its group on."""
    try:
        mode = folder.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and not mode & stat.S_ISGID
