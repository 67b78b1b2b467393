"""Once-flows in Dagster: one asset for each, which launches its range of the table's partitions once and stays as the record of it.

The asset has no partitions and no edge to the table. With an edge, every run of a flow would make the table's other
partitions look stale to Dagster (or the table's runs the flow), and a launch of the table with all that is downstream of
it would run years of history.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field
from rich.table import Table as Shown

from backfill_assets.assets import checks
from backfill_assets.runs import launch as launches
from backfill_assets.runs.recording import in_dagsters_words
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.history.publish import Launch
from backfill_assets.core.spec.once import FlowProgress, OnceFlow, progress_of, reset_receipt
from backfill_assets.core.state.receipts import Receipt
from backfill_assets.core.spec.table import Severity, TableSpec
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.assets.factory import Table
    from backfill_assets.lake.table import DeltaTable

ALL = "all"


class OnceConfig(dg.Config):
    """What can be set for one run of a once-flow, in the dialog's Config section or with `--config`."""

    again: bool = Field(default=False, description="Reset the flow first, so that it loads its whole range again.")
    max_partitions_per_chunk: int | None = Field(
        default=None, ge=1, le=2000, description="Partitions in one commit; the spec's `chunk.max_partitions` if not given."
    )
    discard_uncovered_rows: bool = Field(
        default=False,
        description="Whether rows may go that a live stream wrote and the source lacks. Otherwise their partition is refused.",
    )
    reason: str = Field(default="", description="Why this run; it is kept in every commit's receipt.")


def once_definitions(table: "Table", specs: Mapping[str, TableSpec]) -> dg.Definitions:
    """Return one asset for each once-flow of a table."""
    return dg.Definitions(assets=[_asset(table, specs, flow) for flow in table.spec.once_flows])


def _asset(table: "Table", specs: Mapping[str, TableSpec], flow: OnceFlow) -> dg.AssetsDefinition:
    spec = table.spec

    @dg.asset(
        key=dg.AssetKey(flow.key.split("/")),
        description=f"Loads `{spec.key}` from `{flow.partitions[0].key}` to `{flow.partitions[-1].key}`, both included, exactly once.\n\n"
        f"Another run writes nothing. `again: true` in the run's config resets this flow, "
        f"`backfill-assets once {spec.key} --reset all` every flow of the table. The rows are in `{spec.key}`, "
        "and so are the events and checks of its partitions.",
        group_name=spec.layer,
        kinds={"deltalake", "spark", "once"},
        owners=spec.owners,
        tags=spec.tags,
        metadata={"dagster/table_name": spec.key.replace("/", "."), "range": flow.range, "partitions": len(flow.partitions)},
    )
    def load_once(context: dg.AssetExecutionContext, config: OnceConfig, lakehouse: Lakehouse) -> dg.MaterializeResult[Any]:
        with in_dagsters_words(context):
            return _run(context, table, specs, lakehouse, config, flow)

    return load_once


