"""One launch of one table: from Dagster's run to a plan that is carried out, and from its outcomes to events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._utils.interrupts import capture_interrupts

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.causes import causes_in_words, causes_of_refusal
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.guards import guards_in
from backfill_assets.core.history.outcomes import Identical, NextChunk, Outcome, Published, Refused
from backfill_assets.core.history.plan import Launch, LeftOut
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import outside_in_words
from backfill_assets.core.state.receipts import newest_by_partition
from backfill_assets.core.words import count_in_words, range_in_words
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.runs import killed, recording, unrecorded
from backfill_assets.runs.attempts import NOT_FILLED, attempts_of
from backfill_assets.runs.check_history import failed_comparisons
from backfill_assets.runs.evaluations import OUTSIDE, newest_ids
from backfill_assets.runs.launch_config import LaunchConfig, Only
from backfill_assets.runs.launch_report import REFUSED, LaunchReport, progress
from backfill_assets.runs.pacing import Pacing
from backfill_assets.runs.partitions import before_start, launches_more, partitions_of
from backfill_assets.runs.recorded_evaluations import record_evaluations
from backfill_assets.runs.recording import (
    failures_for_dagster,
    record_before_start,
    record_found,
    record_left_out,
    record_published,
)
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import REASON, run_of, tag_for_people, tag_with_progress
from backfill_assets.runs.stop import SAYS_STOPPED
from backfill_assets.runs.stopping import STILL_WORKS, iterate_in_thread
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_run import TableRun

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table

NO_AUTOMATIC_EVENT = {"__source_asset_observation__": True}
"""Metadata of an output for which Dagster adds no events of its own.

