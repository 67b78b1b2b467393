"""One table of the lakehouse in Delta: what `core.materialize` needs of it, done with Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.core.history.ports import NO_LATE, Commit, Difference, Held, Late, Staged
from backfill_assets.core.state.fence import Fence, first_fence, refuse_live
from backfill_assets.core.calendar.partitions import Partition, quoted, replace_where
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, newest_by_partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import NOTHING_WRITTEN, CommitConflictError, SchemaMismatchError
from backfill_assets.lake.delta_log import (
    SPARK_FAILURES,
    LoggedCommit,
    in_our_words,
    jvm_is_gone,
    newest_version,
    quoted_path,
    read_commits,
)
from backfill_assets.lake.properties import listed, read_fence, write_fence
from backfill_assets.spark.caching import keep
from backfill_assets.lake.locks import table_lock
from backfill_assets.lake.row_examples import EXAMPLES, broken_rows, first_of_each, in_text, named_by_key, values_of
from backfill_assets.lake.overwrite import overwrite
from backfill_assets.lake.receipts_table import TABLE_ID, ReceiptsTable
from backfill_assets.lake.side_tables import LateTable
from backfill_assets.lake.tally import (
    column,
    duplicate_keys_by_partition,
    partition_type,
    partition_value,
    rows_by_partition,
    tally_rows,
)
from backfill_assets.lake.latest_wins import in_slices, latest_wins, lost_rows

LOCK_TIMEOUT_SECONDS = 600.0
PROPERTIES = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
    "delta.enableDeletionVectors": "false",
    "delta.writePartitionColumnsToParquet": "false",
}
"""Set when a table is made, and never altered: an ALTER fails every writer in flight."""


@dataclass(slots=True)
class DeltaTable:
    """One table below the lakehouse's root.

    Args:
        path: Folder of the table; any URI that Spark writes to.
        log: Called with one sentence whenever a person would want to know.
    """

    spark: SparkSession
    spec: TableSpec
    path: str
    log: Callable[[str], None] = field(default=lambda _: None)
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS

    # -- the table itself ------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Say whether the table was made."""
        return self.schema() is not None

    def create(self) -> None:
        """Make the table if it is not there; hold it against the spec if it is.

        The first `replaceWhere` into a table that does not exist would not be checked, so it is made beforehand.

        Raises:
            SchemaMismatchError: There is a table with other columns or another partition column.
        """
        found = self.schema()
        if found is None:
            with table_lock(self.path, timeout_seconds=self.lock_timeout_seconds):
                self.spark.sql(self._create_statement())
            return
        if problems := [*self.schema_problems(found), *self._partitioning_problems()]:
            raise SchemaMismatchError(
                f"`{self.spec.key}`: the table at `{self.path}` differs from its spec: {'; '.join(problems)}.",
                state=NOTHING_WRITTEN,
                remedy=f"A launch never changes a schema. `backfill-assets schema {self.spec.key}` shows what differs, and with `--apply` "
                "lets the table follow where that is safe; or change the spec back.",
                problems=problems,
            )
        fence = first_fence(self.spec)
        if fence and self.fence() is None:
            with table_lock(self.path, timeout_seconds=self.lock_timeout_seconds):
                if self.fence() is None:
                    write_fence(self.spark, self.path, fence)

    def schema_problems(self, found: StructType | None = None) -> list[str]:
        """Return in words how the table's columns differ from the spec's; none if they do not."""
        found = found or self.schema()
        if found is None:
            return ["the table does not exist"]
        have = {f.name: f.dataType.simpleString() for f in found.fields}
        want = {name: c.type for name, c in self.spec.columns.items()} | {self.spec.partition_column: partition_type(self.spec)}
        return (
            [f"`{name}` is missing" for name in want if name not in have]
            + [f"`{name}` is not in the spec" for name in have if name not in want]
            + [f"`{n}` is `{have[n]}`, not `{kind}`" for n, kind in want.items() if n in have and have[n] != kind]
        )

    def read(self, version: int | None = None) -> DataFrame:
        """Return the table's rows, at a version or the newest."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)

    def schema(self) -> StructType | None:
        """Return the columns that the table has; None if it was not made."""
        try:
            return self.spark.read.format("delta").load(self.path).schema
        except AnalysisException as error:
            if error.getCondition() in (
                "PATH_NOT_FOUND",
                "DELTA_TABLE_NOT_FOUND",
                "DELTA_MISSING_DELTA_TABLE",
                "DELTA_PATH_DOES_NOT_EXIST",
            ):
                return None
            raise

    def _partitioning_problems(self) -> list[str]:
        (detail,) = self.spark.sql(f"DESCRIBE DETAIL {quoted_path(self.path)}").select("partitionColumns").collect()
        have = list(detail["partitionColumns"])
        return [] if have == [self.spec.partition_column] else [f"it is partitioned by {have}, not by `{self.spec.partition_column}`"]

    def _create_statement(self) -> str:
        required = set(self.spec.required_columns)
        columns = [f"{quoted(name)} {c.type}" + (" NOT NULL" if name in required else "") for name, c in self.spec.columns.items()]
        columns.append(f"{quoted(self.spec.partition_column)} {partition_type(self.spec)} NOT NULL")
        statistics = self.spec.statistics_columns or list(dict.fromkeys([self.spec.event_time, *self.spec.key_columns]))
        fence = first_fence(self.spec)
        properties = PROPERTIES | {"delta.dataSkippingStatsColumns": ",".join(quoted(name) for name in statistics)}
        properties |= {TABLE_ID: uuid.uuid4().hex} | (fence.properties() if fence else {})
        return (
            f"CREATE TABLE IF NOT EXISTS {quoted_path(self.path)} ({', '.join(columns)}) USING DELTA "
            f"PARTITIONED BY ({quoted(self.spec.partition_column)}) TBLPROPERTIES ({listed(properties)})"
        )

    # -- Lake ------------------------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return the newest version."""
        return newest_version(self.spark, self.path)

    def published(self) -> dict[str, PublishedPartition]:
        """Return the newest receipt of each partition."""
        return newest_by_partition(self.receipts.all())

    @property
    def late_table(self) -> LateTable:
        """The events that came from before the fence."""
        return LateTable(self.spark, self.spec, self.path)

    @property
    def receipts(self) -> ReceiptsTable:
        """The copy of the receipts that people can query."""
        return ReceiptsTable(self.spark, self.spec.key, self.path)

    def fence(self) -> Fence | None:
        """Return where history ends and the live stream begins; None for a table without a stream."""
        return read_fence(self.spark, self.spec, self.path) if self.spec.live else None

    def late(self, partitions: Sequence[Partition]) -> Late:
        """Return the late rows that belong to these partitions' content, as they are now."""
        return self.late_table.late(partitions) if self.spec.live and self.spec.live.late == "fold" else NO_LATE

    def hold(self, staged: Staged[DataFrame], late: Late = NO_LATE, slices: int = 1) -> Held[DataFrame]:
        """Read staged rows once: join late rows, keep them, resolve rows with the same key, tally them.

        Args:
            slices: More than one: each partition goes through in so many tasks, cut by key, and is kept on disk alone.

        Raises:
            UnreadableSourceError: A file could not be read to its end.
            MemoryExhaustedError: Spark ran out of memory.
        """
        spec, homes = self.spec, staged.homes
        rows = staged.rows.withColumn(spec.partition_column, partition_value(spec, column(spec.event_time)))
        if late.rows:
            rows, homes = self._with_late(rows, homes, late)
        tasks = self._write_tasks()
        level = StorageLevel.MEMORY_AND_DISK if slices == 1 else StorageLevel.DISK_ONLY
        if slices > 1:
            rows = in_slices(spec, rows, slices)
        elif staged.scattered or late.rows:
            rows = rows.repartition(tasks, column(spec.partition_column))
        else:
            rows = rows.coalesce(tasks)
        kept = keep(rows.where(_always(uuid.uuid4().hex)), level)
        try:
            with self._our_words():
                tallies = tally_rows(spec, kept, homes)
                strayed = [home for home, key in (homes or {}).items() if key in tallies and tallies[key].stray_rows]
                settled = kept.where(~F.col("_ba_home").isin(strayed)) if strayed else kept
                repeated = duplicate_keys_by_partition(spec, settled)
                if repeated and spec.latest_wins_by:
                    resolved = latest_wins(spec, settled, list(repeated), slices)
                    if strayed:  # they fail, and must not win over rows of the partitions they strayed into
                        resolved = resolved.unionByName(kept.where(F.col("_ba_home").isin(strayed)))
                    resolved = keep(resolved, level)
                    tallies = tally_rows(spec, resolved, homes)
                    kept.unpersist()
                    return Held(resolved, tallies, repeated, homes, _letting_go(resolved), late)
        except BaseException:
            kept.unpersist()
            raise
        for key, count in repeated.items():
            if key in tallies:
                tallies[key] = replace(tallies[key], duplicate_keys=count)
        return Held(kept, tallies, {}, homes, _letting_go(kept), late)

    def examples(self, held: Held[DataFrame], verdicts: Sequence[Verdict]) -> dict[str, dict[AuditRule, list[str]]]:
        """Name a few of the rows that break a rule, by partition key and rule."""
        return broken_rows(self.spec, held, verdicts)

    def rows_now(self, partitions: Sequence[Partition]) -> dict[str, int]:
        """Return how many rows the table has, by partition key."""
        return rows_by_partition(self.spec, self.read().where(self._in(partitions)))

    def uncovered(self, held: Held[DataFrame], partitions: Sequence[Partition]) -> dict[str, Finding]:
        """Return the rows of the table that the held rows neither have nor supersede, by partition key."""
        lost = keep(lost_rows(self.spec, self.read().where(self._in(partitions)), self._held_rows(held, partitions)))
        here = column(self.spec.partition_column)
        counts = rows_by_partition(self.spec, lost)
        named: dict[str, list[str]] = {}
        if counts:
            for row in in_text(self.spec, first_of_each(lost, here, EXAMPLES)).collect():
                named.setdefault(self.spec.grid.key_of(row[self.spec.partition_column]), []).append(named_by_key(self.spec, row))
        lost.unpersist()
        what = (
            "rows of the table, which no publish put there, are not among the source's; `backfill-assets fence {key} --carry-live-rows` "
            "keeps them, `discard_uncovered_rows: true` in the run's config lets them go."
        )
        return {
            key: Finding(AuditRule.LIVE_ROWS_ARE_COVERED, count, f"{count:,} {what.format(key=self.spec.key)}", tuple(named.get(key, ())))
            for key, count in counts.items()
        }

    def overwrite(self, held: Held[DataFrame], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        """Replace every row of the given partitions, in one commit that carries the receipt.

        Raises:
            CommitConflictError: Another writer changed these partitions. The table is unchanged; a retry is safe.
            TableLockedError: Another writer holds the lock. The table is unchanged; a retry is safe.
            MemoryExhaustedError: Spark ran out of memory. The table is unchanged; a smaller chunk helps.
        """
        return self._commit(self._held_rows(held, partitions), partitions, receipt)

    def differences(self, held: Held[DataFrame], partitions: Sequence[Partition], *, version: int) -> dict[str, Difference]:
        """Return the rows that only one of held rows and the table has, by partition key."""
        here, names = self.spec.partition_column, [*self.spec.columns, self.spec.partition_column]
        columns = [column(name) for name in names]
        source_rows = self._held_rows(held, partitions).select(*columns)
        table_rows = self.read(version).where(self._in(partitions)).select(*columns)
        sides = {"source": source_rows.exceptAll(table_rows), "table": table_rows.exceptAll(source_rows)}
        counts: dict[str, dict[str, int]] = {"source": {}, "table": {}}
        examples: dict[str, list[str]] = {}
        for side, rows in sides.items():
            kept = keep(rows)
            counts[side] = rows_by_partition(self.spec, kept)
            for row in in_text(self.spec, first_of_each(kept, column(here), EXAMPLES)).collect():
                examples.setdefault(self.spec.grid.key_of(row[here]), []).append(f"only in the {side}: {values_of(self.spec, row)}")
            kept.unpersist()
        return {key: Difference(counts["source"].get(key, 0), counts["table"].get(key, 0), tuple(named)) for key, named in examples.items()}

    def put_back(self, partitions: Sequence[Partition], *, version: int, receipt: Receipt) -> Commit:
        """Replace partitions with what an earlier version held, by the same one overwrite."""
        return self._commit(self.read(version).where(self._in(partitions)), partitions, receipt)

    def touched_between(self, after: int, before: int, partitions: Sequence[Partition]) -> list[int]:
        """Return the versions strictly between two that wrote any of these partitions."""
        values = {str(p.value) for p in partitions}
        commits = read_commits(self.spark, self.path, range(after + 1, before), self.spec.partition_column)
        return [commit.version for commit in commits if commit.touched & values]

    def tally(self, partitions: Sequence[Partition], *, version: int | None = None) -> dict[str, Tally]:
        """Tally the table's own rows at a version; the newest if none is named."""
        rows = self.read(version).where(self._in(partitions))
        tallies = tally_rows(self.spec, rows)
        for key, count in duplicate_keys_by_partition(self.spec, rows).items():
            tallies[key] = replace(tallies[key], duplicate_keys=count)
        return tallies

    # -- how -------------------------------------------------------------------------------------------------------

    def _with_late(self, rows: DataFrame, homes: Mapping[Any, str] | None, late: Late) -> tuple[DataFrame, Mapping[Any, str] | None]:
        """Join late rows to staged ones. Their home is the number of their partition, which no hash of a file's path will be."""
        value = column(self.spec.partition_column)
        partitions = [self.spec.grid.partition(key) for key in late.rows]
        more = self.late_table.rows_of(partitions, version=late.version)
        assert more is not None, "late rows were counted in a table that is not there"  # noqa: S101
        if homes is not None:
            numbers = {str(p.value): number for number, p in enumerate(partitions)}
            each = F.create_map(*(F.lit(part) for pair in numbers.items() for part in pair))
            more = more.withColumn("_ba_home", F.element_at(each, value.cast("string")).cast("bigint"))
            homes = {**homes, **{numbers[str(p.value)]: p.key for p in partitions}}
        return rows.unionByName(more, allowMissingColumns=True), homes

    def _held_rows(self, held: Held[DataFrame], partitions: Sequence[Partition]) -> DataFrame:
        """Return the held rows of some partitions: those that lie in them and are kept there."""
        wanted = {p.key for p in partitions}
        if not held.tallies.keys() - wanted:
            return held.rows
        rows = held.rows.where(self._in(partitions))
        if held.homes is not None:
            others = [home for home, key in held.homes.items() if key not in wanted]
            rows = rows.where(~F.col("_ba_home").isin(others))
        return rows

    def _commit(self, rows: DataFrame, partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        written: tuple[int, int] | None = None
        with table_lock(self.path, timeout_seconds=self.lock_timeout_seconds):
            refuse_live(self.spec, partitions, self.fence())
            self._refuse_overtaken(partitions, receipt)
            try:
                written = overwrite(self.spark, self.spec, self.path, rows, partitions, receipt)
            except SPARK_FAILURES as error:
                landed = None if jvm_is_gone(error) else self._find(receipt)
                if landed is None:
                    ours = in_our_words(error, self.spec.key)
                    if ours is None:
                        raise
                    raise ours from error
                self.log(f"The answer to a commit was lost, but it is there: version {landed.version}.")
                return self._as_commit(landed, None)
        landed = self._find(receipt)
        assert landed is not None, "a save returned without an error and left no commit"  # noqa: S101
        return self._as_commit(landed, written)

    def _as_commit(self, landed: LoggedCommit, written: tuple[int, int] | None) -> Commit:
        """Return a commit with keys of partitions instead of the values in the log."""
        key_of = self.spec.grid.key_of
        rows = {key_of(value): rows for value, rows in landed.rows.items()}
        return Commit(landed.version, rows, {key_of(value): size for value, size in landed.size_bytes.items()}, written)

    def _refuse_overtaken(self, partitions: Sequence[Partition], receipt: Receipt) -> None:
        """Spare a write that could only be older than what is there already."""
        now = self.version()
        overtaken = self.touched_between(receipt.staged_from_version, now + 1, partitions)
        if overtaken:
            raise CommitConflictError(
                f"`{self.spec.key}`: version {overtaken[-1]} wrote partitions of this chunk after it was staged "
                f"from version {receipt.staged_from_version}.",
                state=NOTHING_WRITTEN,
                remedy="The launch reads everything again and tries once more.",
            )

    def _write_tasks(self) -> int:
        """Return how many tasks may write at once: twice the shuffle partitions, which are twice the cores."""
        return 2 * int(self.spark.conf.get("spark.sql.shuffle.partitions") or 4)

    def _find(self, receipt: Receipt) -> LoggedCommit | None:
        """Find our own commit in the log, newest first."""
        newest = self.version()
        for version in range(newest, receipt.staged_from_version, -1):
            (commit,) = read_commits(self.spark, self.path, [version], self.spec.partition_column)
            if commit.receipt is not None and commit.receipt.receipt_id == receipt.receipt_id:
                return commit
        return None

    def _in(self, partitions: Sequence[Partition]) -> str:
        """Return a filter on the partition column, in Spark SQL."""
        return replace_where(self.spec.partition_column, partitions)

    @contextmanager
    def _our_words(self) -> Iterator[None]:
        try:
            yield
        except SPARK_FAILURES as error:
            ours = in_our_words(error, self.spec.key)
            if ours is None:
                raise
            raise ours from error


def _always(name: str) -> Column:
    """Return a condition that every row meets, and that no other frame has.

    Spark takes kept rows for any frame that reads the same paths, in every session of a server, whatever the files hold by
    then: the rows that a killed launch left there would be taken for the source's.
    """
    return F.lit(name) == F.lit(name)


def _letting_go(rows: DataFrame) -> Callable[[], None]:
    """Return a call that lets kept rows go."""

    def release() -> None:
        rows.unpersist()

    return release
