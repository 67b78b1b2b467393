"""What the core needs of an engine: two Protocols, `Source` and `Lake`, and the values that pass between them.

Spark implements them in `sources/` and `lake/`, the core's tests over lists; one contract test runs over all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Evidence, Finding, Verdict
from backfill_assets.core.history.guards import NO_OTHERS, Guard, Others
from backfill_assets.core.history.staged_rows import Rows, StagedChunk
from backfill_assets.core.schema.compare import Observed
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.measures import Measures
from backfill_assets.core.state.receipts import PublishedPartition, Receipt
from backfill_assets.core.state.surveys import Late, Survey
from backfill_assets.core.state.tallies import NOTHING_KNOWN, Contents, Tally


@dataclass(frozen=True, slots=True)
class Scan(Generic[Rows]):
    """What the source gives for a chunk: rows not yet read, the position they will be read at, and its evidence.

    Args:
        rows: The spec's columns; perhaps `_ba_file_id`, where a row is kept, and `_ba_problem`, why it cannot be read.
        position: In words, for the receipt.
        evidence: By partition key.
        partition_by_file: The partition key of each value of `_ba_file_id`; None where rows are kept by event time.
        scattered: Whether the rows of one partition may lie in more than two tasks.
        release: Ends what the source keeps open while the rows are read.
        is_of_one_moment: Whether a change of the source since then is no reason to read them again.
        fingerprints: Of what is read, by partition key, where that is newer than what was surveyed.
        also: Partitions that were not asked for and are published in the same commit: a row may have left them.
        gone: Partition and key columns of rows that have left, as it says; None: it says nothing of single rows.
        follows_feed: Whether rows may have moved between partitions since the table got them.
    """

    rows: Rows
    position: dict[str, Any]
    evidence: Mapping[str, Evidence]
    partition_by_file: Mapping[Any, str] | None = None
    scattered: bool = True
    release: Callable[[], None] = lambda: None
    is_of_one_moment: bool = False
    fingerprints: Mapping[str, str] = field(default_factory=dict[str, str])
    also: tuple[Partition, ...] = ()
    gone: Rows | None = None
    follows_feed: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of one partition that only one side has.

    Args:
        only_in_source: How many; the same row twice counts twice.
        only_in_table: How many.
        examples: A few of both.
    """

    only_in_source: int
    only_in_table: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of ours, read back from the log.

    Args:
        version: Version of the table.
        rows: Rows by partition key, from the statistics of the commit's own files; a key without files is missing.
        size_bytes: Bytes by partition key.
        written: Rows and checksum that passed through the write itself; None where Spark did not tell.
        rows_removed: Rows by partition key that were in the files it removed; None where the log does not say.
        is_audited: Whether it names the very files that were audited, and replaced exactly what was looked at.
    """

    version: int
    rows: Mapping[str, int]
    size_bytes: Mapping[str, int]
    written: tuple[int, int] | None
    rows_removed: Mapping[str, int | None]
    is_audited: bool = False


class Source(Protocol[Rows]):
    """Where history is read from. A kind that inherits from it says only what it has something to say of."""

    def complete_until(self) -> datetime | None:
        """Return the instant up to which the source is complete; None where it has nothing at all."""
        ...

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        """Return what there is, by partition key, as it is now."""
        ...

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[Rows]:
        """Prepare the one read of these partitions, of exactly what was surveyed."""
        ...

    def foretell(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Mapping[str, Evidence]:
        """Say what is known of partitions without reading rows, by key: how many there are, and what is wrong.

        Nothing unless a kind overrides it; as much as costs next to nothing.
        """
        del partitions, surveys
        return {}

    def makes_chunks_at_once(self) -> bool:
        """Say whether somebody's code makes the rows of a whole chunk in one call, so that they might depend on it.

        A launch then makes one partition of each chunk once more by itself. False unless a kind overrides it.
        """
        return False

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        """Hold the spec against the source's columns; return remarks. Nothing to say unless a kind overrides it.

        Raises:
            SchemaMismatchError: They do not fit.
        """
        del partitions
        return []

    def observed_columns(self) -> list[Observed]:
        """Return the source's columns as they were, the oldest first; none where the source cannot tell.

        `backfill-assets schema` holds them against the spec's.
        """
        return []

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        """Look closer at partitions with unreadable rows or columns without any value; return what is wrong.

        Nothing unless a kind overrides it: its evidence says it all.
        """
        del suspects, surveys
        return {}

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        """Find out, after a read failed, which parts cannot be read; later scans report them and leave them out.

        Returns:
            Whether any was found; if not, the failure had another cause. False unless a kind overrides it.
        """
        del surveys
        return False


class Lake(Protocol[Rows]):
    """One table of the lakehouse. Reading one that was never made works, finds nothing, and makes nothing."""

    def create(self) -> None:
        """Make the table if it is not there; hold it against the spec if it is.

        Raises:
            SchemaMismatchError: There is a table that differs from the spec. Nothing was changed.
        """
        ...

    def failures(self) -> AbstractContextManager[None]:
        """Raise an error of this project for a failure of the engine: a call about this table, or about its source."""
        ...

    def version(self) -> int:
        """Return the newest version."""
        ...

    def published(self) -> dict[str, PublishedPartition]:
        """Return the newest receipt of each partition."""
        ...

    def receipts_after(self, version: int) -> dict[int, Receipt]:
        """Return the receipts of the versions after one, by version; with -1 also those that the log has forgotten."""
        ...

    def fence(self) -> Fence | None:
        """Return where history ends and the live stream begins; None for a table without a stream."""
        ...

    def late(self, partitions: Sequence[Partition]) -> Late:
        """Return the late rows that belong to these partitions' content, as they are now."""
        ...

    def stage(
        self,
        scan: Scan[Rows],
        late: Late,
        *,
        publish_after: int | None = None,
        size_bytes: int = 0,
        unique: Contents = NOTHING_KNOWN,
        keeps: bool = True,
        begin: Callable[[str], None] = lambda _: None,
    ) -> StagedChunk[Rows]:
        """Read staged rows once: join late rows, keep them, resolve rows with the same key, tally them.

        Args:
            publish_after: Version of the table that `overwrite` is to follow: the rows may be written as files that no
                reader sees. None: nothing is written.
            size_bytes: Stored bytes of what is read; 0 where the source does not know. The more, the more parts.
            unique: As of `tally`, of rows that were read.
            keeps: Whether the rows are kept in any case. If not, they are only if late ones are joined, or if they turn
                out to be other than `unique` says: then they are read once more.
            begin: Called with the name of each step when it begins.

        Raises:
            UnreadableSourceError: A file could not be read to its end.
        """
        ...

    def examples(self, staged: StagedChunk[Rows], verdicts: Sequence[Verdict]) -> dict[str, dict[AuditRule, list[str]]]:
        """Name a few of the rows that break a rule, by partition key and rule."""
        ...

    def rows_now(self, partitions: Sequence[Partition], *, version: int | None = None) -> dict[str, int | None]:
        """Return how many rows the table has at a version or the newest, by partition key, whoever wrote them.

        A partition without rows is missing; one whose rows nobody can count has None.
        """
        ...

    def rows_at_stake(
        self, staged: StagedChunk[Rows], partitions: Sequence[Partition], guard: Guard, others: Others = NO_OTHERS
    ) -> dict[str, Finding]:
        """Return the rows of some partitions that a guard keeps, and staged rows would not, by partition key."""
        ...

    def measures(
        self, partitions: Sequence[Partition], *, staged: StagedChunk[Rows] | None = None, version: int | None = None
    ) -> Measures:
        """Return what the spec's expectations measure of staged rows; without them of the table's at a version."""
        ...

    def overwrite(self, staged: StagedChunk[Rows], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        """Replace every row of the given partitions, in one commit that carries the receipt."""
        ...

    def versions_writing(self, after: int, before: int, partitions: Sequence[Partition]) -> list[int]:
        """Return the versions strictly between two that wrote any of these partitions, or may have.

        What the log has forgotten may have written any of them.
        """
        ...

    def written_by_others(self, published: Mapping[str, PublishedPartition]) -> dict[str, int]:
        """Return the newest version by which somebody else wrote each partition after its receipt, by key."""
        ...

    def rows_outside_grid(self) -> dict[str, int]:
        """Return how many rows lie in values of the partition column that are no partition, by value."""
        ...

    def tally(
        self,
        partitions: Sequence[Partition],
        *,
        version: int | None = None,
        unique: Contents = NOTHING_KNOWN,
    ) -> dict[str, Tally]:
        """Tally the table's own rows at a version, or the newest; no keys are counted where it has what is `unique`."""
        ...

    def same_as(self, tallies: Mapping[str, Tally]) -> frozenset[str]:
        """Return the partitions whose rows, read again, are exactly those that were tallied; no unreadable ones."""
        ...

    def unreadable(
        self, partitions: Sequence[Partition], *, version: int | None = None, reads: bool = True
    ) -> dict[str, str]:
        """Return which of some partitions cannot be read, by key, each with why.

        Args:
            version: Of the table; the newest if not given.
            reads: Whether rows are read to find out. If not, only files are looked for that the log names.
        """
        ...

    def lost_files(self, version: int) -> list[str]:
        """Return the files that one commit added and that are not there."""
        ...

    def schema_problems(self) -> list[str]:
        """Return in words how the table's columns differ from the spec's."""
        ...

    def differences(
        self, staged: StagedChunk[Rows], partitions: Sequence[Partition], *, version: int
    ) -> dict[str, Difference]:
        """Return the rows that only one of staged rows and the table has, by partition key."""
        ...

    def earlier_tally(self, partitions: Sequence[Partition], *, version: int) -> dict[str, Tally]:
        """Tally what partitions held at an earlier version; `UndoError` if that cannot be read any more."""
        ...

    def restore(self, partitions: Sequence[Partition], *, version: int, receipt: Receipt) -> Commit:
        """Replace partitions with what an earlier version held, by the same one overwrite."""
        ...
