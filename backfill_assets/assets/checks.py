"""Asset checks: whether each partition equals its source, one evaluation for each key, in ranged runs too.

Inside a launch the committed table is read back once and held against the receipts. Of a partition that the launch left
out, not knowing what its source has, that proves nothing if it passes: what was found before counts. A run of the check
alone, and `backfill-assets reconcile`, read source and table afresh.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.comparison import Comparison
from backfill_assets.core.spec.checks import Rule, Severity
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import outside_in_words
from backfill_assets.runs.comparisons import compare_with_receipts, complete_partitions, reconcile_table
from backfill_assets.runs.evaluations import (
    MAX_FAILURES_IN_LOG,
    RECONCILED,
    evaluations_of,
    left_out_evaluations,
    newest_materializations,
    outside_evaluation,
    whole_table_evaluations,
)
from backfill_assets.runs.killed import tag_with_process
from backfill_assets.runs.partitions import Definition, names_partitions, partitions_of
from backfill_assets.runs.recorded_evaluations import newest_event, show_hidden
from backfill_assets.runs.recording import failures_for_dagster, recording
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.seen import Seen
from backfill_assets.runs.stopping import result_in_thread
from backfill_assets.runs.table_runs import told_by_launch

if TYPE_CHECKING:
    from backfill_assets.runs.table import Table


def partition_checks(
    table: "Table", specs: Mapping[str, TableSpec], partitions: Definition
) -> dg.AssetChecksDefinition:
    """Return the checks of one table: `reconciled`, and the rules that the spec wants as checks of their own.

    Args:
        partitions: Dagster's partitions of the table.
    """
    spec = table.spec
    names = [RECONCILED, *(rule.value for rule in spec.checks.separate)]
    is_blocking = spec.checks.severity is Severity.ERROR

    @dg.multi_asset_check(
        name=f"{'_'.join(table.asset_key.path)}_checks",
        specs=[
            dg.AssetCheckSpec(
                name,
                asset=table.asset_key,
                description=_description(name),
                blocking=is_blocking,
                partitions_def=partitions,
            )
            for name in names
        ],
    )
    def reconcile_partitions(context: dg.AssetCheckExecutionContext, lakehouse: Lakehouse) -> Iterator[Any]:
        from backfill_assets.spark.failures import looked_at

        tag_with_process(context.instance, context.run.run_id, lakehouse.project)
        with failures_for_dagster(spec.key):
            since = newest_event(context.instance)
            look = partial(_compared, context, table, specs, lakehouse)
            compared, left_out, outside, targets = result_in_thread(
                lambda: looked_at(spec.key, look, context.log.info), lakehouse, context.log.warning
            )
            found = list(evaluations_of(table, compared, targets))
            evaluations = [*found, *left_out_evaluations(table, left_out)]
            if outside:
                context.log.error(outside)
                evaluations.append(outside_evaluation(table, outside))
            if not names_partitions(context):
                whole = whole_table_evaluations(table, compared)
                evaluations += whole[1:] if outside else whole
        _log_failures(context, compared)
        with recording(context.instance, context.run.run_id):
            yield from evaluations
        with failures_for_dagster(spec.key):
            show_hidden(context.instance, context.run.run_id, found, since=since)
        for output in context.op_execution_context.selected_output_names:
            yield dg.Output(None, output_name=output)

    return reconcile_partitions


def reconcile_job_name(key: str) -> str:
    """Return the name of the job that runs a table's checks alone."""
    return f"reconcile_{key.replace('/', '_')}"


def reconcile_job(table: "Table") -> Any:
    """Return the job that runs a table's checks alone: source and table are read afresh.

    `dagster job execute` runs it for a range with the tags `dagster/asset_partition_range_start` and `..._end`; without
    them, as `dg launch --job` and the UI's *Execute all* do, it compares everything that the source is complete for.
    """
    selection = dg.AssetSelection.checks_for_assets(table.asset_key)
    description = (
        f"Reads the source and the table of {table.spec.key} afresh and compares them, partition by partition."
    )
    return dg.define_asset_job(reconcile_job_name(table.spec.key), selection=selection, description=description)