Dagster would add one for each partition that the run names, also for those that this launch left out because their
source is not complete, and a second one for each that is recorded already. Every event is therefore logged here, as
soon as its chunk is published. `tests/runs/test_launch.py` fails when a Dagster release stops honouring this key.
"""


NOT_WRITTEN = "are in the table as they would be written, row for row; they were not written again"


def run(
    context: dg.AssetExecutionContext,
    table: Table,
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    config: LaunchConfig,
) -> dg.MaterializeResult[Any]:
    """Overwrite the partitions that a run names; record each chunk as soon as it is published.

    Raises:
        dagster.Failure: A partition was refused, or the launch could not go on; what was published before is recorded.
    """
    with failures_for_dagster(table.spec.key):
        wanted = partitions_of(context, table.spec, may_be_none=launches_more(context))
        record_before_start(context, table, before_start(context, table.spec))
        if not wanted:
            return dg.MaterializeResult(metadata=NO_AUTOMATIC_EVENT)
        may_skip = config.may_skip(context.run)
        request = Launch(
            run_of(context.run, reason=config.reason, plan=config.plan, code_version=table.code_version),
            only="missing" if config.only is Only.MISSING else "all",
            allowed=config.allowed_in(context.run),
            may_find_nothing=may_skip,
            is_reexecution=context.run.parent_run_id is not None,
            rewrite_identical=config.rewrite_identical,
            max_partitions_per_chunk=config.max_partitions_per_chunk,
            max_refused=config.max_refused,
            planned_state=config.planned_state,
            guards=guards_in(table.spec, {"keep_keys": config.keep_keys, "only_keys": config.only_keys}),
        )
        of_table = TableRun(context, table, specs, lakehouse)
        report = launch(of_table, wanted, request, may_skip=may_skip, ignore_off_peak=config.ignore_off_peak)
        return dg.MaterializeResult(metadata={**NO_AUTOMATIC_EVENT, **report.metadata()})


def launch(
    run: TableRun, wanted: Sequence[Partition], request: Launch, *, may_skip: bool, ignore_off_peak: bool = False
) -> LaunchReport:
    """Overwrite partitions, record each chunk as soon as it is published, and return what became of them.

    Args:
        may_skip: Whether the launch succeeds without some of the partitions: those that are live, or for which the
            source is not complete.
        ignore_off_peak: Whether chunks begin at any hour, whatever the table's spec says.

    Raises:
        BackfillAssetsError: The launch could not go on; what was published before is recorded.
        dagster.Failure: A partition was refused, or skipped, or newer code has published one since.
    """
    from backfill_assets.lake.current_table import refuse_retired
    from backfill_assets.spark.failures import looked_at

    context, table, spec = run.context, run.table, run.spec
    killed.tag_with_process(context.instance, context.run.run_id, run.lakehouse.project)
    reason = {REASON: request.run.reason} if request.run.reason else {}
    tag_for_people(context.instance, context.run.run_id, wanted, reason)
    for dead in killed.report_dead(context.instance):
        context.log.warning(
            f"Run {dead} was killed on this machine; it is marked as failed, and its pool slots are free again."
        )
    run.lakehouse.seen(context.run.run_id, spec.key).is_launched = True
    refuse_retired(run.lakehouse.current_table(), spec.key)
    delta = run.lake_table()
    recent = looked_at(spec.key, lambda: delta.history.in_log(newest=unrecorded.RECENT_COMMITS), run.log)
    unrecorded.record_unrecorded(context, table, delta, recent)
    before = newest_ids(context.instance, table.asset_key)
    if request.only == "missing" or request.is_reexecution:
        request = replace(request, differing=frozenset(failed_comparisons(context.instance, table)))
    published = newest_by_partition(recent)
    if any(p.key not in published for p in wanted) and not delta.table_log.is_whole(unrecorded.RECENT_COMMITS):
        # a stream has come in between, or Delta has cleaned its log
        published = looked_at(spec.key, delta.published, run.log)
    request = replace(request, published=published)
    report = LaunchReport(wanted)

    def say(sentence: str, now: str) -> None:
        """Tell what the launch does now, in its log and in the list of runs."""
        context.log.info(sentence)
        tag_with_progress(context.instance, context.run.run_id, spec.key, report, now=now)

    pacing = _pacing(spec, say, report, ignore_off_peak=ignore_off_peak)
    request = replace(request, announces_chunks=pacing.is_needed)
    tag_with_progress(context.instance, context.run.run_id, spec.key, report)
    with _noted(context, delta, request, report), _stoppable(context, table, delta):
        effects = Effects(log=run.log, at_step=lambda now: say(f"{now.capitalize()}.", now))
        outcomes = materialize(spec, wanted, run.source(), delta, request, effects=effects)
        for outcome in iterate_in_thread(outcomes, run.lakehouse, context.log.warning):
            if isinstance(outcome, NextChunk):
                pacing.wait(outcome)
            _take(outcome, report, run, delta)
            tag_with_progress(context.instance, context.run.run_id, spec.key, report)
    rows_outside = looked_at(spec.key, delta.rows_outside_grid, run.log)
    if outside := outside_in_words(spec.key, rows_outside):
        context.log.warning(outside)
    if report.published:
        written = sum(len(chunk.partitions) for chunk in report.published)
        had = count_in_words(report.rows_before)
        run.log(f"Published {written:,} partitions; they had {had} rows before, and have {report.rows:,} now.")
    seen = {**report.metadata(), "dagster/uri": dg.MetadataValue.url(delta.path)}
    seen |= {OUTSIDE: dg.MetadataValue.text(outside)} if outside else {}
    context.log_event(dg.AssetObservation(table.asset_key, metadata=seen))
    if report.refused or report.not_replaced or (report.not_looked_at and not may_skip):
        _judge(context, table, delta, report, before)
        raise _refusal(spec, report)
    return report


def _pacing(spec: TableSpec, say: Callable[[str, str], None], report: LaunchReport, *, ignore_off_peak: bool) -> Pacing:
    """Return what waits before each chunk, and says so."""
    pace = spec.pace.model_copy(update={"off_peak": None}) if ignore_off_peak else spec.pace
    return Pacing(pace, spec.time_zone, say, waited_seconds=report.waited_seconds)


def _take(outcome: Outcome, report: LaunchReport, run: TableRun, delta: LakeTable) -> None:
    """Note one outcome, and record it in Dagster."""
    if isinstance(outcome, Published | Identical | Refused):
        report.stages += outcome.stages
    seen = run.lakehouse.seen(run.context.run.run_id, run.spec.key)
    match outcome:
        case Published():
            report.published.append(outcome)
            seen.rows |= {key: (outcome.commit.version, tally) for key, tally in outcome.tallies.items()}
            record_published(run.context, run.table, outcome)
            run.log(progress(report, outcome))
        case Identical():
            report.identical += outcome.partitions
            seen.rows |= {key: (outcome.version, tally) for key, tally in outcome.tallies.items()}
            record_found(run.context, run.table, outcome.published, outcome.partitions, identical=NOT_WRITTEN)
            run.log(f"Identical: {len(outcome.partitions):,} partitions {NOT_WRITTEN}.")
        case Refused(verdict=verdict):
            report.refused.append(verdict)
        case LeftOut():
            report.left_out.append(outcome)
            seen.left_out |= set() if outcome.published else {partition.key for partition in outcome.partitions}
            record_left_out(run.context, run.table, delta, outcome)
        case NextChunk():
            pass  # it begins when the next outcome is asked for


def _refusal(spec: TableSpec, report: LaunchReport) -> dg.Failure:
    """Return what a run fails with of which partitions were refused, skipped, or published by newer code."""
    if not report.refused and not report.not_replaced:
        return dg.Failure(
            f"`{spec.key}`: {len(report.not_looked_at)} of {len(report.wanted)} partitions were skipped: "
            f"{'; '.join(report.skipped)}. "
            "The table has the other partitions as their source has them. "
            "Launch a range without the skipped partitions, and launch these when the reason is gone.",
            metadata=report.metadata(),
            allow_retries=False,
        )
    if not report.refused:
        first, count = report.not_replaced[0], len(report.not_replaced)
        return dg.Failure(
            f"`{spec.key}`: newer code has published {count} of {len(report.wanted)} partitions (first `{first.key}`) "
            "since this launch began. The table keeps what that code made of them; the others are as this "
            "code makes them. Launch them again if this code is the newer one.",
            metadata=report.metadata(),
            allow_retries=False,
        )
    identical = f", and {len(report.identical)} are in the table already" if report.identical else ""
    keys = sorted(verdict.partition.key for verdict in report.refused)
    causes = causes_of_refusal(report.refused)
    told = [{"why": cause.what, "partitions": [*cause.keys]} for cause in causes]
    return dg.Failure(
        f"`{spec.key}`: {len(keys):,} of {len(report.wanted):,} partitions were refused "
        f"({range_in_words(keys[0], keys[-1])}); the table keeps what it had there. "
        f"{sum(len(chunk.partitions) for chunk in report.published):,} were published{identical}. "
        f"{causes_in_words(causes)}",
        metadata={**report.metadata(), REFUSED: dg.MetadataValue.json(told)},
        allow_retries=False,
    )


# -- around a launch ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stoppable(context: dg.AssetExecutionContext, table: Table, delta: LakeTable) -> Iterator[None]:
    """When the run is stopped, say what became of the chunk in flight: published and recorded, or absent."""
    try:
        yield
    except dg.DagsterExecutionInterruptedError as error:
        with capture_interrupts():
            receipts = delta.history.in_log(newest=unrecorded.RECENT_COMMITS)
            recorded = unrecorded.record_unrecorded(context, table, delta, receipts, of_this_run=True)
        in_flight = "the one in flight is not in the table"
        if recorded:
            in_flight = f"the one in flight was published, and its {recorded} partitions are recorded"
        elif STILL_WORKS in getattr(error, "__notes__", ()):
            in_flight = "the one in flight may still be published, and the next launch records it then"
        context.log.warning(
            f"{SAYS_STOPPED}Chunks that are recorded above are published; {in_flight}. `only: MISSING` continues from "
            "here."
        )
        raise


def _judge(
    context: dg.AssetExecutionContext, table: Table, delta: LakeTable, report: LaunchReport, before: Mapping[str, int]
) -> None:
    """Record what the check's own step would say, which does not run after a launch that fails.

    What was refused comes first: no file that cannot be read back may hide it, least of all one of a partition that the
    launch left alone.
    """
    from backfill_assets.spark.failures import SPARK_FAILURES, first_words

    record_evaluations(context, table, delta, [], report.refused, before=before, left_out=report.not_looked_at)
    record_evaluations(context, table, delta, report.done)
    try:
        record_evaluations(context, table, delta, report.up_to_date)
    except (*SPARK_FAILURES, BackfillAssetsError) as error:
        context.log.warning(f"What was up to date before could not be read back. {first_words(error)}")


@contextlib.contextmanager
def _noted(
    context: dg.AssetExecutionContext, delta: LakeTable, request: Launch, report: LaunchReport
) -> Iterator[None]:
    """When a launch ends, however it ends, say why partitions were refused, note them, and fill the history.

    If that cannot be done now, because Spark is gone too, the launch is what it was without it, and the next one fills
    the history.
    """
    from backfill_assets.spark.failures import SPARK_FAILURES, first_words

    delta.history.fill_if_due(datetime.now(UTC), context.log.warning)  # before the log is cleaned by what comes now
    ended_by: BaseException | None = None
    try:
        yield
    except BaseException as error:
        ended_by = error
        raise
    finally:
        for cause in causes_of_refusal(report.refused):
            context.log.error(f"Refused {cause}")
        # what Dagster's database did not take is looked for in the log, of whatever the history lacks
        told = not (ended_by and recording.error_of_history(ended_by))
        try:
            if (version := delta.version()) >= 0:  # a launch that had nothing to publish makes no table
                delta.history.fill([*attempts_of(request, report, ended_by, version)], commits=told)
        except (*SPARK_FAILURES, BackfillAssetsError, OSError) as error:
            context.log.warning(f"{NOT_FILLED} {first_words(error)}")
        if ended_by and not recording.error_of_history(ended_by):  # the run may go on with another table
            tag_with_progress(context.instance, context.run.run_id, delta.spec.key, report)
