"""One partition as a launch would make it: read and audited, a few of its rows taken, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import NO_EVIDENCE, Verdict
from backfill_assets.core.history.audited_chunk import Auditor, Chunk
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.plan import Launch, plan_launch
from backfill_assets.core.history.ports import Lake, Rows, Source
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.history.stopwatch import Stopwatch
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import EMPTY, Tally

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Preview(Generic[Sample]):
    """What a launch would make of one partition.

    Args:
        verdict: What its audit says.
        tally: Of the rows that would be published.
        source_rows: That the source says it has; None if it does not say.
        late_rows: Of the live stream that would be folded in.
        superseded_rows: That a newer row with the same key replaces.
        rows_now: That the table has of it; None if nobody can count them.
        is_identical: Whether the table has it already, row for row.
        sample: A few of its rows.
        remarks: What a person would want to know, a sentence each.
    """

    verdict: Verdict
    tally: Tally
    source_rows: int | None
    late_rows: int
    superseded_rows: int
    rows_now: int | None
    is_identical: bool
    sample: Sample
    remarks: tuple[str, ...]


def preview(
    spec: TableSpec,
    partition: Partition,
    source: Source[Rows],
    lake: Lake[Rows],
    launch: Launch,
    *,
    take: Callable[[StagedChunk[Rows]], Sample],
    effects: Effects,
) -> Preview[Sample]:
    """Read and audit one partition as its launch would. Writes nothing.

    Args:
        take: Returns a few of the staged rows, which are released afterwards.

    Raises:
        LivePartitionsError: It belongs to the live stream.
        SourceIncompleteError: The source is not complete for it.
        SchemaMismatchError: The source does not have the spec's columns.
        PublishError: It could not be read.
    """
    launch = replace(launch, published=lake.published())
    plan = plan_launch(spec, [partition], source, lake, launch)
    began = lake.version()
    chunk = Chunk((partition,), (1, 1), plan.surveys, plan.foreign, must_keep=True, began_at=began)
    auditor = Auditor(spec, source, lake, launch, effects)
    with auditor.audited(chunk, began, Stopwatch(effects.clock), writes=False) as audited:
        staged, key = audited.read.staged, partition.key
        verdict = next(one for one in audited.verdicts if one.partition == partition)  # others may come along
        return Preview(
            verdict,
            staged.tallies.get(key, EMPTY),
            audited.read.scan.evidence.get(key, NO_EVIDENCE).raw_rows,
            staged.late.rows.get(key, 0),
            staged.superseded_rows.get(key, 0),
            rows_now=lake.rows_now([partition]).get(key, 0),
            is_identical=key in audited.same.published,
            sample=take(staged),
            remarks=plan.remarks,
        )
