"""A scan that is read once: late rows joined, one row per key, tallied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.core.state.tallies import NOTHING_KNOWN, Contents, are_known, total, total_of
from backfill_assets.errors import NOTHING_WRITTEN, SourceChangedError, StagedContentLostError
from backfill_assets.lake.files_without_values import FILE_NUMBER, FileIds, FilesWithoutValues
from backfill_assets.lake.latest_wins import IS_LATE, winners
from backfill_assets.lake.side_tables import LateTable
from backfill_assets.lake.tally import Groups, duplicate_keys_by_partition, groups_of, tallies_of, tally_rows
from backfill_assets.lake.unpublished_rows import Reads, UnpublishedRows, rows_by_key
from backfill_assets.spark.expressions import any_of, column, partition_type, partition_value
from backfill_assets.spark.failures import translated

BYTES_IN_A_TASK = 24 << 20
"""Stored bytes of the source whose rows one task goes through; as rows they may be ten times as many."""

MOST_TASKS = 200
"""More than 4 GB need; a database that has not counted its rows for long may say any size."""

_HOME = "_ba_home"
_FILE_ID = "_ba_file_id"
_PROBLEM = "_ba_problem"


def stage(
    late_table: LateTable,
    reads: Reads,
    scan: Scan[DataFrame],
    late: Late = NO_LATE,
    *,
    table_path: str | None = None,
    size_bytes: int = 0,
    unique: Contents = NOTHING_KNOWN,
    keeps: bool = True,
    begin: Callable[[str], None] = lambda _: None,
) -> StagedChunk[DataFrame]:
    """Read a scan once: join late rows, resolve rows with the same key, tally them.

    Rows that the table cannot have are set aside: their partitions are refused. They neither win over others with their
    key nor lose to them. If they won, a good row would be lost; if they lost, nobody would hear of them.

    Args:
        late_table: Of the table that the rows are for.
        reads: Writes the rows as files, or keeps them.
        table_path: Folder of the table, if the rows are written as files of it.
        size_bytes: Stored bytes of what is read, as far as they are known.
        unique: Contents of which it is known that no key comes twice, by partition key: where all that was read is one
            of them, no keys are counted.
        keeps: If not, rows are only tallied, unless late ones are joined, or any partition has another content than
            `unique`.
        begin: Called with the name of each step when it begins.

    Raises:
        UnreadableSourceError: A file could not be read to its end.
        MemoryExhaustedError: Spark ran out of memory.
        StagedContentLostError: The files that were written hold other rows than those that went into them.
        SourceChangedError: Rows that were set aside are others when they are read again.
    """
    spec, by_file = late_table.spec, scan.partition_by_file
    begin("write" if table_path else "read")
    if not keeps and not late.rows and (known := _tallied(spec, scan, unique)):
        return replace(known, late=late)
    with ExitStack() as held, translated(spec.key, table_path):

        def read(
            rows: DataFrame, is_aside: Column, measured: Mapping[str, Column], *, scattered: bool
        ) -> UnpublishedRows:
            rows = _spread(spec, rows, min(size_bytes // BYTES_IN_A_TASK, MOST_TASKS), scattered=scattered)
            made = reads(rows, is_aside, measured, size_bytes=size_bytes)
            held.callback(made.release)  # also if a later one cannot be read
            return made

        without_values = FilesWithoutValues(spec, by_file, are_alone=not late.rows)
        rows = _with_home(spec, _with_partition(spec, scan), by_file)
        parts = [read(rows, _is_aside(spec, rows), without_values.measured(), scattered=scan.scattered)]
        if late.rows:
            late_rows = _late_rows(late_table, late)
            parts.append(read(late_rows, _is_aside(spec, late_rows), {}, scattered=True))
        homes = [by_file, None][: len(parts)]
        found_aside = zip((part.aside() for part in parts), homes, strict=True)
        aside = [(rows, home) for rows, home in found_aside if rows is not None]
        begin("audit")
        empty_columns = without_values.found(parts[0].seen)
        groups = groups_of(spec, _union(part.rows() for part in parts))
        _refuse_other_content(spec, parts, groups)
        is_known = not aside and are_known(tallies_of(spec, groups), unique)
        repeated = {} if is_known else duplicate_keys_by_partition(spec, _union(part.rows() for part in parts))
        resolved = [str(spec.grid.partition(key).value) for key in repeated if spec.latest_wins_by]
        chosen = [(part, resolved) for part in parts]
        if resolved:
            parts.append(read(_winners(spec, parts, resolved), F.lit(False), {}, scattered=True))
            chosen.append((parts[-1], []))
            won = groups_of(spec, parts[-1].rows())
            _refuse_other_content(spec, parts[-1:], won)
            groups = {key: found for key, found in groups.items() if key not in repeated} | won
        _refuse_other_counts(spec, chosen, groups)
        set_aside = [groups_of(spec, rows, home) for rows, home in aside]
        _refuse_changed(spec, parts, set_aside)
        for of_part in set_aside:
            for key, found in of_part.items():
                groups[key] = [*groups.get(key, []), *found]
        tallies = {
            key: replace(
                tally,
                duplicate_keys=0 if resolved else repeated.get(key, 0),
                empty_columns=empty_columns.get(key, tally.empty_columns),
            )
            for key, tally in tallies_of(spec, groups).items()
        }
        kept = _union(part.rows(without) for part, without in chosen)
        for rows, _ in aside:
            kept = kept.unionByName(rows.drop(_HOME), allowMissingColumns=True)
        superseded = repeated if resolved else {}
        return StagedChunk(kept, tallies, superseded, by_file, held.pop_all().close, late, parts=tuple(chosen))


def _tallied(spec: TableSpec, scan: Scan[DataFrame], known: Contents) -> StagedChunk[DataFrame] | None:
    """Read a scan once and keep nothing of it; None where any partition has another content than is known.

    It costs neither memory nor, where rows are scattered, bringing those of a partition together.
    """
    with translated(spec.key):
        tallies = tally_rows(spec, _with_partition(spec, scan), scan.partition_by_file)
    return StagedChunk(None, tallies, {}, scan.partition_by_file, lambda: None) if are_known(tallies, known) else None


def _with_partition(spec: TableSpec, scan: Scan[DataFrame]) -> DataFrame:
    return scan.rows.withColumn(spec.partition_column, partition_value(spec, column(spec.event_time)))


def _with_home(spec: TableSpec, rows: DataFrame, by_file: FileIds) -> DataFrame:
    """Add the number of each row's file, and the partition that the file is for."""
    if by_file is None:
        return rows
    values = {key: str(spec.grid.partition(key).value) for key in {*by_file.values()}}
    files = [(file_id, number, values[key]) for number, (file_id, key) in enumerate(by_file.items())]
    homes = rows.sparkSession.createDataFrame(files, f"{_FILE_ID} bigint, {FILE_NUMBER} int, {_HOME} string")
    homes = homes.withColumn(_HOME, F.col(_HOME).cast(partition_type(spec)))
    return rows.join(F.broadcast(homes), _FILE_ID, "left")


