"""What a launch would do with each partition, before it does anything. Only looks: nothing is written anywhere.

Without reading rows it is judged by receipts, the log, and what the source says of itself; with `deep` every chunk is
read and audited just as its launch would, up to where it would be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import NO_EVIDENCE, Evidence, late_loss, loss
from backfill_assets.core.history.audited_chunk import Auditor
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.outcomes import Rehearsed
from backfill_assets.core.history.plan import Launch, LaunchPlan, plan_launch
from backfill_assets.core.history.planned_state import MadeOf
from backfill_assets.core.history.ports import Lake, Rows, Source
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.partition_status import Known, PartitionStatus, State, status_of
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.surveys import NO_LATE


class Action(StrEnum):
    """What a launch does with a partition."""

    CREATE = "create"
    REPLACE = "replace"
    IDENTICAL = "identical"
    """It is in the table as it would be written, and is not written."""
    REFUSED = "refused"
    LEFT_OUT = "left out"
    """It is live, or its source is not complete."""


WRITES = frozenset({Action.CREATE, Action.REPLACE})


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """What a launch would do with one partition.

    Args:
        why: In words.
        rows: That it would have; None if that is not known without reading it.
        rows_now: That the table has of it, whoever wrote them; None if nobody can count them.
        size_bytes: At its source, stored; 0 where the source does not say.
        files: At its source; 0 where it has none.
        fingerprint: Of the source's content.
        receipt_id: Of its newest publish; empty if there is none.
        written_since: Newest version by which somebody else wrote it after that; 0 if nobody did.
        late_rows: That are folded in.
    """

    partition: Partition
    action: Action
    why: str
    rows: int | None = None
    rows_now: int | None = 0
    size_bytes: int = 0
    files: int = 0
    fingerprint: str = ""
    receipt_id: str = ""
    written_since: int = 0
    late_rows: int = 0

    @property
    def made_of(self) -> MadeOf:
        """What it is judged by."""
        return MadeOf(self.fingerprint, self.receipt_id, self.written_since, self.late_rows)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a launch would do.

    Args:
        partitions: Every one that was named, in order.
        is_deep: Whether every partition was read.
        remarks: What a person would want to know, a sentence each.
        version: Newest version of the table that was looked at; -1 if there is no table.
        fence: None for a table without a live stream.
    """

    partitions: tuple[PartitionForecast, ...]
    is_deep: bool
    remarks: tuple[str, ...]
    version: int
    fence: Fence | None

    @property
    def written(self) -> list[PartitionForecast]:
        """The partitions that would be written."""
        return [found for found in self.partitions if found.action in WRITES]


