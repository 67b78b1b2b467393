"""Which files of a table are gone or damaged, and which of its partitions cannot be read for that."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.fields import is_uri
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.errors import UnreadableSourceError, UnreadableTableError
from backfill_assets.lake import local_log
from backfill_assets.lake.commit_files import file_options
from backfill_assets.lake.delta_log import open_table
from backfill_assets.lake.paths import commit_file
from backfill_assets.lake.tally import tally_rows
from backfill_assets.spark.failures import translated
from backfill_assets.spark.local_disk import local_path, seen_as_spark_does
from backfill_assets.spark.storage import those_there

_GONE = "its file `{}` does not exist"


def lost_files(spark: SparkSession, table_path: str, version: int | None = None) -> dict[str, str | None]:
    """Return the data files of a version of a table that are not there, each with its partition values in one text.

    Only a table on this disk is looked at: elsewhere each file would cost a request.

    Args:
        version: The newest if not given.

    Returns:
        By name as the log has it; the value is of the one partition column, None where the log does not say.
    """
    folder = seen_as_spark_does(spark, table_path)
    if folder is None or local_log.was_never_made(spark, table_path):
        return {}
    named = _named_by_delta_rs(folder, version)
    if named is None:
        named = dict.fromkeys(_named_by_spark(spark, table_path, version))
    return {name: value for name, value in sorted(named.items()) if not _is_there(folder, name)}


def lost_of_commit(spark: SparkSession, table_path: str, version: int) -> list[str]:
    """Return the data files that one commit added and that are not there, in any storage."""
    named: set[str] = set()
    commit = commit_file(table_path, version)
    for _, here in local_log.lines_of(spark, table_path, [version]):
        lines = [row["value"] for row in spark.read.text(commit).collect()] if here is None else here
        with local_log.readable(commit):
            actions = [json.loads(line) for line in lines if line.startswith('{"add"')]
        named |= {unquote(action["add"]["path"]) for action in actions}
    by_path = {name if is_uri(name) else f"{table_path.rstrip('/')}/{name}": name for name in named}
    there = those_there(spark, sorted(by_path))
    return sorted(name for path, name in by_path.items() if path not in there)


def unreadable_partitions(
    spark: SparkSession,
    spec: TableSpec,
    table_path: str,
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
    lost = lost_files(spark, table_path, version) if partitions else {}
    of_values = {value or _value_in(name, spec.partition_column): name for name, value in reversed(lost.items())}
    found = {keys[value]: _GONE.format(name) for value, name in of_values.items() if value in keys}
    if reads:
        found |= _unread(spark, spec, table_path, [p for p in partitions if p.key not in found], version)
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


def _named_by_delta_rs(folder: Path, version: int | None) -> dict[str, str | None] | None:
    """Return the files of a version with their partition value; None if delta-rs cannot open the table."""
    try:
        files = deltalake.DeltaTable(str(folder), version=version).get_add_actions(flatten=True)
    except (DeltaError, OSError, ValueError):
        return None
    names: Any = files.column("path").to_pylist()
    columns = [name for name in files.schema.names if name.startswith("partition.")]
    values: Any = files.column(columns[0]).to_pylist() if len(columns) == 1 else [None] * len(names)
    return {name: None if value is None else str(value) for name, value in zip(names, values, strict=True)}


def _named_by_spark(spark: SparkSession, table_path: str, version: int | None) -> set[str]:
    reader = spark.read.format("delta").options(**file_options(spark, table_path))
    reader = reader if version is None else reader.option("versionAsOf", version)
    try:
        return set(map(unquote, reader.load(table_path).inputFiles()))
    except AnalysisException:
        return set()


def _is_there(folder: Path, name: str) -> bool:
    """Say whether a file is there; of one of a clone, which may lie in another storage, that is taken for granted."""
    local = local_path(name) if is_uri(name) else folder / name
    return local is None or local.exists() or (folder / unquote(name)).exists()  # delta-rs has both forms


def _value_in(name: str, partition_column: str) -> str | None:
    """Return the value of the partition column in the path of a file; None if it is not there."""
    found = re.search(rf"(?:^|/){re.escape(partition_column)}=([^/]+)/", name)
    return unquote(found[1]) if found else None