def _is_aside(spec: TableSpec, rows: DataFrame) -> Column:
    """Return which rows the table cannot have: unreadable, without a value that it requires, or of another day."""
    here = column(spec.partition_column)
    conditions = [here.isNull(), *(column(name).isNull() for name in spec.required_columns)]
    if _PROBLEM in rows.columns:
        conditions.append(F.col(_PROBLEM).isNotNull())
    if _HOME in rows.columns:
        conditions.append(~here.eqNullSafe(F.col(_HOME)))
    return any_of(conditions)


def _late_rows(late_table: LateTable, late: Late) -> DataFrame:
    spec = late_table.spec
    rows = late_table.rows_of([spec.grid.partition(key) for key in late.rows], version=late.version)
    assert rows is not None, "late rows were counted in a table that is not there"  # noqa: S101 (counted just before)
    return rows


def _winners(spec: TableSpec, parts: Sequence[UnpublishedRows], values: Sequence[str]) -> DataFrame:
    """Return the one row of each key in some partitions; the second part has the late rows."""
    marked = _union(part.rows().withColumn(IS_LATE, F.lit(number > 0)) for number, part in enumerate(parts))
    return winners(spec, marked.where(column(spec.partition_column).cast("string").isin([*values]))).drop(IS_LATE)


def _refuse_other_content(spec: TableSpec, parts: Sequence[UnpublishedRows], groups: Groups) -> None:
    """Compare the rows that were read back with those that went in: a setting may change what a file can hold."""
    contents = [part.went_in for part in parts if part.went_in is not None]
    went_in, read = total_of(contents), total(tallies_of(spec, groups).values())
    if contents and went_in != read:
        raise StagedContentLostError(
            f"`{spec.key}`: {went_in[0]:,} rows (checksum `{went_in[1]:016x}`) were written to files, and {read[0]:,} "
            f"(`{read[1]:016x}`) were read back.",
            state=NOTHING_WRITTEN,
            remedy="Look for a setting in SPARK_EXTRA_CONF that changes what Spark writes; then launch again.",
        )


