"""Reconciliation: source and table are both read afresh, and compared partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from backfill_assets.core.calendar.chunks import chunks_of
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.comparison import Comparison, compare, read_back, rows_match
from backfill_assets.core.history.complete import complete_part
from backfill_assets.core.history.identical import is_as_published
from backfill_assets.core.history.moments import FollowedSource, Moment, RowSums
from backfill_assets.core.history.ports import Difference, Lake, Rows, Source
from backfill_assets.core.history.staging import audit_all, stage_chunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import history_part
from backfill_assets.core.state.partition_status import LOST, Known, State, status_of
from backfill_assets.core.state.receipts import PublishedPartition, audited_contents
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.errors import SourceIncompleteError


def reconcile(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: Source[Rows],
    lake: Lake[Rows],
    *,
    code_version: str = "",
    log: Callable[[str], None] = lambda _: None,
) -> Iterator[Comparison]:
    """Read source and table afresh, both at a pinned point, and hold them against each other.

    Partitions for which the source is not complete yet cannot be compared; they are named in the log and left out.
    Those of them that are published equal nothing: the source has them no more.

    Args:
        code_version: Of the code that would make the rows now: a difference in a partition that other code made
            says so.

    Yields:
        One comparison for each partition that was compared, in order.

    Raises:
        SourceIncompleteError: The source is complete for none of the partitions.
    """
    history, live = history_part(spec, sorted(partitions), lake.fence())
    if live:
        log(f"{len(live)} partitions from {live[0].key} on are left out: they belong to the live stream.")
    try:
        wanted, beyond = complete_part(spec, history, source.complete_until())
    except SourceIncompleteError:
        wanted, beyond = [], tuple(history)
        if spec.source.is_of_version or not lake.published().keys() & {partition.key for partition in history}:
            raise
    published = lake.published() if spec.live or code_version or beyond else {}
    lost = [partition for partition in beyond if partition.key in published]
    if to_come := [partition for partition in beyond if partition.key not in published]:
        first = to_come[0].key
        log(f"{len(to_come)} partitions from {first} on are left out: the source is not complete for them yet.")
    surveys = source.survey(wanted)
    pinned = _Pinned(
        version=lake.version(),
        schema_problems=lake.schema_problems(),
        published=published,
        code_version=code_version,
        surveys=surveys,
    )
    sizes = {key: survey.size_bytes for key, survey in surveys.items()}
    comparing = _Comparing(spec, source, lake, pinned, log)
    for chunk in chunks_of(
        wanted, max_partitions=spec.max_partitions_per_chunk, max_bytes=spec.chunk.max_source_bytes, size_bytes=sizes
    ):
        yield from comparing.chunk(chunk)
    yield from _without_source(lake, lost, pinned)


@dataclass(frozen=True, slots=True)
class _Pinned:
    """What a reconciliation holds still while it goes through the partitions.

    Args:
        version: Of the table.
        schema_problems: What is wrong with the table's columns.
        surveys: What the source has of each partition, by key.
    """

    version: int
    schema_problems: Sequence[str]
    published: Mapping[str, PublishedPartition]
    code_version: str
    surveys: Mapping[str, Survey]


@dataclass(frozen=True, slots=True)
class _Comparing(Generic[Rows]):
    """Compares chunks of partitions: each side is read once, and the source again where rows have to be named."""

    spec: TableSpec
    source: Source[Rows]
    lake: Lake[Rows]
    pinned: _Pinned
    log: Callable[[str], None]

    def chunk(self, partitions: Sequence[Partition]) -> Iterator[Comparison]:
        """Compare one chunk; once more if source or table changed meanwhile."""
        surveys = {partition.key: self.pinned.surveys[partition.key] for partition in partitions}
        if isinstance(self.source, FollowedSource):
            yield from self._at_a_moment(self.source, partitions)
            return
        compared = self.at_once(partitions, surveys)
        changed = self._changed(compared, surveys)
        if changed or self.was_written(_differing(compared)):
            what = f"The source of {', '.join(changed)}" if changed else "The table"
            self.log(f"{what} changed while it was read; the chunk is compared again.")
            surveys = dict(self.source.survey(partitions))  # of one moment: a read is at one version
            again = self._as_it_is_now()
            compared = again.at_once(partitions, surveys)
            differing = _differing(compared)
            suspects = differing if again.was_written(differing) else []
            unsteady = {p.key: _WRITTEN for p in suspects if again.was_written([p])}
            unsteady |= dict.fromkeys(self._changed(compared, surveys), _UNSTEADY)
            compared = [_unsteady(c, unsteady.get(c.partition.key)) for c in compared]
        yield from compared

    def _changed(self, compared: Sequence[Comparison], before: Mapping[str, Survey]) -> dict[str, Survey]:
        """Return the surveys of partitions that differ, where the source is not what it was before the read."""
        differing = _differing(compared)
        now = self.source.survey(differing) if differing else {}
        return {key: survey for key, survey in now.items() if survey.fingerprint != before[key].fingerprint}

    def was_written(self, partitions: Sequence[Partition]) -> bool:
        """Say whether somebody has written any of some partitions since the pinned version."""
        since = self.pinned.version
        return bool(partitions and self.lake.versions_writing(since, self.lake.version() + 1, partitions))

    def _as_it_is_now(self) -> _Comparing[Rows]:
        """Return what compares with the table's newest version."""
        published = self.lake.published() if self.pinned.published else {}
        return replace(self, pinned=replace(self.pinned, version=self.lake.version(), published=published))

    def at_once(
        self, partitions: Sequence[Partition], surveys: Mapping[str, Survey], *, must_keep: bool = False
    ) -> list[Comparison]:
        """Compare partitions with what the source has by now.

        Args:
            must_keep: Whether rows are kept from the first. Else they are if the source is not as it was published;
                if it is, those of partitions that differ are read again.
        """
        published = self.pinned.published
        audited = audited_contents(published, partitions, self.spec, self.pinned.code_version)
        keeps = must_keep or not is_as_published(published, audited, partitions, surveys)
        read = stage_chunk(partitions, surveys, self.source, self.lake, unique=audited, keeps=keeps)
        with read.staged as staged:
            verdicts = {v.partition.key: v for v in audit_all(self.spec, read, self.source, self.lake)}
            unique = {key: tally.content for key, tally in staged.tallies.items() if not tally.duplicate_keys}
            tallies, unreadable = read_back(self.lake, partitions, version=self.pinned.version, unique=unique)
            nothing = {key for key, survey in surveys.items() if not survey.is_expected} - tallies.keys()
            problems = {
                key: [str(f) for f in verdict.findings] for key, verdict in verdicts.items() if key not in nothing
            }
            compared = [
                replace(
                    compare(
                        partition,
                        table=tallies.get(partition.key, EMPTY),
                        source=staged.tallies.get(partition.key, EMPTY),
                        source_problems=problems.get(partition.key, ()),
                        schema_problems=self.pinned.schema_problems,
                        unreadable=unreadable.get(partition.key, ""),
                    ),
                    late_rows=staged.late.rows.get(partition.key, 0),
                    superseded_rows=staged.superseded_rows.get(partition.key, 0),
                )
                for partition in partitions
            ]
            differing = [c.partition for c in compared if not c.passed and verdicts[c.partition.key].passed]
            differing = [partition for partition in differing if partition.key not in unreadable]
            differences = {}
            if differing and staged.kept is not None:
                differences = self.lake.differences(staged, differing, version=self.pinned.version)
        unlike = [c.partition for c in compared if not c.verdicts[0].passed and c.partition.key not in unreadable]
        if unlike and staged.kept is None:
            some = list(partitions) if self.source.makes_chunks_at_once() else unlike
            self.log(f"{len(unlike):,} partitions differ; {len(some):,} are read again, to name rows.")
            theirs = {partition.key: surveys[partition.key] for partition in some}
            again = {c.partition: c for c in self.at_once(some, theirs, must_keep=True)}
            return [again.get(comparison.partition, comparison) for comparison in compared]
        return [
            self._explained(comparison, difference)
            if (difference := differences.get(comparison.partition.key))
            else comparison
            for comparison in compared
        ]

    def _at_a_moment(self, source: FollowedSource[Rows], partitions: Sequence[Partition]) -> list[Comparison]:
        """Compare a chunk with a source that changes all the time: both sides as they were at one moment of it."""
        audited = audited_contents(self.pinned.published, partitions, self.spec, self.pinned.code_version)
        tallies, unreadable = read_back(self.lake, partitions, version=self.pinned.version, unique=audited)
        readable = [partition for partition in partitions if partition.key not in unreadable]
        unread = [
            compare(p, table=EMPTY, source=None, unreadable=unreadable[p.key]) for p in partitions if p not in readable
        ]
        if not readable:
            return unread
        moment = source.moment(readable, version=self.pinned.version)
        try:
            compared = [
                _held_against(moment, compare(p, table=own, source=own, schema_problems=self.pinned.schema_problems))
                for p in readable
                for own in [tallies.get(p.key, EMPTY)]
            ]
            differing = [
                c.partition for c in compared if not c.verdicts[0].passed and c.partition.key not in moment.problems
            ]
            differences = dict(moment.differences(differing)) if differing else dict[str, Difference]()
        finally:
            moment.release()
        explained = [
            self._explained(c, differences[c.partition.key]) if c.partition.key in differences else c for c in compared
        ]
        return sorted([*explained, *unread], key=lambda comparison: comparison.partition)

    def _explained(self, comparison: Comparison, difference: Difference) -> Comparison:
        """Name the rows behind a difference, and say whether the partition was stale already."""
        first, *others = comparison.verdicts
        if first.passed:
            return comparison
        key = comparison.partition.key
        what = (
            f"{first.what.rstrip('.')}; {difference.only_in_source:,} rows only in the source, "
            f"{difference.only_in_table:,} only in the table."
        )
        late_rows, pinned = {key: comparison.late_rows}, self.pinned
        known = Known(published=pinned.published, late_rows=late_rows, code_version=pinned.code_version)
        (status,) = status_of([comparison.partition], known)
        since = comparison.late_rows - status.published.partition.late_rows if status.published else 0
        if State.STALE_LATE_ROWS in status.states and since > 0:
            what += (
                f" {since:,} late rows arrived after it was published: it is stale, and the next launch folds them in."
            )
        if State.STALE_CODE in status.states:
            what += " It was published before the spec was changed: launch it again (`only: MISSING` does)."
        rows = difference.only_in_source + difference.only_in_table
        tolerance = self.spec.checks.tolerance
        differing = max(difference.only_in_source, difference.only_in_table)
        is_little = tolerance is not None and tolerance.lets_pass(differing, comparison.source_rows or 0)
        if is_little:
            what += f" Let pass: `checks.tolerance` allows {tolerance}."
        named = replace(first, passed=is_little, rows=rows, what=what, examples=difference.examples)
        return replace(comparison, verdicts=(named, *others))


