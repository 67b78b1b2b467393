"""One launch of one table: from Dagster's run to `core.materialize`, and its outcomes back to Dagster's events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.assets import checks
from backfill_assets.runs import killed as runs
from backfill_assets.assets.event_log import recording
from backfill_assets.runs.recording import human_bytes, in_dagsters_words, materialization, partition_metadata
from backfill_assets.runs.partitions import partitions_of
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.stopping import made_apart
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.publish import Launch, LeftOut, Outcome, Published, Refused, materialize
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.state.receipts import PublishedPartition, newest_by_partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import BackfillAssetsError, LivePartitionsError, SourceIncompleteError

if TYPE_CHECKING:
    from backfill_assets.assets.factory import LaunchConfig, Table
    from backfill_assets.lake.table import DeltaTable

NO_AUTOMATIC_EVENT = {"__source_asset_observation__": True}
"""Metadata of an output for which Dagster adds no events of its own.

Dagster would add one for each partition that the run names, also for those that this launch left out because their
source is not complete, and a second one for each that is recorded already. Every event is therefore logged here, as soon
as its chunk is published. `tests/assets/test_launches.py` fails when a Dagster release stops honouring this key.
"""

MAX_ROWS_IN_MARKDOWN = 40


@dataclass(slots=True)
class Tell:
    """What a launch did so far.

    Args:
        before: The newest publish of each partition when the launch began, as far as the recent log tells.
    """

    wanted: Sequence[Partition]
    before: Mapping[str, PublishedPartition] = field(default_factory=dict[str, PublishedPartition])
    started: float = field(default_factory=time.monotonic)
    published: list[Published] = field(default_factory=list[Published])
    refused: list[Verdict] = field(default_factory=list[Verdict])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])

    @property
    def rows(self) -> int:
        return sum(sum(chunk.commit.rows.values()) for chunk in self.published)

    @property
    def unchanged(self) -> int:
        """Partitions that were published with the content that they had."""
        pairs = [(self.before.get(key), part) for chunk in self.published for key, part in chunk.receipt.partitions.items()]
        return sum(was is not None and (was.partition.rows, was.partition.checksum) == (part.rows, part.checksum) for was, part in pairs)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def metadata(self) -> dict[str, dg.MetadataValue[Any]]:
        """Return the launch as Dagster shows it."""
        return {"launch": dg.MetadataValue.md(self.summary())}

    def summary(self) -> str:
        """Return the launch in Markdown."""
        partitions = sum(len(chunk.partitions) for chunk in self.published)
        size = sum(sum(chunk.commit.size_bytes.values()) for chunk in self.published)
        lines = [
            "| published | of these unchanged | rows | stored | commits | refused | left out | seconds | rows per second |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            f"| {partitions:,} | {self.unchanged:,} | {self.rows:,} | {human_bytes(size)} | {len(self.published)} | {len(self.refused)} "
            f"| {sum(len(o.partitions) for o in self.left_out):,} | {self.seconds:.1f} | {self.rows / max(self.seconds, 0.1):,.0f} |",
        ]
        for left_out in self.left_out:
            first, last = left_out.partitions[0].key, left_out.partitions[-1].key
            lines += ["", f"**Left out:** {len(left_out.partitions):,} from `{first}` to `{last}`: {left_out.why}."]
        if self.refused:
            lines += ["", "| refused | why |", "|---|---|"]
            lines += [
                f"| {verdict.partition.key} | {'<br>'.join(str(finding) for finding in verdict.findings)} |"
                for verdict in self.refused[:MAX_ROWS_IN_MARKDOWN]
            ]
            if len(self.refused) > MAX_ROWS_IN_MARKDOWN:
                lines.append(f"| and {len(self.refused) - MAX_ROWS_IN_MARKDOWN} more | see the run's log |")
        return "\n".join(lines)


def run(
    context: dg.AssetExecutionContext, table: Table, specs: Mapping[str, TableSpec], lakehouse: Lakehouse, config: LaunchConfig
) -> dg.MaterializeResult[Any]:
    """Overwrite the partitions that a run names; record each chunk as soon as it is published.

    Raises:
        dagster.Failure: A partition was refused, or the launch could not go on; what was published before is recorded.
    """
    with in_dagsters_words(context):
        request = Launch(
            run_id=context.run.run_id,
            root_run_id=context.run.root_run_id or context.run.run_id,
            only="missing" if config.only.value == "missing" else "all",
            discard_uncovered_rows=config.discard_uncovered_rows,
            is_reexecution=context.run.parent_run_id is not None,
            max_partitions_per_chunk=config.max_partitions_per_chunk,
            reason=config.reason,
            code_version=table.code_version,
            log=context.log.info,
        )
        tell = launch(
            context, table, specs, lakehouse, partitions_of(context, table.spec), request, may_find_nothing=config.may_find_nothing
        )
        return dg.MaterializeResult(metadata={**NO_AUTOMATIC_EVENT, **tell.metadata()})


def launch(
    context: dg.AssetExecutionContext,
    table: Table,
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    wanted: Sequence[Partition],
    request: Launch,
    *,
    may_find_nothing: bool = False,
) -> Tell:
    """Overwrite partitions, record each chunk as soon as it is published, and return what became of them.

    Args:
        may_find_nothing: Whether it is no error if the source is complete for none of them, or all are live.

    Raises:
        BackfillAssetsError: The launch could not go on; what was published before is recorded.
        dagster.Failure: A partition was refused.
    """
    log, spec = context.log.info, table.spec
    runs.sign(context.instance, context.run.run_id)
    for dead in runs.report_dead(context.instance):
        context.log.warning(f"Run {dead} was killed on this machine; it is marked as failed, and its pool slots are free again.")
    from backfill_assets.lake.locks import writers_wait

    delta = lakehouse.table(spec, log)
    delta.create()
    recent = delta.receipts.in_log(newest=runs.RECENT_COMMITS)
    runs.record_unrecorded(context, table, recent)
    source = lakehouse.source(spec, specs, table.transform() if table.transform else None, log)
    if spec.live and writers_wait(delta.path):
        request = replace(request, max_publish_seconds=spec.live.max_publish_seconds)
    tell = Tell(wanted, newest_by_partition(recent))
    with _receipts_filled(context, delta), _stoppable(context, table, delta):
        outcomes = materialize(spec, wanted, source, delta, request)
        outcomes = _or_nothing(outcomes, tell) if may_find_nothing else outcomes
        for outcome in made_apart(outcomes, lakehouse, context.log.warning):
            match outcome:
                case Published():
                    tell.published.append(outcome)
                    record_published(context, table, outcome)
                    log(progress(tell, outcome))
                case Refused(verdict):
                    tell.refused.append(verdict)
                    context.log.error(f"Refused {verdict}")
                case LeftOut():
                    tell.left_out.append(outcome)
                    _record_left_out(context, table, delta, outcome)
    if tell.published:
        written = sum(len(chunk.partitions) for chunk in tell.published)
        log(f"Published {written:,} partitions; {tell.unchanged:,} of them have the content that they had before.")
    context.log_event(dg.AssetObservation(table.asset_key, metadata={**tell.metadata(), "dagster/uri": dg.MetadataValue.url(delta.path)}))
    if tell.refused:
        done = [partition for chunk in tell.published for partition in chunk.partitions]
        checks.record_evaluations(context, table, delta, done, tell.refused)
        raise dg.Failure(
            f"`{spec.key}`: {len(tell.refused)} of {len(wanted)} partitions were refused "
            f"({', '.join(v.partition.key for v in tell.refused[:5])}{', ...' if len(tell.refused) > 5 else ''}); the table keeps "
            f"what it had there. {sum(len(c.partitions) for c in tell.published)} were published. First: {tell.refused[0]}",
            metadata=tell.metadata(),
            allow_retries=False,
        )
    return tell


def _or_nothing(outcomes: Iterator[Outcome], tell: Tell) -> Iterator[Outcome]:
    """Leave the rest out instead of failing where a launch finds nothing that it could write."""
    try:
        yield from outcomes
    except (SourceIncompleteError, LivePartitionsError) as error:
        known = {partition for left_out in tell.left_out for partition in left_out.partitions}
        yield LeftOut(tuple(p for p in tell.wanted if p not in known), f"{error.what.rstrip('.')}; they stay missing", published=False)


# -- events ------------------------------------------------------------------------------------------------------------


def record_published(context: dg.AssetExecutionContext, table: Table, chunk: Published) -> None:
    """Log one materialization for each partition of a published chunk."""
    seconds = sum(chunk.seconds.values()) / len(chunk.partitions)
    with recording(context.instance, context.run.run_id):
        for partition in chunk.partitions:
            receipt = PublishedPartition(chunk.commit.version, chunk.receipt, chunk.receipt.partitions[partition.key])
            metadata = partition_metadata(receipt, size_bytes=chunk.commit.size_bytes.get(partition.key, 0), seconds=seconds)
            context.log_event(materialization(table, partition.key, receipt, metadata, context.run.tags))


def _record_left_out(context: dg.AssetExecutionContext, table: Table, delta: DeltaTable, outcome: LeftOut) -> None:
    """Say which partitions were left out; those that are published already are recorded with the receipt they have."""
    first, last = outcome.partitions[0].key, outcome.partitions[-1].key
    context.log.info(f"Left out {len(outcome.partitions)} partitions from {first} to {last}: {outcome.why}.")
    if not outcome.published:
        return
    published = delta.published()
    with recording(context.instance, context.run.run_id):
        for partition in outcome.partitions:
            receipt = published[partition.key]
            metadata = partition_metadata(receipt) | {"left_out": dg.MetadataValue.text(outcome.why)}
            context.log_event(materialization(table, partition.key, receipt, metadata, context.run.tags))


def progress(tell: Tell, chunk: Published) -> str:
    """Return the line of the log that says how far a launch is."""
    done = sum(len(c.partitions) for c in tell.published) + len(tell.refused)
    total = len(tell.wanted) - sum(len(o.partitions) for o in tell.left_out)
    left = tell.seconds / max(done, 1) * max(total - done, 0)
    steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in chunk.seconds.items())
    return (
        f"Chunk {chunk.chunk} of {chunk.chunks} is version {chunk.commit.version}: "
        f"{chunk.partitions[0].key} to {chunk.partitions[-1].key}, "
        f"{len(chunk.partitions)} partitions, {sum(chunk.commit.rows.values()):,} rows; {done:,} of {total:,} partitions done, "
        f"{tell.rows / max(tell.seconds, 0.1):,.0f} rows per second, about {left:.0f} s left (seconds by step: {steps})"
    )


# -- around a launch ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stoppable(context: dg.AssetExecutionContext, table: Table, delta: DeltaTable) -> Iterator[None]:
    """When the run is stopped, say what became of the chunk in flight: published and recorded, or absent."""
    try:
        yield
    except dg.DagsterExecutionInterruptedError:
        recorded = runs.record_unrecorded(context, table, delta.receipts.in_log(newest=runs.RECENT_COMMITS), of_this_run=True)
        in_flight = (
            f"the one in flight was published, and its {recorded} partitions are recorded"
            if recorded
            else "the one in flight is not in the table"
        )
        context.log.warning(f"Stopped. Chunks that are recorded above are published; {in_flight}. `only: MISSING` goes on from here.")
        raise


@contextlib.contextmanager
def _receipts_filled(context: dg.AssetExecutionContext, delta: DeltaTable) -> Iterator[None]:
    """Fill the copy of the receipts when a launch ends, however it ends.

    It is a copy: if it cannot be filled now the launch is still good, and the next one fills it.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    finally:
        try:
            delta.receipts.fill()
        except (PySparkException, BackfillAssetsError) as error:
            context.log.warning(f"The copy of the receipts could not be filled; the next launch does it. {error}")