def _compared(
    context: dg.AssetCheckExecutionContext, table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse
) -> tuple[list[Comparison], list[Partition], str, dict[str, Any]]:
    """Compare what a run names, or the whole table: with its receipts right after its launch, else afresh.

    Returns:
        The comparisons; what could not be compared; where both sides were read, which rows lie in no partition; and
        the materialization of each partition that was the newest before anything was read.
    """
    is_launch = table.asset_key in context.job_def.asset_layer.executable_asset_keys
    named = is_launch or names_partitions(context)
    wanted = partitions_of(context, table.spec, may_be_none=is_launch) if named else None
    if wanted == []:  # the launch names only periods before the table's start
        return [], [], "", {}
    delta = lakehouse.table(table.spec, context.log.info)
    if wanted is None:
        wanted = complete_partitions(table, specs, lakehouse, context.log.info)
    targets = newest_materializations(context.instance, table.asset_key, wanted)
    seen = lakehouse.seen(context.run.run_id, table.spec.key)
    not_looked_at = _left_out_by_launch(context, table, seen, wanted) if is_launch else None
    if not_looked_at is not None:
        compared, left_out = compare_with_receipts(wanted, delta, table.code_version, seen.rows)
        unknown = {c.partition for c in compared if c.passed and c.partition.key in not_looked_at}
        return [c for c in compared if c.partition not in unknown], [*left_out, *sorted(unknown)], "", targets
    compared, left_out = _afresh(wanted, table, specs, lakehouse, context)
    return compared, left_out, outside_in_words(table.spec.key, delta.rows_outside_grid()), targets


def _left_out_by_launch(
    context: dg.AssetCheckExecutionContext, table: "Table", seen: Seen, wanted: Sequence[Partition]
) -> Set[str] | None:
    """Return the keys of the partitions that the launch in this run left out; None if the run has no launch.

    One that had another process has told Dagster of every partition that it looked at.
    """
    if seen.is_launched:
        return seen.left_out
    told = told_by_launch(context.instance, context.run.run_id, table)
    return None if told is None else {partition.key for partition in wanted} - told


def _afresh(
    wanted: Sequence[Partition],
    table: "Table",
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    context: dg.AssetCheckExecutionContext,
) -> tuple[list[Comparison], list[Partition]]:
    """Read source and table; partitions for which the source is not complete cannot be compared."""
    compared = list(reconcile_table(table, specs, lakehouse, wanted, context.log.info))
    keys = {comparison.partition.key for comparison in compared}
    return compared, [p for p in wanted if p.key not in keys]


# -- evaluations -------------------------------------------------------------------------------------------------------


def _log_failures(context: dg.AssetCheckExecutionContext, compared: Sequence[Comparison]) -> None:
    failed = [comparison for comparison in compared if not comparison.passed]
    for comparison in failed[:MAX_FAILURES_IN_LOG]:
        context.log.error(str(comparison))
    if len(failed) > MAX_FAILURES_IN_LOG:
        context.log.error(f"and {len(failed) - MAX_FAILURES_IN_LOG} more partitions.")


def _description(name: str) -> str:
    return {
        RECONCILED: "Each partition of the table equals its source: same rows, unique keys, no strays, the spec's "
        "columns.",
        Rule.ROWS_MATCH_SOURCE: "The table has exactly the rows that its source has: count and checksum.",
        Rule.KEYS_ARE_UNIQUE: "No key comes twice in a partition, and none is missing.",
        Rule.ROWS_INSIDE_PARTITION: "Every row's event time lies in its partition.",
        Rule.SCHEMA_MATCHES: "The table has the columns and types of its spec.",
    }[name]
