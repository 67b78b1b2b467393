"""The plan of a launch: which partitions it writes, in which chunks, and which it leaves out and why.

Planning only looks: no table is made, nothing is written, and the same question can be asked any number of times.
`publish.py` carries a plan out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from backfill_assets.core.calendar.chunks import chunks_of
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.complete import complete_part
from backfill_assets.core.history.guards import Allowances, Guard
from backfill_assets.core.history.planned_state import refuse_drift
from backfill_assets.core.history.ports import Lake, Rows, Source
from backfill_assets.core.history.reasons import refuse_without_reason
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence, history_part
from backfill_assets.core.state.partition_status import Known, PartitionStatus, State, status_of
from backfill_assets.core.state.receipts import PublishedPartition, Run
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import LivePartitionsError, SourceIncompleteError


@dataclass(frozen=True, slots=True)
class Launch:
    """Who launches, why, and how.

    Args:
        allowed: What may be published in spite of the guards.
        only: `missing` leaves out partitions that are published as source, late rows and code would make them now.
        may_find_nothing: Whether a launch with nothing to write leaves all out instead of failing.
        is_reexecution: Whether Dagster repeats an earlier run; what that run published of the same content is left out.
        differing: Keys of partitions whose newest comparison failed.
        published: The newest receipt of each partition, by key, as far as it is known.
        rewrite_identical: Whether a partition is written again that is in the table, row for row, already.
        max_refused: After so many refused partitions, and the chunk that they are in, nothing more is begun.
        announces_chunks: Whether each chunk is an outcome of its own before it begins, so that it can be waited for.
        planned_state: Digest of what the partitions of its plan are made of, as `planned_digest` makes it.
        guards: What must be left of the table's rows, beside what every audit says.
    """

    run: Run
    _: KW_ONLY
    only: Literal["all", "missing"] = "all"
    allowed: Allowances = field(default_factory=Allowances)
    may_find_nothing: bool = False
    is_reexecution: bool = False
    max_partitions_per_chunk: int | None = None
    differing: AbstractSet[str] = frozenset()
    published: Mapping[str, PublishedPartition] = field(default_factory=dict[str, PublishedPartition])
    rewrite_identical: bool = False
    planned_state: str = ""
    max_refused: int | None = None
    announces_chunks: bool = False
    guards: tuple[Guard, ...] = ()

    @property
    def may_be_identical(self) -> Mapping[str, PublishedPartition]:
        """Receipts of partitions that need not be written if the table has them already.

        None where all are written: if that is asked for, and by a once-flow, which publishes its range under its name.
        """
        return {} if self.rewrite_identical or self.run.flow else self.published


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Partitions that a launch did not touch, and why.

    Args:
        published: Whether they are in the table already, with the content that the source has.
        is_failure: Whether the launch should have written them, and has failed for that.
    """

    partitions: tuple[Partition, ...]
    why: str
    published: bool
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What a launch is going to do.

    Args:
        chunks: What is published, each in one commit, in order; a chunk may still be cut smaller when it is published.
        left_out: What is not touched, and why.
        remarks: What a person would want to know beforehand, a sentence each.
        surveys: What the source has of every partition of the chunks, by key.
        foreign: Partitions of the chunks with rows that no publish put there, none of which may get lost.
    """

    chunks: tuple[tuple[Partition, ...], ...]
    left_out: tuple[LeftOut, ...]
    remarks: tuple[str, ...] = ()
    surveys: dict[str, Survey] = field(default_factory=dict[str, Survey])
    foreign: frozenset[Partition] = frozenset()


_WHY_DONE = {
    "missing": "their receipt names the source's content as it is now",
    "all": "an earlier attempt of this run published the same content",
}
_UNEXPECTED = "the source has nothing of them, and need not have; they stay missing"


def plan_launch(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: Source[Rows],
    lake: Lake[Rows],
    launch: Launch,
    *,
    left_out: list[LeftOut] | None = None,
) -> LaunchPlan:
    """Decide what a launch of some partitions does. Reads, and has no effect on anything.

    Args:
        left_out: What is left out is added to it, so that it is known too if there is no plan.

    Raises:
        WindowError: No partitions were named.
        LivePartitionsError: All of them belong to the live stream.
        SourceIncompleteError: The source is complete for none of them.
        SchemaMismatchError: The source does not have the spec's columns.
        PlanDriftError, ReasonMissingError: Its plan does not hold any more; it must say why, and does not.
    """
    left_out = [] if left_out is None else left_out
    refuse_without_reason(spec, launch.run.reason)
    try:
        wanted, fence = _launchable(spec, partitions, source, lake, left_out)
    except (LivePartitionsError, SourceIncompleteError) as error:
        if not launch.may_find_nothing:
            raise
        known = {partition for out in left_out for partition in out.partitions}
        rest = tuple(partition for partition in sorted(partitions) if partition not in known)
        why = f"{error.what.rstrip('.')}; {_as_they_stay(rest, lake)}"
        return LaunchPlan((), (*left_out, LeftOut(rest, why, published=False)))
    surveys = source.survey(wanted)
    if launch.planned_state:
        refuse_drift(spec, wanted, surveys, lake, plan=launch.run.plan, planned_state=launch.planned_state)
    statuses = _statuses(wanted, surveys, lake, launch, is_streamed=fence is not None and bool(fence.stream))
    todo = _still_to_do(statuses, wanted, surveys, launch, left_out)
    if not todo:
        return LaunchPlan((), tuple(left_out))
    chunks = chunks_of(
        todo,
        max_partitions=launch.max_partitions_per_chunk or spec.max_partitions_per_chunk,
        max_bytes=spec.chunk.max_source_bytes,
        size_bytes={key: survey.size_bytes for key, survey in surveys.items()},
    )
    foreign = frozenset[Partition]()
    if fence and fence.stream and not launch.allowed.discard_uncovered_rows:
        foreign = frozenset(status.partition for status in statuses if status.may_have_foreign_rows) & set(todo)
    return LaunchPlan(
        tuple(map(tuple, chunks)),
        tuple(left_out),
        tuple(source.check_schema(todo)),
        dict(surveys),
        foreign,
    )


def _launchable(
    spec: TableSpec, partitions: Sequence[Partition], source: Source[Rows], lake: Lake[Rows], left_out: list[LeftOut]
) -> tuple[list[Partition], Fence | None]:
    """Return the partitions that history owns and the source is complete for, and the fence; note the others."""
    fence = lake.fence()
    history, live = history_part(spec, sorted(partitions), fence)
    if live and fence:
        left_out.append(LeftOut(live, f"they are live: the fence is at {fence.at_utc.isoformat()}", published=False))
    wanted, beyond = complete_part(spec, history, source.complete_until())
    if beyond:
        why = f"the source is not complete for them yet; {_as_they_stay(beyond, lake)}"
        left_out.append(LeftOut(beyond, why, published=False))
    return wanted, fence


def _as_they_stay(partitions: Sequence[Partition], lake: Lake[Rows]) -> str:
    """Say what happens to partitions that the source is not complete for: it may have been, and have lost some."""
    published = lake.published()
    return "they stay as they are" if any(p.key in published for p in partitions) else "they stay missing"


def _statuses(
    wanted: Sequence[Partition], surveys: dict[str, Survey], lake: Lake[Rows], launch: Launch, *, is_streamed: bool
) -> list[PartitionStatus]:
    """Return the states of partitions, looking only as far as this launch asks."""
    is_selective = launch.only == "missing" or launch.is_reexecution
    if not is_selective and (not is_streamed or launch.allowed.discard_uncovered_rows):
        return []
    published = lake.published()
    known = Known(
        published=published,
        surveys=surveys if is_selective else None,
        late_rows=lake.late(wanted).rows if is_selective else None,
        rows_now=lake.rows_now(wanted),
        unreadable=lake.unreadable(wanted, reads=False),
        written_since=lake.written_by_others({p.key: published[p.key] for p in wanted if p.key in published}),
        differing=launch.differing,
        code_version=launch.run.code_version,
    )
    return status_of(wanted, known)


def _still_to_do(
    statuses: Sequence[PartitionStatus],
    wanted: Sequence[Partition],
    surveys: Mapping[str, Survey],
    launch: Launch,
    left_out: list[LeftOut],
) -> list[Partition]:
    """Return the partitions that are to be published; note those that are, and that the source need not have."""
    done = [status.partition for status in statuses if _is_done(status, launch)]
    if done:
        left_out.append(LeftOut(tuple(done), _WHY_DONE[launch.only], published=True))
    missing = [s.partition for s in statuses if launch.only == "missing" and s.state is State.MISSING]
    unexpected = [partition for partition in missing if not surveys[partition.key].is_expected]
    if unexpected:
        left_out.append(LeftOut(tuple(unexpected), _UNEXPECTED, published=False))
    not_now = {partition.key for partition in (*done, *unexpected)}
    return [partition for partition in wanted if partition.key not in not_now]


def _is_done(status: PartitionStatus, launch: Launch) -> bool:
    """Say whether a launch leaves a partition out because it is published already."""
    if status.state is not State.PUBLISHED or status.published is None:
        return False
    return launch.only == "missing" or (
        launch.is_reexecution and status.published.receipt.run.root_id == launch.run.root_id
    )
