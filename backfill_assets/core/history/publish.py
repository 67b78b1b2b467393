"""A plan carried out: chunk by chunk staged, audited, published in one commit each, and verified.

Knows neither Spark nor Dagster; what it needs of an engine is in `core/history/ports.py`.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.identical import identical
from backfill_assets.core.history.other_code import OtherCode, since_now
from backfill_assets.core.history.outcomes import Identical, Outcome, Published, Refused
from backfill_assets.core.history.pace import PublishPace, Stopwatch
from backfill_assets.core.history.plan import Launch, LaunchPlan, LeftOut, plan_launch
from backfill_assets.core.history.ports import Commit, Effects, Lake, Rows, Source
from backfill_assets.core.history.staging import (
    StagedPartitions,
    audit_all,
    in_smaller_parts,
    refuse_changed_source,
    refuse_dependence_on_chunk,
    stage_chunk,
)
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt, summed_columns
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import EMPTY, total
from backfill_assets.errors import (
    CommitConflictError,
    LaunchError,
    MemoryExhaustedError,
    SourceChangedError,
    StagedContentLostError,
    TableLockedError,
)

ATTEMPTS = 5


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
    yield from Publisher(spec, source, lake, launch, effects, others).carry_out(plan)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a plan, as it is about to be published.

    Args:
        number: From 1, of as many as are known by now.
        surveys: What the source has of each partition, by key.
        foreign: Partitions of it with rows that no publish put there.
        slices: Into how many parts a partition is cut by key, because it does not fit into memory.
    """

    partitions: tuple[Partition, ...]
    number: tuple[int, int]
    surveys: Mapping[str, Survey]
    foreign: frozenset[Partition] = frozenset()
    slices: int = 1


