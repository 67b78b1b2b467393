"""A scan that is read once: late rows joined, one row per key, tallied, and persisted for whoever reads it again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.core.state.tallies import NOTHING_KNOWN, Contents, Tally, are_known
from backfill_assets.lake.latest_wins import IS_LATE, in_slices, latest_wins
from backfill_assets.lake.side_tables import LateTable
from backfill_assets.lake.tally import duplicate_keys_by_partition, tally_rows
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import any_of, column, looked_up, partition_value
from backfill_assets.spark.failures import translated

BYTES_IN_A_TASK = 24 << 20
"""Stored bytes of the source whose rows one task goes through; as rows they may be ten times as many."""

MOST_TASKS = 200
"""More than 4 GB need; a database that has not counted its rows for long may say any size."""

BYTES_IN_MEMORY = 128 << 20
"""Rows of so many stored bytes are kept in memory; of more, Java would spend longer moving them than a disk does."""

FileIds = Mapping[Any, str] | None
"""The partition key of each value of `_ba_file_id`; None where the source keeps rows by event time alone."""


def stage(
    late_table: LateTable,
    scan: Scan[DataFrame],
    late: Late = NO_LATE,
    *,
    slices: int = 1,
    size_bytes: int = 0,
    unique: Contents = NOTHING_KNOWN,
    keeps: bool = True,
) -> StagedChunk[DataFrame]:
    """Read a scan once: join late rows, keep them all, resolve rows with the same key, tally them.

    Args:
        late_table: Of the table that the rows are for.
        slices: More than one: each partition goes through in so many tasks, cut by key, and is kept on disk alone.
        size_bytes: Stored bytes of what is read, as far as they are known; of many, rows are kept on disk alone.
        unique: Contents of which it is known that no key comes twice, by partition key: where all that was read is one
            of them, no keys are counted.
        keeps: If not, rows are kept only if late ones are joined, or any partition has another content than `unique`.

    Raises:
        UnreadableSourceError: A file could not be read to its end.
        MemoryExhaustedError: Spark ran out of memory.
    """
    spec, by_file = late_table.spec, scan.partition_by_file
    if not keeps and not late.rows and (known := _tallied(spec, scan, unique)):
        return replace(known, late=late)
    rows = _with_partition(spec, scan)
    if late.rows:
        rows, by_file = _with_late(late_table, rows, by_file, late)
    scattered = scan.scattered or bool(late.rows)
    tasks = min(size_bytes // BYTES_IN_A_TASK, MOST_TASKS)
    slices = max(slices, tasks) if slices > 1 else 1
    rows = _spread(spec, rows, slices, tasks, scattered=scattered)
    level = _level(slices, size_bytes)
    kept = persist(rows.where(_always(uuid.uuid4().hex)), level)
    resolved: DataFrame | None = None
    try:
        with translated(spec.key):
            tallies = tally_rows(spec, kept, by_file)
            is_aside = _is_aside(tallies, by_file)
            of_keys = kept.where(~is_aside) if is_aside is not None else kept
            is_new = not are_known(tallies, unique)
            repeated = duplicate_keys_by_partition(spec, of_keys, together=scattered and slices == 1) if is_new else {}
            if repeated and spec.latest_wins_by:
                resolved = latest_wins(spec, of_keys, list(repeated), slices=slices, tasks=tasks)
                if is_aside is not None:
                    resolved = resolved.unionByName(kept.where(is_aside))
                resolved = persist(resolved, level)
                tallies = tally_rows(spec, resolved, by_file)
                kept.unpersist()
                return StagedChunk(resolved, tallies, repeated, by_file, _unpersisting(resolved), late=late)
    except BaseException:
        for rows in filter(None, (kept, resolved)):
            rows.unpersist()
        raise
    for key, count in repeated.items():
        if key in tallies:
            tallies[key] = replace(tallies[key], duplicate_keys=count)
    return StagedChunk(kept, tallies, {}, by_file, _unpersisting(kept), late=late)


def _tallied(spec: TableSpec, scan: Scan[DataFrame], known: Contents) -> StagedChunk[DataFrame] | None:
    """Read a scan once and keep nothing of it; None where any partition has another content than is known.

    It costs neither memory nor, where rows are scattered, bringing those of a partition together.
    """
    with translated(spec.key):
        tallies = tally_rows(spec, _with_partition(spec, scan), scan.partition_by_file)
    return StagedChunk(None, tallies, {}, scan.partition_by_file, lambda: None) if are_known(tallies, known) else None


def _with_partition(spec: TableSpec, scan: Scan[DataFrame]) -> DataFrame:
    return scan.rows.withColumn(spec.partition_column, partition_value(spec, column(spec.event_time)))


def _is_aside(tallies: Mapping[str, Tally], by_file: FileIds) -> Column | None:
    """Return which rows neither win over others with their key nor lose to them; None if there are none.

    Those that cannot be read, and those of files with rows of other partitions: their partitions fail. If they won, a
    good row would be lost; if they lost, nobody would hear of them.
    """
    strayed = [file_id for file_id, key in (by_file or {}).items() if key in tallies and tallies[key].stray_rows]
    aside = [F.col("_ba_file_id").isin(strayed)] if strayed else []
    if any(tally.unreadable_rows for tally in tallies.values()):
        aside.append(F.col("_ba_problem").isNotNull())
    return any_of(aside) if aside else None


def rows_of(spec: TableSpec, staged: StagedChunk[DataFrame], partitions: Sequence[Partition]) -> DataFrame:
    """Return the staged rows of some partitions: those that lie in them and are kept there."""
    wanted = {p.key for p in partitions}
    if not staged.tallies.keys() - wanted:
        return staged.rows
    rows = staged.rows.where(replace_where(spec.partition_column, partitions))
    if staged.partition_by_file is not None:
        others = [file_id for file_id, key in staged.partition_by_file.items() if key not in wanted]
        rows = rows.where(~F.col("_ba_file_id").isin(others))
    return rows


def _with_late(late_table: LateTable, rows: DataFrame, by_file: FileIds, late: Late) -> tuple[DataFrame, FileIds]:
    """Join late rows to staged ones.

    Their `_ba_file_id` is the number of their partition, which no hash of a file's path will be.
    """
    spec = late_table.spec
    value = column(spec.partition_column)
    partitions = [spec.grid.partition(key) for key in late.rows]
    more = late_table.rows_of(partitions, version=late.version)
    assert more is not None, "late rows were counted in a table that is not there"  # noqa: S101 (counted just before)
    if by_file is not None:
        numbers = {str(p.value): number for number, p in enumerate(partitions)}
        more = more.withColumn("_ba_file_id", looked_up(numbers, value.cast("string")).cast("bigint"))
        by_file = {**by_file, **{numbers[str(p.value)]: p.key for p in partitions}}
    rows, more = rows.withColumn(IS_LATE, F.lit(False)), more.withColumn(IS_LATE, F.lit(True))
    return rows.unionByName(more, allowMissingColumns=True), by_file


def _spread(spec: TableSpec, rows: DataFrame, slices: int, tasks: int, *, scattered: bool) -> DataFrame:
    """Bring the rows of each partition into one task, or into as many as there are slices.

    Args:
        tasks: So many, and more, are needed if one is to count its keys, and to sort its rows by partition for the
            write, without going to disk. Where nothing is scattered there are no more tasks than the read has, and no
            more than write at once, so that a large partition does not become many files.
    """
    if slices > 1:
        return in_slices(spec, rows, slices)
    fewest = 2 * int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 4)  # which are twice the cores
    return rows.repartition(max(fewest, tasks), column(spec.partition_column)) if scattered else rows.coalesce(fewest)


def _level(slices: int, size_bytes: int) -> StorageLevel:
    is_small = slices == 1 and size_bytes <= BYTES_IN_MEMORY
    return StorageLevel.MEMORY_AND_DISK if is_small else StorageLevel.DISK_ONLY


def _always(name: str) -> Column:
    """Return a condition that every row meets, and that no other frame has.

    Spark takes kept rows for any frame that reads the same paths, in every session of a server, whatever the files hold
    by then: the rows that a killed launch left there would be taken for the source's.
    """
    return F.lit(name) == F.lit(name)


def _unpersisting(rows: DataFrame) -> Callable[[], None]:
    """Return a call after which Spark keeps the rows no longer."""

    def release() -> None:
        rows.unpersist()

    return release
