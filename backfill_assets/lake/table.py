"""One table of the lakehouse in Delta: made, read, and handed to launches as what `core.history` needs of a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from backfill_assets.core import sql
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.core.history.guards import NO_OTHERS, Guard, Others
from backfill_assets.core.history.ports import Commit, Difference, Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.fence import Fence, fence_of, first_fence
from backfill_assets.core.state.measures import Measures
from backfill_assets.core.state.receipts import PublishedPartition, Receipt
from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.core.state.table_facts import facts_of, refuse_other_facts
from backfill_assets.core.state.tallies import NOTHING_KNOWN, Contents, Tally
from backfill_assets.errors import EngineFailedError, EngineRefusedError, StorageError, UnreadableTableError
from backfill_assets.lake import definition, earlier, guarded_rows, other_writers, staged_chunk
from backfill_assets.lake.adoption import adopt
from backfill_assets.lake.compare import compare
from backfill_assets.lake.history_table import HistoryTable
from backfill_assets.lake.history_writer import HistoryWriter
from backfill_assets.lake.locks import refuse_racing_writers
from backfill_assets.lake.measures import measures_of
from backfill_assets.lake.row_examples import broken_rows
from backfill_assets.lake.rows_now import rows_now, rows_of_all
from backfill_assets.lake.saving import LOCK_TIMEOUT_SECONDS, saving
from backfill_assets.lake.side_tables import LateTable
from backfill_assets.lake.tally import duplicate_keys_by_partition, same_rows, tally_rows
from backfill_assets.lake.unpublished_rows import FilesOfRows, Keeping, Writing
from backfill_assets.lake.unreadable import lost_of_commit, unreadable_partitions
from backfill_assets.spark.caching import is_of_a_server
from backfill_assets.spark.failures import translated
from backfill_assets.spark.time_zones import refuse_other_clocks
from backfill_assets.table.commit_files import file_options
from backfill_assets.table.log import TableLog
from backfill_assets.table.readers import log_of, open_table
from backfill_assets.table.transaction import Transactions, reason_against


@dataclass(slots=True)
class LakeTable:
    """One table below the lakehouse's root. Implements `core.history.ports.Lake`.

    Only `create` makes the table. Until then every read works, finds nothing, and makes nothing.

    Args:
        path: Folder of the table; any URI that Spark writes to.
        log: Called with one sentence whenever a person would want to know.
        by_public_api: Whether history is written by Delta's public API, also where its own transaction could be used.
    """

    spark: SparkSession
    spec: TableSpec
    path: str
    log: Callable[[str], None] = field(default=lambda _: None)
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS
    by_public_api: bool = False
    table_log: TableLog = field(init=False, repr=False, compare=False)
    """Its log: what is known of it without reading rows."""
    _said: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.table_log = log_of(self.spark, self.path, self._say_once)

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.log(sentence)

    # -- made, and held against its spec -------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Say whether the table was made."""
        return self.table_log.exists()

    def create(self) -> None:
        """Make the table if it is not there; hold it against the spec if it is.

        The first `replaceWhere` into a table that does not exist would not be checked, so it is made beforehand.

        Raises:
            SchemaMismatchError: There is a table with other columns or another partition column.
            TableFactsError: There is a table of another grain, zone, event time or key, or one with a stream.
            FenceError: It is to have a stream, which would own partitions that have rows.
            TableLockedError: Another writer holds the lock. A retry is safe.
            UnsafeWriteError: Its folder has other files, and no table.
            ConfigurationError: It has a stream, and lies where two drivers could lose each other's commits; or Java and
                Python have other clocks for its zone.
        """
        refuse_other_clocks(self.spark, self.spec, definition.utc_now())
        if self.spec.live:
            refuse_racing_writers(self.spec.key, self.path, lambda name: self.spark.conf.get(name, None))
        if (found := self.table_log.snapshot()) is None:
            with saving(self.path, self.spec.key, timeout_seconds=self.lock_timeout_seconds):
                self.spark.sql(definition.create_statement(self.spec, self.path))
            found = self.table_log.snapshot()  # another one, if somebody was first
        if found is None:
            raise definition.folder_taken(self.spec, self.path)
        properties = definition.refuse_another(self.spec, self.path, found)
        if adopt(self.spec, properties, self.read):
            with saving(self.path, self.spec.key, timeout_seconds=self.lock_timeout_seconds):
                now = self.table_log.properties()
                if lacking := adopt(self.spec, now, self.read):
                    if not facts_of(self.spec).keys() & now.keys():
                        self.log(
                            f"`{self.spec.key}`: another writer made this table; it has {self.read().count():,} rows. "
                            "A launch replaces only the partitions that it names, and refuses to lose too many rows."
                        )
                    self.spark.sql(sql.set_properties(self.path, lacking))

    def refuse_another_schema(self) -> None:
        """Hold the table against its spec, and raise as `create` does; a table that was not made is not made by it."""
        if (found := self.table_log.snapshot()) is not None:
            definition.refuse_another(self.spec, self.path, found)

    def refuse_other_facts(self) -> None:
        """Hold what the table is against its spec, whatever its columns are, as `refuse_another_schema` does too."""
        if (found := self.table_log.snapshot()) is not None:
            refuse_other_facts(self.spec, found.properties, self.path)

    def schema(self) -> StructType | None:
        """Return the columns that the table has; None if it was not made."""
        return None if (found := self.table_log.snapshot()) is None else definition.schema_of(found)

    def schema_problems(self) -> list[str]:
        """Return in words how the table's columns differ from the spec's; nothing of a table that was not made."""
        found = self.schema()
        return [] if found is None else definition.column_problems(self.spec, found)

    def failures(self) -> AbstractContextManager[None]:
        """Raise an error of this project for a failure of Spark: a call about this table, or about its source."""
        return translated(self.spec.key, self.path)

    # -- what it says of itself ----------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return the newest version; -1 if the table was not made."""
        return self.table_log.version()

    def fence(self) -> Fence | None:
        """Return where history ends and the live stream begins; None for a table without a stream.

        Where none is stored yet it is the one that the next launch, or the live writer, will store.
        """
        if not self.spec.live:
            return None
        return fence_of({**self.table_log.properties()}, self.spec.key) or first_fence(self.spec)

    def landed_until(self) -> datetime | None:
        """Return when the newest file landed that the live stream has written; None where it has written nothing."""
        return self.table_log.landed_until()

    def published(self, *, until: int | None = None) -> dict[str, PublishedPartition]:
        """Return the newest receipt of each partition, as of a version or the newest."""
        return self.history.newest(until=until)

    def receipts_after(self, version: int) -> dict[int, Receipt]:
        """Return the receipts of the versions after one, by version; with -1 also those that the log has forgotten."""
        return self.history.receipts() if version < 0 else self.table_log.receipts(version)

    @property
    def history(self) -> HistoryTable:
        """What was done to the table, which people can query."""
        return HistoryTable(self.spark, self.spec.key, self.table_log)

    @property
    def late_table(self) -> LateTable:
        """The events that came from before the fence."""
        return LateTable(self.spark, self.spec, self.path)

    def late(self, partitions: Sequence[Partition]) -> Late:
        """Return the late rows that belong to these partitions' content, as they are now."""
        return self.late_table.late(partitions) if self.spec.live and self.spec.live.late == "fold" else NO_LATE

    def versions_writing(self, after: int, before: int, partitions: Sequence[Partition]) -> list[int]:
        """Return the versions strictly between two that wrote any of these partitions, or may have."""
        return self.table_log.versions_writing(range(after + 1, before), self.spec.partition_column, partitions)

    def left_alone(self, since: Mapping[Partition, int], *, until: int) -> list[Partition]:
        """Return the partitions that have the same files, of the same columns, at two versions, as the log says.

        Args:
            since: By partition the earlier version.
            until: The later version, for all of them.
        """
        versions = range(min(since.values(), default=until) + 1, until + 1)
        commits = self.table_log.commits(versions, self.spec.partition_column)
        return [p for p, at in since.items() if all(c.left_alone(p) for c in commits if c.version > at)]

    def written_by_others(
        self, published: Mapping[str, PublishedPartition], *, version: int | None = None
    ) -> dict[str, int]:
        """Return the newest version by which somebody else wrote each partition after its receipt, by key."""
        now = partial(self.rows_now, version=version)
        return other_writers.written_by_others(self.spec, self.table_log, published, now)

    # -- its rows ------------------------------------------------------------------------------------------------------

    def read(self, version: int | None = None) -> DataFrame:
        """Return the table's rows, at a version or the newest; none if it was not made, or before it was (-1)."""
        rows = self._made_rows(version)
        if rows is None:
            types = definition.columns_of(self.spec)
            return self.spark.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in types.items()))
        return rows

    def no_rows(self) -> DataFrame:
        """Return a frame without rows, to make a commit of: a table that is not there is not made by it.

        Raises:
            UnsafeWriteError: There is no table.
        """
        rows = self._made_rows(None)
        if rows is None:
            raise definition.no_table(self.spec, self.path)
        return rows.limit(0)

    def rows_now(self, partitions: Sequence[Partition], *, version: int | None = None) -> dict[str, int | None]:
        """Return the rows of the table by partition key, whoever wrote them; None if nobody can count them."""
        with self.failures():
            return rows_now(self.spark, self.spec, self.table_log, partitions, version=version)

    def rows_outside_grid(self) -> dict[str, int]:
        """Count rows in values of the partition column that are no partition, by value."""
        is_outside = other_writers.outside_grid(self.spec, datetime.now(UTC))
        with self.failures():
            rows = rows_of_all(self.spark, self.spec, self.table_log, only=is_outside)
        return {value: count for value, count in sorted(rows.items()) if count}

    def tally(
        self, partitions: Sequence[Partition], *, version: int | None = None, unique: Contents = NOTHING_KNOWN
    ) -> dict[str, Tally]:
        """Tally the table's own rows at a version; of `unique` contents the keys are not counted again."""
        with self.failures():
            return self._tally(partitions, version, unique)

    def _tally(self, partitions: Sequence[Partition], version: int | None, unique: Contents) -> dict[str, Tally]:
        rows = self._made_rows(version)
        if rows is None:
            return {}
        rows = rows.where(self._in(partitions))
        tallies = tally_rows(self.spec, rows)
        unsure = [p for p in partitions if p.key in tallies and tallies[p.key].content != unique.get(p.key)]
        if not unsure:
            return tallies
        of_unsure = rows if len(unsure) == len(tallies) else rows.where(self._in(unsure))
        for key, count in duplicate_keys_by_partition(self.spec, of_unsure).items():
            tallies[key] = replace(tallies[key], duplicate_keys=count)
        return tallies

    def same_as(self, tallies: Mapping[str, Tally]) -> frozenset[str]:
        """Return the partitions whose rows, read again, are exactly those that were tallied; no unreadable ones."""
        partitions = [self.spec.grid.partition(key) for key in sorted(tallies)]
        try:
            with self.failures():
                return same_rows(self.spec, self.read().where(self._in(partitions)), tallies)
        except UnreadableTableError as error:
            readable = tallies.keys() - self.unreadable(partitions)
            what = error.what
        except (StorageError, EngineFailedError, EngineRefusedError) as error:
            readable, what = set[str](), error.what
        self.log(f"{what} So it is written anew.")
        is_progress = readable and len(readable) < len(tallies)
        return self.same_as({key: tallies[key] for key in readable}) if is_progress else frozenset()

    def unreadable(
        self, partitions: Sequence[Partition], *, version: int | None = None, reads: bool = True
    ) -> dict[str, str]:
        """Return which of some partitions cannot be read, by key, each with why; without a read those of lost files."""
        with self.failures():
            return unreadable_partitions(
                self.spark, self.spec, self.table_log, partitions, version=version, reads=reads
            )

    def lost_files(self, version: int) -> list[str]:
        """Return the files that one commit added and that are not there."""
        (commit,) = self.table_log.commits([version], self.spec.partition_column)
        return lost_of_commit(self.spark, self.table_log, commit)

    def _made_rows(self, version: int | None) -> DataFrame | None:
        """Return the table's rows; None if it was not made, or for the version before it was.

        A column that an earlier version had not yet is NULL in it, as it is in the files of that time.
        """
        rows = None if version is not None and version < 0 else open_table(self.spark, self.path, version)
        return rows if rows is None or version is None else earlier.with_later_columns(self.spec, rows)

    def _in(self, partitions: Sequence[Partition]) -> str:
        """Return a filter on the partition column, in Spark SQL."""
        return replace_where(self.spec.partition_column, partitions)

    # -- staged, compared and written: each is a file of its own -------------------------------------------------------

    def stage(
        self,
        scan: Scan[DataFrame],
        late: Late = NO_LATE,
        *,
        publish_after: int | None = None,
        size_bytes: int = 0,
        unique: Contents = NOTHING_KNOWN,
        keeps: bool = True,
        begin: Callable[[str], None] = lambda _: None,
    ) -> StagedChunk[DataFrame]:
        """Read a scan once: join late rows, keep them all, resolve rows with the same key, tally them."""
        reads = Keeping(self.spec)
        if publish_after is not None and self.version() >= 0 and (transactions := self._transactions()) is not None:
            reads = Writing(self.spec, transactions, publish_after)
        return staged_chunk.stage(
            self.late_table,
            reads,
            scan,
            late,
            table_path=self.path if isinstance(reads, Writing) else None,
            size_bytes=size_bytes,
            unique=unique,
            keeps=keeps,
            begin=begin,
        )

    def examples(
        self, staged: StagedChunk[DataFrame], verdicts: Sequence[Verdict]
    ) -> dict[str, dict[AuditRule, list[str]]]:
        """Name a few of the rows that break a rule, by partition key and rule."""
        return broken_rows(self.spec, staged, verdicts)

    def rows_at_stake(
        self, staged: StagedChunk[DataFrame], partitions: Sequence[Partition], guard: Guard, others: Others = NO_OTHERS
    ) -> dict[str, Finding]:
        """Return the rows of partitions that a guard keeps, and staged rows would not, by partition key.

        Of a partition that cannot be read nobody knows its rows: that is a finding too.
        """

        def at_stake(some: Sequence[Partition]) -> dict[str, Finding]:
            with self.failures():
                rows = self.read().where(self._in(some))
                return guarded_rows.rows_at_stake(self.spec, guard, (staged, rows), some, others)

        try:
            return at_stake(partitions)
        except UnreadableTableError:
            if not (unreadable := self.unreadable(partitions)):
                raise
        readable = [p for p in partitions if p.key not in unreadable]
        what = "the rows that a launch would replace cannot be read: {}."
        lost = {key: Finding(guard.rule, 0, what.format(why)) for key, why in unreadable.items()}
        return lost | (at_stake(readable) if readable else {})

    def differences(
        self, staged: StagedChunk[DataFrame], partitions: Sequence[Partition], *, version: int
    ) -> dict[str, Difference]:
        """Return the rows that only one of staged rows and the table has, by partition key."""
        with self.failures():
            sides = self._both_sides(staged, partitions, version)
            with compare(self.spec, *sides, rows=staged.count) as compared:
                return compared.differences()

    def measures(
        self,
        partitions: Sequence[Partition],
        *,
        staged: StagedChunk[DataFrame] | None = None,
        version: int | None = None,
    ) -> Measures:
        """Return what the spec's expectations measure of staged rows; without them of the table's at a version."""
        with self.failures():
            if staged is not None:
                return measures_of(self.spec, staged_chunk.rows_of(self.spec, staged, partitions), partitions)
            rows = self._made_rows(version)
            return {} if rows is None else measures_of(self.spec, rows, partitions)

    def overwrite(self, staged: StagedChunk[DataFrame], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        """Replace every row of the given partitions, in one commit that carries the receipt."""
        parts = [(part.files, without) for part, without in staged.parts if isinstance(part, FilesOfRows)]
        if parts:
            return self._writer().commit_files(parts, partitions, receipt)
        return self._writer().commit_rows(staged_chunk.rows_of(self.spec, staged, partitions), partitions, receipt)

    def earlier_tally(self, partitions: Sequence[Partition], *, version: int) -> dict[str, Tally]:
        """Tally what partitions held at an earlier version, in the columns that the table has now."""
        with earlier.readable(self.spec, f"what version {version} held"):
            rows = self._made_rows(version)
            return {} if rows is None else tally_rows(self.spec, rows.where(self._in(partitions)))

    def restore(self, partitions: Sequence[Partition], *, version: int, receipt: Receipt) -> Commit:
        """Replace partitions with what an earlier version held: by its own files, or by their rows."""
        if version >= 0 and (transactions := self._transactions()) is not None:
            files = transactions.of_version([str(p.value) for p in partitions], version=version)
            if files is not None:
                return self._writer().commit_files([(files, ())], partitions, receipt, are_new=False)
        return self._writer().commit_rows(self.read(version).where(self._in(partitions)), partitions, receipt)

    def _both_sides(
        self, staged: StagedChunk[DataFrame], partitions: Sequence[Partition], version: int | None
    ) -> tuple[DataFrame, DataFrame]:
        """Return the staged rows and the table's rows of some partitions."""
        return staged_chunk.rows_of(self.spec, staged, partitions), self.read(version).where(self._in(partitions))

    def _transactions(self) -> Transactions | None:
        """Return Delta's own transactions of this table; None, and says so once, if it has to be written without."""
        if self.by_public_api or is_of_a_server(self.spark):
            return None
        if why := reason_against(self.spark, self.path, file_options(self.spark, self.path)):
            self._say_once(f"`{self.spec.key}` is written by Delta's public API, because {why}.")
            return None
        return Transactions(self.spark, self.path, self.spec.key, file_options(self.spark, self.path))

    def _writer(self) -> HistoryWriter:
        return HistoryWriter(
            self.spark, self.spec, self.path, self.table_log, self.log, lock_timeout_seconds=self.lock_timeout_seconds
        )