def _refuse_changed(spec: TableSpec, parts: Sequence[UnpublishedRows], set_aside: Sequence[Groups]) -> None:
    """Compare the rows that were set aside with those that are found when they are read again."""
    before = sum(part.count_aside for part in parts)
    again = sum(group["_ba_rows"] for groups in set_aside for found in groups.values() for group in found)
    if before != again:
        raise SourceChangedError(
            f"`{spec.key}`: the first read found {before:,} rows that the table cannot have, and the second one "
            f"{again:,}.",
            state=NOTHING_WRITTEN,
            remedy="Launch again when the source has stopped changing. A transform must give the same rows each time.",
        )


def _refuse_other_counts(
    spec: TableSpec, chosen: Sequence[tuple[UnpublishedRows, Sequence[str]]], groups: Groups
) -> None:
    """Compare the rows that were read back from files with those that Delta counted when it wrote them."""
    counted = rows_by_key(spec, ((part.counted(), without) for part, without in chosen))
    read = {key: sum(group["_ba_rows"] for group in found) for key, found in groups.items()}
    if counted and counted != read:
        wrong = sorted(key for key in {*counted, *read} if counted.get(key) != read.get(key))
        raise StagedContentLostError(
            f"`{spec.key}`: the files that were written hold other rows than Delta counted in {len(wrong)} partitions "
            f"(first `{wrong[0]}`: {counted.get(wrong[0])} written, {read.get(wrong[0], 0)} read back).",
            state=NOTHING_WRITTEN,
            remedy="Launch again; if it happens twice, look for files that are lost, or a setting that skips them.",
            partitions=wrong,
        )


def rows_of(spec: TableSpec, staged: StagedChunk[DataFrame], partitions: Sequence[Partition]) -> DataFrame:
    """Return the staged rows of some partitions: those that lie in them and are kept there."""
    wanted = {p.key for p in partitions}
    if not staged.tallies.keys() - wanted:
        return staged.rows
    rows = staged.rows.where(replace_where(spec.partition_column, partitions))
    if staged.partition_by_file is not None and _FILE_ID in rows.columns:
        others = [file_id for file_id, key in staged.partition_by_file.items() if key not in wanted]
        rows = rows.where(F.col(_FILE_ID).isNull() | ~F.col(_FILE_ID).isin(others))
    return rows


def _spread(spec: TableSpec, rows: DataFrame, tasks: int, *, scattered: bool) -> DataFrame:
    """Bring the rows of each partition into one task.

    Args:
        tasks: So many, and more, are needed if one is to sort its rows by partition for the write without going to
            disk. Where nothing is scattered there are no more tasks than the read has, and no more than write at once,
            so that a large partition does not become many files.
    """
    fewest = 2 * int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 4)  # which are twice the cores
    return rows.repartition(max(fewest, tasks), column(spec.partition_column)) if scattered else rows.coalesce(fewest)


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