def foresee(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: Source[Rows],
    lake: Lake[Rows],
    launch: Launch,
    *,
    deep: bool = False,
    refused: Callable[[Mapping[str, PublishedPartition]], Mapping[str, str]] = lambda _: {},
    log: Callable[[str], None] = lambda _: None,
) -> Forecast:
    """Say what a launch would do with each of some partitions.

    Args:
        launch: As it would be made; that nothing may be written is no error here.
        deep: Whether the source is read, so that rows, refusals and identical partitions are certain.
        refused: Given what is published, returns when and why launches have refused partitions last, in words, by key.

    Raises:
        WindowError: No partitions were named.
        SchemaMismatchError: The source does not have the spec's columns.
        PublishError: With `deep`: a chunk could not be read.
    """
    version = lake.version()
    launch = replace(launch, may_find_nothing=True, published=lake.published())
    plan = plan_launch(spec, partitions, source, lake, launch)
    todo = [partition for chunk in plan.chunks for partition in chunk]
    touched = lake.written_by_others({p.key: launch.published[p.key] for p in partitions if p.key in launch.published})
    rows_now = lake.rows_now(sorted(set(partitions)), version=version)
    said: Mapping[str, Evidence] = {}
    if todo and not deep:
        said = source.foretell(todo, plan.surveys)
    rehearsed = Auditor(spec, source, lake, launch, Effects(log=log)).rehearse(plan) if deep else ()
    read = {found.verdict.partition.key: found for found in rehearsed}
    late = (lake.late(todo) if todo else NO_LATE).rows
    seen = _Seen(spec, launch, plan, rows_now, touched, refused(launch.published), late=late, said=said, read=read)
    named = tuple(seen.left_out() + seen.judged(todo))
    beside = sorted(read.keys() - {partition.key for partition in todo})
    first = (
        f"{len(beside):,} partitions that lack changes are written with them, first `{beside[0]}`." if beside else ""
    )
    return Forecast(
        tuple(sorted(named, key=lambda found: found.partition)),
        deep,
        (*plan.remarks, *filter(None, [first])),
        version,
        lake.fence(),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was looked at to foresee a launch; by partition key, all of it."""

    spec: TableSpec
    launch: Launch
    plan: LaunchPlan
    rows_now: Mapping[str, int | None]
    touched: Mapping[str, int]
    refused: Mapping[str, str]
    late: Mapping[str, int]
    said: Mapping[str, Evidence]
    read: Mapping[str, Rehearsed]

    def left_out(self) -> list[PartitionForecast]:
        """Return the partitions that the launch leaves out."""
        return [
            PartitionForecast(
                partition,
                Action.IDENTICAL if left.published else Action.LEFT_OUT,
                left.why,
                rows=self.launch.published[partition.key].partition.rows if left.published else None,
                rows_now=self.rows_now.get(partition.key, 0),
                receipt_id=self._receipt_id(partition),
            )
            for left in self.plan.left_out
            for partition in left.partitions
        ]

    def judged(self, todo: Sequence[Partition]) -> list[PartitionForecast]:
        """Return what is done with the partitions that it does not leave out."""
        known = Known(
            published=self.launch.published,
            surveys=self.plan.surveys,
            late_rows=self.late,
            rows_now=self.rows_now,
            written_since=self.touched,
            differing=self.launch.differing,
            refused=self.refused,
            code_version=self.launch.run.code_version,
        )
        return [self._forecast(status) for status in status_of(todo, known)]

    def _forecast(self, status: PartitionStatus) -> PartitionForecast:
        key, survey = status.partition.key, self.plan.surveys[status.partition.key]
        action, why, rows = _as_read(self.read[key], status) if key in self.read else self._unread(status)
        return PartitionForecast(
            status.partition,
            action,
            why,
            rows=rows,
            rows_now=self.rows_now.get(key, 0),
            size_bytes=survey.size_bytes,
            files=survey.files,
            fingerprint=survey.fingerprint,
            receipt_id=self._receipt_id(status.partition),
            written_since=self.touched.get(key, 0),
            late_rows=self.late.get(key, 0),
        )

    def _unread(self, status: PartitionStatus) -> tuple[Action, str, int | None]:
        key, evidence = status.partition.key, self.said.get(status.partition.key, NO_EVIDENCE)
        rows = None if evidence.raw_rows is None else evidence.raw_rows + self.late.get(key, 0)
        launch = self.launch
        if status.partition in self.plan.foreign:
            launch = replace(launch, allowed=replace(launch.allowed, allow_shrink=True))
        action, why = action_of(
            self.spec,
            status,
            evidence,
            rows=rows,
            rows_now=self.rows_now.get(key, 0),
            late_rows=self.late.get(key, 0),
            launch=launch,
        )
        if action is Action.IDENTICAL and status.published:
            return action, why, status.published.partition.rows
        return action, why, None if self.spec.latest_wins_by else rows  # how many rows repeat a key is not known

    def _receipt_id(self, partition: Partition) -> str:
        known = self.launch.published.get(partition.key)
        return known.receipt.receipt_id if known else ""


def action_of(
    spec: TableSpec,
    status: PartitionStatus,
    evidence: Evidence,
    *,
    rows: int | None,
    rows_now: int | None,
    late_rows: int = 0,
    launch: Launch,
) -> tuple[Action, str]:
    """Say what a launch does with a partition that it does not leave out, and why, without reading it.

    `says`: what the source found wrong with it. `had`: rows of the table, whoever wrote them.

    | state        | says  | had | rows | action    |
    |--------------|-------|-----|------|-----------|
    | missing      | -     | -   | 5    | create    |
    | missing      | -     | -   | -    | create    |
    | missing      | a gap | -   | -    | refused   |
    | published    | -     | 10  | 10   | identical |
    | published    | -     | 10  | -    | identical |
    | published    | a gap | 10  | -    | refused   |
    | stale source | -     | 10  | 12   | replace   |
    | stale source | -     | 10  | -    | replace   |
    | stale source | -     | 10  | 5    | replace   |
    | stale source | -     | 10  | 4    | refused   |
    | stale source | -     | 10  | 0    | refused   |
    | stale source | a gap | 10  | -    | refused   |
    | stale code   | -     | 10  | 10   | replace   |
    | foreign rows | -     | 10  | 10   | replace   |
    | foreign rows | -     | 10  | 4    | refused   |
    | foreign rows | -     | 10  | -    | replace   |
    | restored     | -     | 10  | 10   | replace   |
    | differs      | -     | 10  | 10   | replace   |

    Args:
        rows: That the source has of it, late ones too, before rows with the same key are made one; None: not known.
        rows_now: That the table has of it; None if nobody can count them.
        late_rows: That there are of it.
    """
    if evidence.findings:
        return Action.REFUSED, " ".join(finding.what for finding in evidence.findings[:2])
    if status.state is State.PUBLISHED and not launch.rewrite_identical:
        return Action.IDENTICAL, status.reason
    folded_before = status.published.partition.late_rows if status.published else 0
    if gone := late_loss(spec, late_rows, folded_before, allow_shrink=launch.allowed.allow_shrink):
        return Action.REFUSED, gone.what
    if rows is not None:
        lost = loss(spec, rows_now, rows, deleted_rows=evidence.deleted_rows, allow_shrink=launch.allowed.allow_shrink)
        if lost is not None:
            return Action.REFUSED, lost.what
    if status.state is State.MISSING:
        return Action.CREATE, status.reason
    return Action.REPLACE, "; ".join(status.why)


def _as_read(read: Rehearsed, status: PartitionStatus) -> tuple[Action, str, int]:
    """Return what a launch does with a partition that was read and audited."""
    if not read.verdict.passed:
        return Action.REFUSED, " ".join(str(finding) for finding in read.verdict.findings), read.tally.rows
    if read.identical:
        return Action.IDENTICAL, "it was read: the table has it row for row", read.tally.rows
    if status.state is State.MISSING:
        return Action.CREATE, status.reason, read.tally.rows
    why = "; ".join(status.why) if status.state is not State.PUBLISHED else "the table's rows are others"
    return Action.REPLACE, why, read.tally.rows
