"""How many rows the partitions of a table have, whoever wrote them: what a launch may destroy is measured on this."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.errors import UnreadableTableError
from backfill_assets.lake.tally import rows_by_partition, rows_by_value
from backfill_assets.lake.unreadable import unreadable_partitions
from backfill_assets.spark.expressions import column
from backfill_assets.spark.failures import translated
from backfill_assets.table.log import TableLog
from backfill_assets.table.readers import open_table


def rows_now(
    spark: SparkSession, spec: TableSpec, log: TableLog, partitions: Sequence[Partition], *, version: int | None = None
) -> dict[str, int | None]:
    """Return the rows of partitions in one version of a table, by key; a partition without rows is missing.

    The statistics of the version's files count them. Spark counts if they do not: files without statistics, by their
    footers; files with deletion vectors; a table that delta-rs cannot open.

    Args:
        version: The newest if not given; -1 is the table before it was made.

    Returns:
        None where nobody can count the rows, because a file can no longer be read.
    """
    if not partitions or (version is not None and version < 0):
        return {}
    told = log.rows_by_value(version)
    if told is None:
        return _counted(spark, spec, log, partitions, version)
    by_key = {spec.grid.key_of(value): rows for value, rows in told.items()}
    found = {p.key: by_key[p.key] for p in partitions if by_key.get(p.key, 0) != 0}
    unknown = [p for p in partitions if p.key in found and found[p.key] is None]
    return {key: rows for key, rows in found.items() if rows} | _counted(spark, spec, log, unknown, version)


def rows_of_all(
    spark: SparkSession,
    spec: TableSpec,
    log: TableLog,
    *,
    version: int | None = None,
    only: Callable[[str], bool] = lambda _: True,
) -> dict[str, int]:
    """Return the rows of a whole table by value of the partition column, counted like `rows_now` does.

    Args:
        only: Says of a value whether its rows are wanted; those of others are not read.
    """
    told = log.rows_by_value(version)
    known = {value: rows for value, rows in (told or {}).items() if rows is not None and only(value)}
    unknown = [value for value, rows in (told or {}).items() if rows is None and only(value)]
    if told is not None and not unknown:
        return known
    rows = open_table(spark, log.path, version)
    if rows is None:
        return {}
    if told is not None:
        rows = rows.where(column(spec.partition_column).cast("string").isin(unknown))
    return known | {value: count for value, count in rows_by_value(spec, rows).items() if only(value)}


def _counted(
    spark: SparkSession, spec: TableSpec, log: TableLog, partitions: Sequence[Partition], version: int | None
) -> dict[str, int | None]:
    """Let Spark count the rows; where some partitions cannot be read, of the others."""
    rows = open_table(spark, log.path, version) if partitions else None
    if rows is None:
        return {}
    try:
        with translated(spec.key, log.path):
            return {**rows_by_partition(spec, rows.where(replace_where(spec.partition_column, partitions)))}
    except UnreadableTableError:
        if not (unreadable := unreadable_partitions(spark, spec, log, partitions, version=version)):
            raise
    readable = [partition for partition in partitions if partition.key not in unreadable]
    return {**dict.fromkeys(unreadable), **_counted(spark, spec, log, readable, version)}
