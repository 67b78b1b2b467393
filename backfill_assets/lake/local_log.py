"""The log of a table that this process can list itself: its commits in milliseconds, where Spark takes a query.

Where Spark may mean another folder than this process, nothing is known here, whatever lies at that path.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.errors import ReceiptError
from backfill_assets.spark.local_disk import seen_as_spark_does

READ_AT_ONCE = 1_000
"""So many commits are read faster than Spark answers one query."""

READ_AT_MOST = 64 << 20
"""So many bytes of commits, too."""

_COMMIT = re.compile(r"\d{20}\.json")


def newest_commit(spark: SparkSession, table_path: str) -> int | None:
    """Return the newest version in a log; None where it cannot be listed, or there is none."""
    return max(_commits(spark, table_path), default=None)


def commit_times(spark: SparkSession, table_path: str) -> tuple[datetime, datetime] | None:
    """Return when the oldest and the newest commit of a log were made, as Delta tells it; None as `newest_commit`."""
    commits = _commits(spark, table_path)
    try:
        seconds = [commits[version].stat().st_mtime for version in (min(commits), max(commits))] if commits else []
    except OSError:  # cleaned up now
        return None
    return (datetime.fromtimestamp(seconds[0], UTC), datetime.fromtimestamp(seconds[1], UTC)) if seconds else None


def is_whole(spark: SparkSession, table_path: str, most: int = READ_AT_ONCE) -> bool:
    """Say whether the log still has every commit that was ever made, and not too many to read them all."""
    return _are_whole(_commits(spark, table_path), most)


def user_metadata(spark: SparkSession, table_path: str, first: int) -> dict[int, str | None] | None:
    """Return what commits carry from a version on, by version; None where the log cannot be listed.

    Spark takes ten times as long for tens of thousands of commits.
    """
    commits = _commits(spark, table_path)
    if not commits:
        return None
    found: dict[int, str | None] = {}
    for version in sorted(version for version in commits if version >= first):
        file = commits[version]
        with suppress(FileNotFoundError), readable(str(file)), file.open(encoding="utf-8") as lines:  # cleaned up now
            actions = (json.loads(line) for line in lines if '"commitInfo"' in line)
            info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
            found[version] = info.get("userMetadata")
    return found


@contextmanager
def readable(commit: str) -> Iterator[None]:
    """Say in words that a commit is damaged, while its file is read.

    Raises:
        ReceiptError: It is.
    """
    try:
        yield
    except ValueError as error:  # of JSON, or of UTF-8
        raise ReceiptError(
            f"The commit `{commit}` cannot be read: {error}.",
            state="The table's rows were not touched.",
            remedy="Put the file back from a copy. Do not delete it: without it the table cannot be read. Only "
            "`<table>_receipts` may go, as a whole folder: the next launch fills it again.",
        ) from error


def was_never_made(spark: SparkSession, table_path: str) -> bool:
    """Say whether there is certainly no table: its folder would be on this disk, and has no log."""
    folder = seen_as_spark_does(spark, table_path)
    if folder is None:
        return False
    try:
        (folder / "_delta_log").stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def newest_metadata(spark: SparkSession, table_path: str) -> dict[str, Any] | None:
    """Return the newest `metaData` of a log; None where Spark may see another log, or it has forgotten commits.

    Raises:
        ReceiptError: A commit is damaged.
    """
    commits = _commits(spark, table_path)
    if not _are_whole(commits):
        return None
    left_bytes = READ_AT_MOST
    for _, file in sorted(commits.items(), reverse=True):
        try:
            left_bytes -= file.stat().st_size
            if left_bytes < 0:
                return None
            with readable(str(file)), file.open(encoding="utf-8") as lines:
                naming = (json.loads(line) for line in lines if '"metaData"' in line)  # be it as a partition column
                found = next((action["metaData"] for action in naming if "metaData" in action), None)
        except OSError:
            return None
        if found:
            return found
    return None


def lines_of(spark: SparkSession, table_path: str, versions: Iterable[int]) -> Iterator[tuple[int, list[str] | None]]:
    """Return the actions of commits, a JSON text each, by version; None where a file cannot be read from here."""
    folder = seen_as_spark_does(spark, table_path)
    for version in versions:
        yield version, None if folder is None else _lines(folder / "_delta_log" / f"{version:020d}.json")


def _lines(file: Path) -> list[str] | None:
    try:
        with readable(str(file)):
            return file.read_text(encoding="utf-8").split("\n")
    except OSError:
        return None


def _are_whole(commits: Mapping[int, Path], most: int = READ_AT_ONCE) -> bool:
    return 0 < len(commits) <= most and commits.keys() == set(range(len(commits)))


def _commits(spark: SparkSession, table_path: str) -> dict[int, Path]:
    """Return the files of commits by version; none where this process cannot list them."""
    folder = seen_as_spark_does(spark, table_path)
    if folder is None:
        return {}
    try:
        names = [entry.name for entry in os.scandir(folder / "_delta_log")]
    except OSError:
        return {}
    return {int(name[:20]): folder / "_delta_log" / name for name in names if _COMMIT.fullmatch(name)}