def _run(
    context: dg.AssetExecutionContext,
    table: "Table",
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
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
        delta.create()
        before = progress_of(flow, delta.receipts.all())
        if config.again:
            before = _reset_by_run(context, delta, before, config.reason)
        if not before.left:
            log(f"{before.in_words()} It is done already: this run has written nothing. `again: true` in the run's config resets it.")
            return dg.MaterializeResult(metadata=_metadata(before, "already done"))
        if before.published:
            log(f"{before.in_words()} Going on with the {len(before.left):,} that are left.")
        request = Launch(
            run_id=run.run_id,
            root_run_id=run.root_run_id or run.run_id,
            discard_uncovered_rows=config.discard_uncovered_rows,
            max_partitions_per_chunk=config.max_partitions_per_chunk,
            reason=config.reason,
            code_version=table.code_version,
            flow=flow.name,
            log=log,
        )
        tell = launches.launch(context, table, specs, lakehouse, before.left, request)
        now = progress_of(flow, delta.receipts.all())
    _check(context, table, delta, now)
    if now.left:
        raise dg.Failure(
            f"{now.in_words()} {len(now.left):,} are left, the first `{now.left[0].key}`: "
            f"{'; '.join(out.why for out in tell.left_out) or 'they were put back'}. The next run goes on with these.",
            metadata=_metadata(now, now.state) | tell.metadata(),
            allow_retries=False,
        )
    commits = {"commits": dg.MetadataValue.int(len(tell.published))}
    return dg.MaterializeResult(metadata=_metadata(now, now.state) | commits | tell.metadata())


def _reset_by_run(context: dg.AssetExecutionContext, delta: "DeltaTable", progress: FlowProgress, reason: str) -> FlowProgress:
    """Reset a flow for a run that asks for it; once, though Dagster execute the run again."""
    from backfill_assets.lake.once_flows import record_reset

    run, flow = context.run, progress.flow
    root = run.root_run_id or run.run_id
    if not progress.published or (progress.reset and progress.reset.root_run_id == root):
        return progress
    receipt = reset_receipt(
        flow, delta.spec.key, version=delta.version(), run_id=run.run_id, root_run_id=root, reason=reason, now=datetime.now(UTC)
    )
    record_reset(delta, receipt)
    context.log.info(f"`{flow.name}` was reset: its {len(flow.partitions):,} partitions are loaded again.")
    return FlowProgress(flow, {}, receipt)


def _check(context: dg.AssetExecutionContext, table: "Table", delta: "DeltaTable", progress: FlowProgress) -> None:
    """Evaluate the table's checks for what the flow has published, as the check's own step does after an ordinary launch.

    Raises:
        dagster.Failure: The table differs from its receipts, and the spec says that this stops.
    """
    done = [partition for partition in progress.flow.partitions if partition.key in progress.published]
    failed = [comparison for comparison in checks.record_evaluations(context, table, delta, done) if comparison.failures]
    for comparison in failed[: checks.MAX_FAILURES_IN_LOG]:
        context.log.error(str(comparison))
    if failed and table.spec.checks.severity is Severity.ERROR:
        raise dg.Failure(
            f"`{progress.flow.name}`: {len(failed)} partitions of `{table.spec.key}` differ from what was published (first "
            f"`{failed[0].partition.key}`). Somebody else changed them. Look at the check `{checks.RECONCILED}`, and launch them again.",
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
        metadata["done_by"] = dg.MetadataValue.dagster_run(newest.receipt.run_id)
    return metadata


# -- backfill-assets once ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowsReport:
    """The once-flows of a table with what each did, and which were reset now."""

    key: str
    flows: Sequence[FlowProgress]
    reset: Sequence[str] = ()

    def to_json(self) -> str:
        """Return one JSON object."""
        return json.dumps({"table": self.key, "reset": list(self.reset), "flows": [_as_fields(flow) for flow in self.flows]}, indent=2)

    def to_table(self) -> Shown:
        """Return what a person reads."""
        shown = Shown(title=f"{self.key}: once-flows", title_justify="left")
        for name in ("flow", "range", "state", "partitions", "rows", "when", "run"):
            shown.add_column(name, justify="right" if name in ("partitions", "rows") else "left", overflow="fold")
        for progress in self.flows:
            fields = _as_fields(progress)
            state = f"{progress.state}, reset" if progress.flow.name in self.reset else progress.state
            done = f"{fields['published']:,} of {fields['partitions']:,}"
            shown.add_row(progress.flow.name, progress.flow.range, state, done, f"{progress.rows:,}", fields["at"], fields["run_id"])
        return shown


def _as_fields(progress: FlowProgress) -> dict[str, Any]:
    receipt = progress.newest.receipt if progress.newest else None
    return {
        "name": progress.flow.name,
        "asset": progress.flow.key,
        "range": progress.flow.range,
        "state": progress.state,
        "partitions": len(progress.flow.partitions),
        "published": len(progress.published),
        "rows": progress.rows,
        "at": receipt.made_at if receipt else None,
        "run_id": receipt.run_id if receipt else None,
        "reset_at": progress.reset.made_at if progress.reset else None,
    }


def look_at_flows(module: str, key: str, reset: str | None, *, log: Callable[[str], None]) -> FlowsReport:
    """Return the once-flows of a table with their state; reset one or all of them first if asked to.

    Args:
        module: Of the Dagster definitions.
        reset: Name of a flow, or `all`; None to reset nothing.

    Raises:
        ConfigurationError: There is no such module, table or flow, or the table has no once-flows.
        TableLockedError: A flow that is to be reset runs just now. It was not reset.
    """
    from backfill_assets.commands.reconciliation_report import load_definitions, table_of

    spec = table_of(load_definitions(module), key, module)[0].spec
    chosen = _chosen(spec, reset)
    delta = Lakehouse().table(spec, log)
    receipts = delta.receipts.all() if delta.exists() else dict[int, Receipt]()
    done = [flow.name for flow in chosen if progress_of(flow, receipts).published and _reset(delta, flow, log)]
    if done:
        receipts = delta.receipts.all()
        delta.receipts.fill()
    return FlowsReport(key, [progress_of(flow, receipts) for flow in spec.once_flows], done)


def _reset(delta: "DeltaTable", flow: OnceFlow, log: Callable[[str], None]) -> bool:
    from backfill_assets.lake.once_flows import flow_lock, record_reset

    with flow_lock(delta, flow.name):
        receipt = reset_receipt(
            flow, delta.spec.key, version=delta.version(), run_id="", root_run_id="", reason="backfill-assets once", now=datetime.now(UTC)
        )
        record_reset(delta, receipt)
    log(f"{flow.name} was reset.")
    return True


def _chosen(spec: TableSpec, reset: str | None) -> list[OnceFlow]:
    """Return the flows that a name means."""
    flows = spec.once_flows
    if not flows:
        raise ConfigurationError(
            f"`{spec.key}` has no once-flows.",
            state="Nothing was changed.",
            remedy="Add `once:` to its spec: the years, or other ranges, that are to be loaded exactly once.",
        )
    chosen = [flow for flow in flows if reset in (ALL, flow.name, flow.key)]
    if reset is not None and not chosen:
        raise ConfigurationError(
            f"`{spec.key}` has no once-flow `{reset}`.",
            state="Nothing was reset.",
            remedy=f"There are: {', '.join(flow.name for flow in flows)}; or `{ALL}` of them.",
        )
    return chosen
