"""Files that a table on this disk says it has, and that are not there."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.core.spec.fields import is_uri
from backfill_assets.lake import local_log
from backfill_assets.lake.commit_files import file_options
from backfill_assets.lake.paths import commit_file
from backfill_assets.spark.local_disk import local_path, seen_as_spark_does


def lost_files(spark: SparkSession, table_path: str) -> list[str]:
    """Return the data files of a table's newest version that are not there, in order; none of a table elsewhere.

    As long as the log has all of its commits they are read here; else Spark is asked.

    Raises:
        ReceiptError: A commit is damaged.
    """
    folder = seen_as_spark_does(spark, table_path)
    if folder is None or local_log.was_never_made(spark, table_path):
        return []
    named = (_named_in if local_log.is_whole(spark, table_path) else _named_by_spark)(spark, table_path)
    return sorted(name for name in named if not _is_there(folder, name))


def _is_there(folder: Path, name: str) -> bool:
    """Say whether a file is there; of one of a clone, which may lie in another storage, that is taken for granted."""
    local = local_path(name) if is_uri(name) else folder / name
    return local is None or local.exists()


def _named_in(spark: SparkSession, table_path: str) -> set[str]:
    """Return the files that are left after every commit of a log."""
    named: set[str] = set()
    versions = range((local_log.newest_commit(spark, table_path) or 0) + 1)
    for version, lines in local_log.lines_of(spark, table_path, versions):
        with local_log.readable(commit_file(table_path, version)):
            actions = [json.loads(line) for line in lines or () if line]
        for action in actions:
            if added := action.get("add"):
                named.add(unquote(added["path"]))
            elif removed := action.get("remove"):
                named.discard(unquote(removed["path"]))
    return named


def _named_by_spark(spark: SparkSession, table_path: str) -> set[str]:
    try:
        rows = spark.read.format("delta").options(**file_options(spark, table_path)).load(table_path)
        return set(map(unquote, rows.inputFiles()))
    except AnalysisException:
        return set()
