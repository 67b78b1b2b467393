"""A plan carried out: chunk by chunk staged, audited, published in one commit each, and verified.

Knows neither Spark nor Dagster; what it needs of an engine is in `core/history/ports.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audited_chunk import Auditor, Chunk
from backfill_assets.core.history.effects import ATTEMPTS, Effects, seconds_after
from backfill_assets.core.history.identical import to_be_written
from backfill_assets.core.history.other_code import OtherCode, since_now
from backfill_assets.core.history.outcomes import Identical, NextChunk, Outcome, Published, Refused, in_fewer_rows
from backfill_assets.core.history.pace import PublishPace, Stopwatch, cut
from backfill_assets.core.history.plan import Launch, LaunchPlan, LeftOut, plan_launch
from backfill_assets.core.history.ports import Lake, Rows, Source
from backfill_assets.core.history.smaller_parts import in_smaller_parts
from backfill_assets.core.history.stages import stages_of
from backfill_assets.core.history.staging import refuse_changed_source
from backfill_assets.core.history.verification import Verification
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import partitions_with_foreign_rows
from backfill_assets.errors import (
    CommitConflictError,
    LaunchError,
    MemoryExhaustedError,
    SourceChangedError,
    SourceUnavailableError,
    TableLockedError,
)


def materialize(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: Source[Rows],
    lake: Lake[Rows],
    launch: Launch,
    *,
    effects: Effects | None = None,
) -> Iterator[Outcome]:
    """Plan a launch and carry it out: overwrite partitions with what the source has.

    Yields one outcome for each chunk that was published, each partition that was refused, and what was left out.
    Every partition is old or new at any time, never in between; running it again gives the same content.

    Raises:
        LaunchError: As `plan_launch`, after what it had left out by then. Nothing was written.
        PublishError: A chunk could not be published; chunks before it are, this and later ones are as they were.
    """
    effects = effects or Effects()
    others = since_now(lake, launch)
    left_out: list[LeftOut] = []
    try:
        plan = plan_launch(spec, partitions, source, lake, launch, left_out=left_out)
    except LaunchError:
        yield from left_out
        raise
    yield from plan.left_out
    for remark in plan.remarks:
        effects.log(remark)
    yield from Publisher(spec, source, lake, launch, effects, others=others).carry_out(plan)


def _rows_read(outcome: Outcome) -> int:
    """Return how many rows of the source are behind an outcome, as far as that is known."""
    match outcome:
        case Published(receipt=receipt):
            return sum(part.rows + part.superseded_rows for part in receipt.partitions.values())
        case Identical(tallies=tallies):
            return sum(tally.rows for tally in tallies.values())
        case _:
            return 0


class _TooMuchToSave(Exception):  # noqa: N818 (no error: the chunk is done in parts)
    """More partitions of a chunk have to be written than a live writer would wait for."""

    def __init__(self, most: int) -> None:
        self.most = most


@dataclass(frozen=True, slots=True)
class Publisher(Generic[Rows]):
    """Publishes the chunks of one launch, one at a time."""

    spec: TableSpec
    source: Source[Rows]
    lake: Lake[Rows]
    launch: Launch
    effects: Effects
    others: OtherCode[Rows]

    @property
    def auditor(self) -> Auditor[Rows]:
        """What reads a chunk and audits it."""
        return Auditor(self.spec, self.source, self.lake, self.launch, self.effects)

    def carry_out(self, plan: LaunchPlan) -> Iterator[Outcome]:
        """Publish every chunk of a plan, cut smaller where a live writer would have to wait too long for one.

        The table is made if it is not there, and only if there is something to publish.

        Raises:
            SchemaMismatchError: The table differs from the spec. Nothing was written.
            PublishError: A chunk could not be published; chunks before it are.
        """
        if plan.chunks:
            self.lake.create()
        pending, pace = deque(map(list, plan.chunks)), PublishPace(self.launch.max_publish_seconds)
        size_bytes = {key: survey.size_bytes for key, survey in plan.surveys.items()}
        number = rows = files = refused = 0
        while pending:
            if self.launch.announces_chunks:
                yield NextChunk(number + 1, rows, files)
            whole = pending.popleft()
            most = pace.most_saved(whole, size_bytes)
            partitions, rest = cut(whole, most, to_be_written(self.launch, whole, plan.surveys))
            if rest:
                pending.appendleft(rest)
            number += 1
            of = number, number + len(pending)
            chunk = Chunk(
                tuple(partitions),
                of,
                plan.surveys,
                plan.foreign,
                most_saved=most,
                began_at=self.others.began,
            )
            for outcome in self.publish(chunk):
                if isinstance(outcome, Published):
                    pace.saw(outcome.seconds["save"], len(outcome.partitions))
                rows, refused = rows + _rows_read(outcome), refused + isinstance(outcome, Refused)
                yield outcome
            files += sum(plan.surveys[partition.key].files for partition in partitions)
            if pending and self.launch.max_refused is not None and refused >= self.launch.max_refused:
                why = f"{refused:,} partitions were refused before them (`max_refused`: {self.launch.max_refused:,})"
                rest = tuple(partition for chunk in pending for partition in chunk)
                yield LeftOut(rest, why, published=False, is_failure=True)
                return

    def publish(self, chunk: Chunk) -> Iterator[Outcome]:
        """Publish one chunk, with as many attempts as a conflict deserves; not what newer code has published meanwhile.

        If memory runs out the chunk is halved; a single partition is gone through in slices by key, and still published
        in one commit.
        """
        for attempt in range(1, ATTEMPTS + 1):
            # what comes after this is a conflict, what came before is looked at: for a plan when the launch began
            staged_from = self.others.began if self.launch.plan else self.lake.version()
            if newer := tuple(self.others.newer(chunk.partitions)):
                yield LeftOut(newer, "newer code has published them since this launch began", False, is_failure=True)
                chunk = replace(chunk, partitions=tuple(p for p in chunk.partitions if p not in newer))
            if not chunk.partitions:
                return
            try:
                chunk = self._as_it_is_now(chunk) if attempt > 1 else chunk
                chunk = replace(chunk, foreign=chunk.foreign | self._foreign_since(chunk.partitions, staged_from))
                again = yield from self._attempt(chunk, staged_from)
            except MemoryExhaustedError:
                whole = self.launch.is_indivisible
                smaller = in_smaller_parts(chunk.partitions, chunk.slices, is_indivisible=whole)
                if not smaller:
                    raise
                self.effects.log(smaller[0].why)
                for part in smaller:
                    yield from self.publish(replace(chunk, partitions=tuple(part.partitions), slices=part.slices))
                return
            except _TooMuchToSave as error:
                for first in range(0, len(chunk.partitions), error.most):
                    part = chunk.partitions[first : first + error.most]
                    yield from self.publish(replace(chunk, partitions=part))
                return
            except (CommitConflictError, SourceChangedError, SourceUnavailableError, TableLockedError) as error:
                is_planned_for = isinstance(error, SourceUnavailableError | TableLockedError)
                if attempt == ATTEMPTS or (self.launch.plan and not is_planned_for):
                    raise  # a plan is of what source and table were
                seconds = seconds_after(attempt)
                why = "did not succeed" if isinstance(error, SourceUnavailableError) else "was overtaken"
                self.effects.log(
                    f"Attempt {attempt} of {ATTEMPTS} {why} ({error}); everything is read again in {seconds:.1f} s."
                )
                self.effects.sleep(seconds)
            else:  # with attempts of its own: what was told of the others is not told twice
                if again:
                    self.effects.log(
                        f"{len(again):,} partitions are read again: not all of the table is as it was published."
                    )
                    yield from self.publish(replace(chunk, partitions=again, must_keep=True))
                return

    def _foreign_since(self, partitions: Sequence[Partition], staged_from: int) -> frozenset[Partition]:
        """Return the partitions that have rows which no publish put there, and that somebody wrote since the plan.

        An undo may have given them their live rows back; or the chunk has waited, and somebody has added some.
        """
        began = self.others.began
        if self.launch.discard_uncovered_rows or not self.lake.versions_writing(
            began, staged_from + 1, partitions, forgotten_too=True
        ):
            return frozenset()
        fence = self.lake.fence()
        if fence is None or not fence.stream:
            return frozenset()
        published = self.lake.published()
        since = self.lake.written_by_others({p.key: published[p.key] for p in partitions if p.key in published})
        return frozenset(partitions_with_foreign_rows(partitions, self.lake.rows_now(partitions), published, since))

    def _as_it_is_now(self, chunk: Chunk) -> Chunk:
        """Survey the source again before a chunk is attempted once more; a plan is of what the source was."""
        if self.launch.plan:
            refuse_changed_source(chunk.partitions, chunk.surveys, self.source)
        return replace(chunk, surveys=self.source.survey(chunk.partitions))

    def _attempt(self, chunk: Chunk, staged_from: int) -> Generator[Outcome, None, tuple[Partition, ...]]:
        """Stage, audit, publish and verify one chunk once; return the partitions that have to be read again."""
        clock, published = Stopwatch(self.effects.clock), None
        verification = Verification(self.spec, self.lake, self.others, self.effects)
        with self.auditor.audited(chunk, staged_from, clock) as audited:
            read, same, receipt = audited.read, audited.same, audited.receipt
            passed = [self.spec.grid.partition(key) for key in receipt.partitions]
            if chunk.most_saved is not None and len(passed) > chunk.most_saved:
                raise _TooMuchToSave(chunk.most_saved)
            if not read.scan.is_of_one_moment:
                refuse_changed_source(chunk.partitions, chunk.surveys, self.source)
            if passed:
                commit = self.lake.overwrite(read.staged, passed, receipt)
                clock.lap("save")
                verification.verify(passed, read.staged.tallies, commit, receipt)
                verification.refuse_overtaken(passed, commit, receipt)
                clock.lap("verify")
                stages = stages_of(read, list(receipt.partitions), commit.rows, commit.size_bytes)
                if fewer := in_fewer_rows(receipt):
                    self.effects.log(fewer)
                published = Published(
                    *chunk.number, tuple(passed), receipt, commit, seconds=clock.seconds, stages=stages
                )
        if same.partitions:
            yield replace(same, stages=stages_of(read, list(same.published)))
        if published:
            yield published
        for verdict in audited.verdicts:
            if not verdict.passed:
                yield Refused(verdict, stages_of(read, [verdict.partition.key]))
        return audited.again