def _without_source(lake: Lake[Rows], lost: Sequence[Partition], pinned: _Pinned) -> Iterator[Comparison]:
    """Yield what the table has of partitions that the source has no more; nothing of that is green."""
    tallies, unreadable = read_back(lake, lost, version=pinned.version) if lost else ({}, {})
    for partition in lost:
        table = tallies.get(partition.key, EMPTY)
        yield compare(
            partition,
            table=table,
            source=None,
            source_problems=[f"{LOST}."],
            schema_problems=pinned.schema_problems,
            unreadable=unreadable.get(partition.key, ""),
        )


def _held_against(moment: Moment[Rows], comparison: Comparison) -> Comparison:
    """Replace what a comparison says of the rows by what both sides had at a moment."""
    key = comparison.partition.key
    source, table = moment.source.get(key, RowSums()), moment.table.get(key, RowSums())
    same_rows = rows_match((table.rows, table.checksum), (source.rows, source.checksum), moment.problems.get(key, ()))
    return replace(
        comparison,
        source_rows=source.rows,
        table_rows=table.rows,
        source_checksum=source.checksum,
        table_checksum=table.checksum,
        verdicts=(same_rows, *comparison.verdicts[1:]),
        as_of=moment.at,
    )


_UNSTEADY = "the source changed while it was read, twice; compare it again when whoever writes it has finished."


def _differing(compared: Sequence[Comparison]) -> list[Partition]:
    return [comparison.partition for comparison in compared if not comparison.passed]


_WRITTEN = "the table was written while it was compared, twice; compare it again when the launch has ended."


def _unsteady(c: Comparison, why: str | None) -> Comparison:
    """Return a comparison that says why it says nothing; as it is where there is no reason."""
    if why is None:
        return c
    return replace(c, verdicts=(replace(c.verdicts[0], passed=False, what=why, examples=()), *c.verdicts[1:]))
