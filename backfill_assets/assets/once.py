"""Once-flows in Dagster: one asset for each, which launches its range once and stays as the record of it.

The asset has no partitions and no edge to the table. With an edge, every run of a flow would make the table's other
partitions look stale to Dagster (or the table's runs the flow), and a launch of the table with all that is downstream
of it would run years of history.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from backfill_assets.core.history.once import FlowProgress, progress_of, reset_receipt
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.spec.checks import Severity
from backfill_assets.core.spec.once import OnceFlow
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import Run
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.runs import killed, unrecorded
from backfill_assets.runs.check_history import failed_comparisons
from backfill_assets.runs.evaluations import MAX_FAILURES_IN_LOG, RECONCILED
from backfill_assets.runs.launch import launch
from backfill_assets.runs.launch_config import PublishConfig
from backfill_assets.runs.launch_report import LaunchReport
from backfill_assets.runs.recorded_evaluations import record_evaluations
from backfill_assets.runs.recording import failures_for_dagster
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import LAUNCHES, launched_by, run_of
from backfill_assets.runs.table_run import TableRun

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table


class OnceConfig(PublishConfig):
    """What can be set for one run of a once-flow, in the dialog's Config section or with `--config`."""

    again: bool = Field(default=False, description="Reset the flow first, so that it loads its whole range again.")


def once_definitions(table: "Table", specs: Mapping[str, TableSpec]) -> dg.Definitions:
    """Return one asset for each once-flow of a table."""
    return dg.Definitions(assets=[_asset(table, specs, flow) for flow in table.spec.once_flows])


def _asset(table: "Table", specs: Mapping[str, TableSpec], flow: OnceFlow) -> dg.AssetsDefinition:
    spec = table.spec

    @dg.asset(
        key=dg.AssetKey.from_user_string(flow.key),
        description=f"Loads `{spec.key}` from `{flow.partitions[0].key}` to `{flow.partitions[-1].key}`, both "
        "included, exactly once.\n\n"
        f"Another run writes nothing. `again: true` in the run's config resets this flow, "
        f"`backfill-assets once {spec.key} --reset all` every flow of the table. The rows are in `{spec.key}`, "
        "and so are the events and checks of its partitions.",
        group_name=spec.layer,
        kinds={"once"},
        pool=LAUNCHES,
        owners=spec.owners,
        tags=spec.tags,
        metadata={
            "dagster/table_name": spec.key.replace("/", "."),
            "range": flow.range,
            "partitions": len(flow.partitions),
        },
    )
    def load_once(
        context: dg.AssetExecutionContext, config: OnceConfig, lakehouse: Lakehouse
    ) -> dg.MaterializeResult[Any]:
        killed.tag_with_process(context.instance, context.run.run_id, lakehouse.project)
        with failures_for_dagster(table.spec.key):
            return _run(context, table, specs, lakehouse, config=config, flow=flow)

    return load_once


def _run(
    context: dg.AssetExecutionContext,
    table: "Table",
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    *,
    config: OnceConfig,
    flow: OnceFlow,
) -> dg.MaterializeResult[Any]:
    """Launch what is left of a flow; nothing if it is done.

    Raises:
        dagster.Failure: The flow is not done: a partition was refused, or left out, or differs from its receipt.
    """
    from backfill_assets.lake.once_flows import flow_lock

    log, run = context.log.info, context.run
    delta = lakehouse.table(table.spec, log)
    with flow_lock(delta, flow.name):
        before = progress_of(flow, delta.history.receipts())
        if config.again:
            before = _reset_by_run(context, delta, before, config.reason)
        if not before.left:
            list(killed.report_dead(context.instance))  # else one that published the last of it would still be running
            unrecorded.record_unrecorded(context, table, delta, delta.history.in_log())
            log(
                f"{before.in_words()} It is done already: this run has written nothing. `again: true` in the run's "
                "config resets it."
            )
            return dg.MaterializeResult(metadata=_metadata(before, "already done"))
        if before.published:
            log(f"{before.in_words()} Continuing with the {len(before.left):,} that are left.")
        request = Launch(
            run_of(run, reason=config.reason, flow=flow.name, code_version=table.code_version),
            allowed=config.allowed_in(run),
            max_refused=config.max_refused,
            max_partitions_per_chunk=config.max_partitions_per_chunk,
        )
        of_table = TableRun(context, table, specs, lakehouse)
        report = launch(
            of_table,
            before.left,
            request,
            may_skip=True,  # what is left then fails the run below
            ignore_off_peak=config.ignore_off_peak,
        )
        now = progress_of(flow, delta.history.receipts())
    _check(context, table, delta, now, report)
    if now.left:
        raise dg.Failure(
            f"{now.in_words()} {len(now.left):,} are left, the first `{now.left[0].key}`: "
            f"{'; '.join(out.why for out in report.left_out) or 'they were restored'}. The next run continues with "
            "these.",
            metadata=_metadata(now, now.state) | report.metadata(),
            allow_retries=False,
        )
    commits = {"commits": dg.MetadataValue.int(len(report.published))}
    return dg.MaterializeResult(metadata=_metadata(now, now.state) | commits | report.metadata())


