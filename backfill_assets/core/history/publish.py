"""A plan carried out: chunk by chunk staged, audited, published in one commit each, and verified.

Knows neither Spark nor Dagster; what it needs of an engine is in `core/history/ports.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audited_chunk import Auditor, Chunk
from backfill_assets.core.history.effects import ATTEMPTS, Effects, repeated, wait_to_repeat
from backfill_assets.core.history.identical import is_as_published
from backfill_assets.core.history.other_code import OtherCode, since_now
from backfill_assets.core.history.outcomes import Identical, NextChunk, Outcome, Published, Refused, in_fewer_rows
from backfill_assets.core.history.plan import Launch, LaunchPlan, LeftOut, plan_launch
from backfill_assets.core.history.ports import Commit, Lake, Rows, Source
from backfill_assets.core.history.stages import stages_of
from backfill_assets.core.history.staging import refuse_changed_source
from backfill_assets.core.history.stopwatch import Stopwatch
from backfill_assets.core.history.verification import Verification
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import partitions_with_foreign_rows
from backfill_assets.core.state.receipts import Receipt, audited_contents
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.errors import (
    CommitConflictError,
    EngineFailedError,
    LaunchError,
    PublishError,
    SourceChangedError,
    UncertainCommitError,
    UnreadableTableError,
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
    others = repeated(lambda: since_now(lake, launch), effects, failures=lake.failures)
    left_out: list[LeftOut] = []

    def planned() -> LaunchPlan:
        left_out.clear()
        return plan_launch(spec, partitions, source, lake, launch, left_out=left_out)

    try:
        plan = repeated(planned, effects, failures=lake.failures)
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
        """Publish every chunk of a plan.

        The table is made if it is not there, and only if there is something to publish.

        Raises:
            SchemaMismatchError: The table differs from the spec. Nothing was written.
            PublishError: A chunk could not be published; chunks before it are.
        """
        if plan.chunks:
            repeated(self.lake.create, self.effects, failures=self.lake.failures)
        rows = files = refused = 0
        for number, partitions in enumerate(plan.chunks, start=1):
            if self.launch.announces_chunks:
                yield NextChunk(number, rows, files)
            of = number, len(plan.chunks)
            chunk = Chunk(tuple(partitions), of, plan.surveys, plan.foreign, began_at=self.others.began)
            waiting = deque(self._parts(chunk))
            while waiting:
                part = waiting.popleft()
                for outcome in self._publish(part):
                    if isinstance(outcome, Chunk):
                        waiting.appendleft(outcome)
                        continue
                    rows, refused = rows + _rows_read(outcome), refused + isinstance(outcome, Refused)
                    yield outcome
            files += sum(plan.surveys[partition.key].files for partition in partitions)
            rest = tuple(partition for chunk in plan.chunks[number:] for partition in chunk)
            if rest and self.launch.max_refused is not None and refused >= self.launch.max_refused:
                why = f"{refused:,} partitions were refused before them (`max_refused`: {self.launch.max_refused:,})"
                yield LeftOut(rest, why, published=False, is_failure=True)
                return

    def _parts(self, chunk: Chunk) -> list[Chunk]:
        """Return the partitions that changed, and then those that nothing tells from what was published of them.

        The latter are only counted as a rule: nothing is written for them. A chunk stays whole if rows may move between
        its partitions, if a guard looks at all of them, or if one call makes them.
        """
        if self.launch.guards or chunk.foreign or self.spec.changes or self.source.makes_chunks_at_once():
            return [chunk]
        known, parts = self.launch.may_be_identical, dict[bool, list[Partition]]()
        audited = audited_contents(self.launch.published, chunk.partitions, self.spec, self.launch.run.code_version)
        for partition in chunk.partitions:
            parts.setdefault(is_as_published(known, audited, [partition], chunk.surveys), []).append(partition)
        return [replace(chunk, partitions=tuple(part)) for _, part in sorted(parts.items())]

    def _publish(self, chunk: Chunk) -> Iterator[Outcome | Chunk]:
        """Publish one chunk, again as long as its failure may pass; not what newer code has published meanwhile.

        Yields outcomes, and last what of it has to be read again: a chunk with attempts of its own, so that what was
        told of the others is not told twice.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.lake.failures():
                    # what comes after this is a conflict, what came before is looked at: for a plan when it began;
                    # a table that did not exist then was made by this launch, empty
                    staged_from = max(0, self.others.began) if self.launch.run.plan else self.lake.version()
                    newer = tuple(self.others.newer(chunk.partitions))
                    if newer:
                        why = "newer code has published them since this launch began"
                        yield LeftOut(newer, why, False, is_failure=True)
                        chunk = replace(chunk, partitions=tuple(p for p in chunk.partitions if p not in newer))
                    if not chunk.partitions:
                        return
                    chunk = self._as_it_is_now(chunk) if attempt > 1 else chunk
                    chunk = replace(chunk, foreign=chunk.foreign | self._foreign_since(chunk.partitions, staged_from))
                    again = yield from self._attempt(chunk, staged_from)
            except PublishError as error:
                if self.launch.run.plan and isinstance(error, CommitConflictError | SourceChangedError):
                    raise  # a plan is of what source and table were
                wait_to_repeat(error, attempt, self.effects)
            else:
                if again:
                    self.effects.log(
                        f"{len(again):,} partitions are read again: not all of the table is as it was published."
                    )
                    yield replace(chunk, partitions=again, must_keep=True)
                return

    def _foreign_since(self, partitions: Sequence[Partition], staged_from: int) -> frozenset[Partition]:
        """Return the partitions that have rows which no publish put there, and that somebody wrote since the plan.

        An undo may have given them their live rows back; or the chunk has waited, and somebody has added some.
        """
        if self.launch.allowed.discard_uncovered_rows:
            return frozenset()
        if not self.lake.versions_writing(self.others.began, staged_from + 1, partitions):
            return frozenset()
        fence = self.lake.fence()
        if fence is None or not fence.stream:
            return frozenset()
        published = self.lake.published()
        since = self.lake.written_by_others({p.key: published[p.key] for p in partitions if p.key in published})
        return frozenset(partitions_with_foreign_rows(partitions, self.lake.rows_now(partitions), published, since))

    def _as_it_is_now(self, chunk: Chunk) -> Chunk:
        """Survey the source again before a chunk is attempted once more; a plan is of what the source was."""
        if self.launch.run.plan:
            refuse_changed_source(chunk.partitions, chunk.surveys, self.source)
        return replace(chunk, surveys=self.source.survey(chunk.partitions))

    def _attempt(self, chunk: Chunk, staged_from: int) -> Generator[Outcome, None, tuple[Partition, ...]]:
        """Stage, audit, publish and verify one chunk once; return the partitions that have to be read again."""
        clock, published = Stopwatch(self.effects.clock, partial(self._tell, chunk)), None
        verification = Verification(self.spec, self.lake, self.others, self.effects)
        with self.auditor.audited(chunk, staged_from, clock, writes=True) as audited:
            read, same, receipt = audited.read, audited.same, audited.receipt
            passed = [self.spec.grid.partition(key) for key in receipt.partitions]
            if not read.scan.is_of_one_moment:
                refuse_changed_source(chunk.partitions, chunk.surveys, self.source)
            if passed:
                clock.begin("commit")
                commit = self.lake.overwrite(read.staged, passed, receipt)
                if not commit.is_audited:
                    self._verified(verification, passed, read.staged.tallies, commit, receipt)
                clock.end()
                stages = stages_of(read, list(receipt.partitions), commit.rows, commit.size_bytes)
                if fewer := in_fewer_rows(receipt):
                    self.effects.log(fewer)
                tallies = {p.key: read.staged.tallies.get(p.key, EMPTY) for p in passed if commit.is_audited}
                published = Published(
                    *chunk.number, tuple(passed), receipt, commit, clock.seconds, stages=stages, tallies=tallies
                )
        if same.partitions:
            yield replace(same, stages=stages_of(read, list(same.published)))
        if published:
            yield published
        for verdict in audited.verdicts:
            if not verdict.passed:
                yield Refused(verdict, stages_of(read, [verdict.partition.key]))
        return audited.again

    def _tell(self, chunk: Chunk, step: str) -> None:
        """Say at which step of which chunk the launch is."""
        (number, count), size = chunk.number, len(chunk.partitions)
        self.effects.at_step(f"chunk {number} of {count} ({size:,} partition{'s' if size > 1 else ''}): {step}")

    def _verified(
        self,
        verification: Verification[Rows],
        passed: Sequence[Partition],
        tallies: Mapping[str, Tally],
        commit: Commit,
        receipt: Receipt,
    ) -> None:
        """Verify a commit; ask again while the engine fails, for the commit is made, and must not be made twice.

        Raises:
            UnreadableTableError: A file of the commit is gone. The chunk is to be published again.
            UncertainCommitError: The engine has failed in each attempt.
        """

        def verify() -> None:
            verification.verify(passed, tallies, commit, receipt)
            verification.refuse_overtaken(passed, commit, receipt)

        try:
            repeated(
                verify, self.effects, failures=self.lake.failures, unless=(CommitConflictError, UnreadableTableError)
            )
        except EngineFailedError as error:
            raise UncertainCommitError(
                f"{error.what} So version {commit.version} could not be verified.",
                state=f"Version {commit.version} is committed; nobody knows yet whether it holds what was audited.",
                remedy=f"Run `backfill-assets reconcile {self.spec.key}`, and then launch again with `only: MISSING`.",
                version=commit.version,
            ) from None