@dataclass(frozen=True, slots=True)
class Publisher(Generic[Rows]):
    """Publishes the chunks of one launch, one at a time."""

    spec: TableSpec
    source: Source[Rows]
    lake: Lake[Rows]
    launch: Launch
    effects: Effects
    others: OtherCode[Rows]

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
        number = 0
        while pending:
            partitions, rest = pace.cut(pending.popleft(), size_bytes)
            if rest:
                pending.appendleft(rest)
            number += 1
            chunk = Chunk(tuple(partitions), (number, number + len(pending)), plan.surveys, plan.foreign)
            for outcome in self.publish(chunk):
                if isinstance(outcome, Published):
                    pace.saw(outcome.seconds["save"], len(outcome.partitions))
                yield outcome

    def publish(self, chunk: Chunk) -> Iterator[Outcome]:
        """Publish one chunk, with as many attempts as a conflict deserves; not what newer code has published meanwhile.

        If memory runs out the chunk is halved; a single partition is gone through in slices by key, and still published
        in one commit.
        """
        for attempt in range(1, ATTEMPTS + 1):
            staged_from = self.lake.version()  # what comes after this is a conflict, what came before is looked at
            if newer := tuple(self.others.newer(chunk.partitions)):
                yield LeftOut(newer, "newer code has published them since this launch began", False, is_failure=True)
                chunk = replace(chunk, partitions=tuple(p for p in chunk.partitions if p not in newer))
            if not chunk.partitions:
                return
            try:
                yield from self._attempt(chunk, staged_from)
                return
            except MemoryExhaustedError:
                smaller = in_smaller_parts(chunk.partitions, chunk.slices)
                if not smaller:
                    raise
                self.effects.log(smaller[0].why)
                for part in smaller:
                    yield from self.publish(replace(chunk, partitions=tuple(part.partitions), slices=part.slices))
                return
            except (CommitConflictError, SourceChangedError, TableLockedError) as error:
                if attempt == ATTEMPTS:
                    raise
                seconds = random.uniform(0.5, 1.5) * 2 ** (attempt - 1)  # noqa: S311 (jitter, not a secret)
                self.effects.log(
                    f"Attempt {attempt} of {ATTEMPTS} was overtaken ({error}); everything is read again in "
                    f"{seconds:.1f} s."
                )
                self.effects.sleep(seconds)
                chunk = replace(chunk, surveys=self.source.survey(chunk.partitions))

    def _attempt(self, chunk: Chunk, staged_from: int) -> Iterator[Outcome]:
        """Stage, audit, publish and verify one chunk once."""
        clock, published = Stopwatch(self.effects.clock), None
        read = stage_chunk(chunk.partitions, chunk.surveys, self.source, self.lake, clock.lap, slices=chunk.slices)
        with read.staged:
            refuse_dependence_on_chunk(self.spec, read, self.source, self.lake)
            verdicts = audit_all(
                self.spec, read, self.source, self.lake, foreign=[p for p in chunk.partitions if p in chunk.foreign]
            )
            passed = [v.partition for v in verdicts if v.passed]
            receipt = self._receipt(passed, read, staged_from)
            same = identical(self.spec, self.lake, self.launch, receipt, read.staged.tallies)
            unchanged = [p for p in passed if p.key in same]
            if unchanged:
                passed = [p for p in passed if p.key not in same]
                receipt = self._receipt(passed, read, staged_from)
            clock.lap("audit")
            refuse_changed_source(chunk.partitions, chunk.surveys, self.source)
            if passed:
                commit = self.lake.overwrite(read.staged, passed, receipt)
                clock.lap("save")
                self._verify(passed, read, commit, receipt)
                self._refuse_overtaken(passed, commit, receipt)
                clock.lap("verify")
                published = Published(*chunk.number, tuple(passed), receipt, commit, clock.seconds)
        if unchanged:
            yield Identical(tuple(unchanged), same)
        if published:
            yield published
        for verdict in verdicts:
            if not verdict.passed:
                yield Refused(verdict)

    def _receipt(self, partitions: Sequence[Partition], read: StagedPartitions[Rows], staged_from: int) -> Receipt:
        staged, launch = read.staged, self.launch
        return Receipt(
            receipt_id=uuid.uuid4().hex,
            table=self.spec.key,
            run_id=launch.run_id,
            root_run_id=launch.root_run_id,
            staged_from_version=staged_from,
            source=read.scan.position,
            partitions={
                p.key: PartitionReceipt.of(
                    staged.tallies.get(p.key, EMPTY),
                    fingerprint=read.surveys[p.key].fingerprint,
                    superseded_rows=staged.superseded_rows.get(p.key, 0),
                    late_rows=staged.late.rows.get(p.key, 0),
                )
                for p in partitions
            },
            late_version=staged.late.version,
            reason=launch.reason,
            code_version=launch.code_version,
            flow=launch.flow,
            made_at=self.effects.now().isoformat(timespec="seconds"),
            columns=summed_columns(self.spec),
        )

    def _refuse_overtaken(self, partitions: Sequence[Partition], commit: Commit, receipt: Receipt) -> None:
        """Find out whether another commit came between what was read and what was committed; put newer code's back.

        Raises:
            CommitConflictError: It did; what is committed may be older than what it replaced.
        """
        staged_from = receipt.staged_from_version
        overtaken = self.lake.versions_writing(staged_from, commit.version, partitions)
        if overtaken:
            if newer := self.others.newer(partitions):
                self._restore(newer, commit, receipt, "replaced what newer code had published")
            raise CommitConflictError(
                f"`{self.spec.key}`: version {overtaken[-1]} wrote partitions of this chunk after it was staged from "
                f"version {staged_from}.",
                state=f"Version {commit.version} holds content that may be older.",
                remedy="It is staged and published again.",
            )

    def _verify(
        self, partitions: Sequence[Partition], read: StagedPartitions[Rows], commit: Commit, receipt: Receipt
    ) -> None:
        """Hold what was committed against what was audited; restore the old content if it differs.

        Two counts that Spark and Delta keep anyway are looked at first. Only when one differs or is lacking is the
        table read. What another commit has replaced since is newer, and stays.
        """
        lake = self.lake
        audited = {p.key: read.staged.tallies.get(p.key, EMPTY) for p in partitions}
        counted = all(commit.rows.get(key, 0) == tally.rows for key, tally in audited.items())
        if counted and commit.written == total(audited.values()):
            return
        committed = lake.tally(partitions, version=commit.version)
        wrong = [key for key, tally in audited.items() if not tally.same_content(committed.get(key, EMPTY))]
        if not wrong:
            return
        since = lake.versions_writing(commit.version, lake.version() + 1, partitions)
        ours = [p for p in partitions if not since or not lake.versions_writing(commit.version, since[-1] + 1, [p])]
        state = f"Version {since[-1]} has replaced it since, so nothing was put back." if since else ""
        if ours:
            restored = self._restore(ours, commit, receipt, "does not hold what was audited")
            state = f"The content from before was put back as version {restored.version}."
        raise StagedContentLostError(
            f"`{self.spec.key}`: version {commit.version} does not hold what was audited in {len(wrong)} partitions "
            f"(first `{wrong[0]}`).",
            state=state,
            remedy="Launch the range again; if it happens twice, look for executors that are lost during the write.",
            partitions=wrong,
            version=commit.version,
        )

    def _restore(self, partitions: Sequence[Partition], commit: Commit, receipt: Receipt, why: str) -> Commit:
        """Replace partitions with what they held before a commit of ours."""
        before = commit.version - 1
        old = self.lake.tally(partitions, version=before)
        restored = replace(
            receipt,
            receipt_id=uuid.uuid4().hex,
            staged_from_version=commit.version,
            source={"kind": "version", "version": before},
            partitions={p.key: PartitionReceipt.of(old.get(p.key, EMPTY), fingerprint="") for p in partitions},
            late_version=None,
            reason=f"version {commit.version} {why}",
            kind="put_back",
        )
        return self.lake.restore(partitions, version=before, receipt=restored)