def _reset_by_run(
    context: dg.AssetExecutionContext, delta: "LakeTable", progress: FlowProgress, reason: str
) -> FlowProgress:
    """Reset a flow for a run that asks for it; once, though Dagster execute the run again."""
    from backfill_assets.lake.once_flows import record_reset

    run, flow = run_of(context.run, reason=reason), progress.flow
    if not progress.published or (progress.reset and progress.reset.run.root_id == run.root_id):
        return progress
    receipt = reset_receipt(flow, delta.spec.key, run, version=delta.version(), now=datetime.now(UTC))
    record_reset(delta, receipt)
    context.log.info(f"`{flow.name}` was reset: its {len(flow.partitions):,} partitions are loaded again.")
    return FlowProgress(flow, {}, receipt)


def _check(
    context: dg.AssetExecutionContext,
    table: "Table",
    delta: "LakeTable",
    progress: FlowProgress,
    report: LaunchReport,
) -> None:
    """Evaluate the table's checks for what the flow has published: no step of the run does it.

    What an earlier run of it has published may differ from its source by now, and still be as it was published.

    Raises:
        dagster.Failure: The table differs from its receipts, and the spec says that this stops.
    """
    done = [partition for partition in progress.flow.partitions if partition.key in progress.published]
    just_published = {partition.key for chunk in report.published for partition in chunk.partitions}
    differing = failed_comparisons(context.instance, table).keys() - just_published
    compared = record_evaluations(context, table, delta, done, differing=differing)
    failed = [comparison for comparison in compared if comparison.failures]
    for comparison in failed[:MAX_FAILURES_IN_LOG]:
        context.log.error(str(comparison))
    if failed and table.spec.checks.severity is Severity.ERROR:
        raise dg.Failure(
            f"`{progress.flow.name}`: {len(failed)} partitions of `{table.spec.key}` differ from what was published "
            "(first "
            f"`{failed[0].partition.key}`). Somebody else changed them. Look at the check `{RECONCILED}`, and "
            "launch them again.",
            allow_retries=False,
        )


def _metadata(progress: FlowProgress, state: str) -> dict[str, dg.MetadataValue[Any]]:
    """Return what a flow's asset shows of it."""
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "state": dg.MetadataValue.text(state),
        "dagster/row_count": dg.MetadataValue.int(progress.rows),
        "partitions": dg.MetadataValue.int(len(progress.published)),
        "range": dg.MetadataValue.text(progress.flow.range),
        "commits": dg.MetadataValue.int(0),
    }
    if newest := progress.newest:
        metadata["table_version"] = dg.MetadataValue.int(newest.version)
        metadata["done_at"] = dg.MetadataValue.text(newest.receipt.made_at)
        metadata["done_by"] = dg.MetadataValue.dagster_run(newest.receipt.run.id)
    return metadata


# -- backfill-assets once ----------------------------------------------------------------------------------------------


def reset_flows(delta: "LakeTable", flows: Sequence[OnceFlow], log: Callable[[str], None]) -> None:
    """Let flows run again, by a commit without rows for each: all of them, or none if one of them runs just now."""
    from backfill_assets.lake.once_flows import flow_lock, record_reset

    done: list[str] = []
    with ExitStack() as locked:
        for flow in flows:
            locked.enter_context(flow_lock(delta, flow.name))
        for flow in flows:
            run = Run(by=launched_by({}), reason="backfill-assets once")
            receipt = reset_receipt(flow, delta.spec.key, run, version=delta.version(), now=datetime.now(UTC))
            try:
                record_reset(delta, receipt)
            except BackfillAssetsError as error:
                state = f"Reset so far: {', '.join(done) or 'none'}; {flow.name} was not. No row was changed."
                raise error.with_state(state) from error
            done.append(flow.name)
            log(f"{flow.name} was reset.")
