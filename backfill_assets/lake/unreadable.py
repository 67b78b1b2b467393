"""Which files of a table are gone or damaged, and which of its partitions cannot be read for that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.fields import is_uri
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.errors import UnreadableSourceError, UnreadableTableError
from backfill_assets.lake.tally import tally_rows
from backfill_assets.spark.failures import translated
from backfill_assets.spark.local_disk import local_path, seen_as_spark_does
from backfill_assets.spark.storage import those_there
from backfill_assets.table.log import LoggedCommit, TableLog
from backfill_assets.table.readers import open_table

_GONE = "its file `{}` does not exist"


def lost_files(spark: SparkSession, log: TableLog, version: int | None = None) -> dict[str, str | None]:
    """Return the data files of a version of a table that are not there, each with its value of the partition column.

    Only a table on this disk is looked at: elsewhere each file would cost a request.

    Args:
        version: The newest if not given.
    """
    folder = seen_as_spark_does(spark, log.path)
    found = log.snapshot(version) if folder is not None else None
    if folder is None or found is None:
        return {}
    return {file.path: file.value for file in found.files() if not _is_there(folder, file.path)}


def lost_of_commit(spark: SparkSession, log: TableLog, commit: LoggedCommit) -> list[str]:
    """Return the data files that one commit added and that are not there, in any storage."""
    names = set(map(unquote, commit.added))
    by_path = {name if is_uri(name) else f"{log.path.rstrip('/')}/{name}": name for name in names}
    there = those_there(spark, sorted(by_path))
    return sorted(name for path, name in by_path.items() if path not in there)


def unreadable_partitions(
    spark: SparkSession,
    spec: TableSpec,
    log: TableLog,
    partitions: Sequence[Partition],
    *,
    version: int | None = None,
    reads: bool = True,
) -> dict[str, str]:
    """Return which of some partitions cannot be read, by key, each with why.

    Args:
        version: Of the table; the newest if not given.
        reads: Whether rows are read to find files that are damaged, or gone from another storage. Without that only the
            files are looked for that the log names.
    """
    keys = {str(partition.value): partition.key for partition in partitions}
    lost = lost_files(spark, log, version) if partitions else {}
    of_values = {value: name for name, value in sorted(lost.items(), reverse=True)}
    found = {keys[value]: _GONE.format(name) for value, name in of_values.items() if value in keys}
    if reads:
        found |= _unread(spark, spec, log.path, [p for p in partitions if p.key not in found], version)
    return {partition.key: found[partition.key] for partition in partitions if partition.key in found}


def _unread(
    spark: SparkSession, spec: TableSpec, table_path: str, partitions: Sequence[Partition], version: int | None
) -> dict[str, str]:
    """Read partitions, and halves of them as long as that fails, until each that cannot be read is found."""
    rows = open_table(spark, table_path, version) if partitions else None
    if rows is None:
        return {}
    try:
        with translated(spec.key, table_path):
            tally_rows(spec, rows.where(replace_where(spec.partition_column, partitions)))
    except (UnreadableTableError, UnreadableSourceError) as error:
        if len(partitions) == 1:
            return {partitions[0].key: str(error.facts.get("why") or error.what.rstrip("."))}
        half = len(partitions) // 2
        first = _unread(spark, spec, table_path, partitions[:half], version)
        return first | _unread(spark, spec, table_path, partitions[half:], version)
    return {}


def _is_there(folder: Path, name: str) -> bool:
    """Say whether a file is there; of one of a clone, which may lie in another storage, that is taken for granted."""
    local = local_path(name) if is_uri(name) else folder / name
    return local is None or local.exists() or (folder / unquote(name)).exists()  # delta-rs has both forms
