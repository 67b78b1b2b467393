"""Asset checks: whether each partition equals its source, one evaluation for each key, in ranged runs too.

Inside a launch the committed table is read back once and held against the receipts. A run of the check alone, and
`backfill-assets reconcile`, read source and table afresh.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.assets.event_log import recording
from backfill_assets.runs.recording import in_dagsters_words
from backfill_assets.runs.partitions import names_partitions, partitions_definition, partitions_of
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.stopping import result_apart
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.history.reconcile import Comparison, RuleVerdict, compare, reconcile
from backfill_assets.core.spec.table import Rule, Severity, TableSpec
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.errors import SourceIncompleteError

if TYPE_CHECKING:
    from backfill_assets.assets.factory import Table
    from backfill_assets.lake.table import DeltaTable

RECONCILED = "reconciled"
MAX_FAILURES_IN_LOG = 20


def partition_checks(table: "Table", specs: Mapping[str, TableSpec]) -> dg.AssetChecksDefinition:
    """Return the checks of one table: `reconciled`, and the rules that the spec wants as checks of their own."""
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
                partitions_def=partitions_definition(spec),
            )
            for name in names
        ],
    )
    def reconcile_partitions(context: dg.AssetCheckExecutionContext, lakehouse: Lakehouse) -> Iterator[Any]:
        with in_dagsters_words(context):
            compared, left_out = result_apart(lambda: _compared(context, table, specs, lakehouse), lakehouse, context.log.warning)
            evaluations = [*evaluations_of(table, compared), *_left_out_evaluations(table, left_out)]
            if not names_partitions(context):
                evaluations += whole_table_evaluations(table, compared)
        _log_failures(context, compared)
        with recording(context.instance, context.run.run_id):
            yield from evaluations
        for output in context.op_execution_context.selected_output_names:
            yield dg.Output(None, output_name=output)

    return reconcile_partitions


def reconcile_job_name(key: str) -> str:
    """Return the name of the job that runs a table's checks alone."""
    return f"reconcile_{key.replace('/', '_')}"


def reconcile_job(table: "Table") -> Any:
    """Return the job that runs a table's checks alone: source and table are read afresh.

    `dagster job execute` runs it for a range with the tags `dagster/asset_partition_range_start` and `..._end`; without them,
    as `dg launch --job` and the UI's *Execute all* do, it compares everything that the source is complete for.
    """
    selection = dg.AssetSelection.checks_for_assets(table.asset_key)
    description = f"Reads the source and the table of {table.spec.key} afresh and compares them, partition by partition."
    return dg.define_asset_job(reconcile_job_name(table.spec.key), selection=selection, description=description)


def _compared(
    context: dg.AssetCheckExecutionContext, table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse
) -> tuple[list[Comparison], list[Partition]]:
    """Compare what a run names: with its receipts right after a launch, else afresh; the whole table if it names nothing."""
    if table.asset_key in context.job_def.asset_layer.executable_asset_keys:
        return _against_receipts(partitions_of(context, table.spec), table, specs, lakehouse, context)
    wanted = (
        partitions_of(context, table.spec) if names_partitions(context) else complete_partitions(table, specs, lakehouse, context.log.info)
    )
    return _afresh(wanted, table, specs, lakehouse, context)


def _against_receipts(
    wanted: Sequence[Partition],
    table: "Table",
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    context: dg.AssetCheckExecutionContext,
) -> tuple[list[Comparison], list[Partition]]:
    """Read the table back once and hold it against what was published; partitions without a receipt were left out."""
    delta = lakehouse.table(table.spec, context.log.info)
    published = delta.published()
    present = [p for p in wanted if p.key in published]
    return compare_with_receipts(present, published, delta), [p for p in wanted if p.key not in published]


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


def reconcile_table(
    table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse, wanted: Sequence[Partition], log: Any
) -> Iterator[Comparison]:
    """Read source and table afresh and compare them, partition by partition.

    Raises:
        SourceIncompleteError: The source is complete for none of them.
        SameTableError: The source is the table itself.
    """
    delta = lakehouse.table(table.spec, log)
    delta.create()
    source = lakehouse.source(table.spec, specs, table.transform() if table.transform else None, log)
    yield from reconcile(table.spec, wanted, source, delta, code_version=table.code_version, log=log)


def complete_partitions(table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse, log: Any) -> list[Partition]:
    """Return all partitions that can be compared: history for which the source is complete.

    Raises:
        SourceIncompleteError: There are none.
    """
    until = lakehouse.source(table.spec, specs, None, log).complete_until()
    delta = lakehouse.table(table.spec, log)
    delta.create()
    fence = delta.fence()
    ends = [instant for instant in (until, fence.at_utc if fence else None) if instant is not None]
    complete = [] if until is None else [p for p in table.spec.grid.until(min(ends)) if p.window.end_utc <= min(ends)]
    if not complete:
        raise SourceIncompleteError(
            f"`{table.spec.key}`: its source has nothing yet.",
            state="Nothing was compared.",
            remedy="Run it again when the source has a whole partition.",
        )
    return complete


def compare_with_receipts(
    wanted: Sequence[Partition], published: Mapping[str, PublishedPartition], delta: "DeltaTable"
) -> list[Comparison]:
    """Read partitions of the table back and hold them against their receipts."""
    if not wanted:
        return []
    tallies = delta.tally(wanted)
    schema_problems = delta.schema_problems()
    return [
        compare(
            partition,
            table=tallies.get(partition.key, EMPTY),
            source=published[partition.key].partition if partition.key in published else None,
            schema_problems=schema_problems,
        )
        for partition in wanted
    ]


# -- evaluations -------------------------------------------------------------------------------------------------------


def evaluations_of(table: "Table", compared: Iterable[Comparison]) -> Iterator[dg.AssetCheckEvaluation]:
    """Return the evaluations of every check for every partition that was compared."""
    for comparison in compared:
        yield _evaluation(table, RECONCILED, comparison.partition, comparison.passed, _metadata(comparison), _why(comparison.failures))
        for rule in table.spec.checks.separate:
            (verdict,) = [v for v in comparison.verdicts if v.rule == rule]
            yield _evaluation(table, rule.value, comparison.partition, verdict.passed, {}, _why([] if verdict.passed else [verdict]))


def whole_table_evaluations(table: "Table", compared: Sequence[Comparison]) -> list[dg.AssetCheckEvaluation]:
    """Return one more evaluation of every check, of no partition: Dagster plans it in a run that names none."""
    by_check = {RECONCILED: [c for c in compared if not c.passed]}
    by_check |= {r.value: [c for c in compared if any(v.rule == r for v in c.failures)] for r in table.spec.checks.separate}
    return [_whole_table_evaluation(table, name, len(compared), failed) for name, failed in by_check.items()]


def _whole_table_evaluation(table: "Table", name: str, count: int, failed: Sequence[Comparison]) -> dg.AssetCheckEvaluation:
    why = f"All {count:,} partitions hold."
    if failed:
        named = ", ".join(c.partition.key for c in failed[:MAX_FAILURES_IN_LOG]) + (", ..." if len(failed) > MAX_FAILURES_IN_LOG else "")
        why = f"{len(failed):,} of {count:,} partitions do not hold: {named}."
    return _evaluation(table, name, None, not failed, {"partitions": dg.MetadataValue.int(count)}, why)


def refusals_of(table: "Table", refused: Iterable[Verdict]) -> Iterator[dg.AssetCheckEvaluation]:
    """Return a failed evaluation of every check for every partition that was refused."""
    for verdict in refused:
        why = "Refused, the table keeps what it had. " + " ".join(str(finding) for finding in verdict.findings)
        for name in (RECONCILED, *(rule.value for rule in table.spec.checks.separate)):
            metadata = {str(finding.rule): dg.MetadataValue.text(str(finding)) for finding in verdict.findings}
            yield _evaluation(table, name, verdict.partition, False, metadata, why)


def record_evaluations(
    context: dg.AssetExecutionContext,
    table: "Table",
    delta: "DeltaTable",
    published: Sequence[Partition],
    refused: Sequence[Verdict] = (),
) -> list[Comparison]:
    """Log the evaluations that the check's own step would have made: it will not run, because the launch fails or is a once-flow's."""
    compared = compare_with_receipts(published, delta.published(), delta)
    with recording(context.instance, context.run.run_id):
        for evaluation in (*evaluations_of(table, compared), *refusals_of(table, refused)):
            context.log_event(evaluation)  # pyright: ignore[reportArgumentType] (Dagster takes it, its annotation lags behind)
    return compared


def _left_out_evaluations(table: "Table", left_out: Sequence[Partition]) -> Iterator[dg.AssetCheckEvaluation]:
    """Say of partitions without anything to compare why: a warning, since nothing is wrong yet."""
    for partition in left_out:
        yield dg.AssetCheckEvaluation(
            asset_key=table.asset_key,
            check_name=RECONCILED,
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            partition=partition.key,
            description="Left out: it is live, or the source is not complete for it yet.",
            metadata={},
            blocking=False,
        )


def _evaluation(
    table: "Table",
    name: str,
    partition: Partition | None,
    passed: bool,
    metadata: Mapping[str, Any],
    why: str,
) -> dg.AssetCheckEvaluation:
    severity = dg.AssetCheckSeverity.ERROR if table.spec.checks.severity is Severity.ERROR else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckEvaluation(
        asset_key=table.asset_key,
        check_name=name,
        passed=passed,
        metadata=metadata,
        severity=severity,
        description=why or None,
        partition=partition.key if partition else None,
        blocking=severity is dg.AssetCheckSeverity.ERROR,
    )


def _metadata(comparison: Comparison) -> dict[str, Any]:
    metadata: dict[str, Any] = {str(v.rule): dg.MetadataValue.text("holds" if v.passed else v.what) for v in comparison.verdicts}
    if comparison.source_rows is not None:
        metadata["source_rows"] = dg.MetadataValue.int(comparison.source_rows)
    metadata["table_rows"] = dg.MetadataValue.int(comparison.table_rows)
    if comparison.late_rows:
        metadata["late_rows"] = dg.MetadataValue.int(comparison.late_rows)
    if comparison.superseded_rows:
        metadata["superseded_rows"] = dg.MetadataValue.int(comparison.superseded_rows)
    metadata["source_checksum"] = dg.MetadataValue.text(comparison.source_checksum)
    metadata["table_checksum"] = dg.MetadataValue.text(comparison.table_checksum)
    if comparison.failures:
        metadata["differences"] = dg.MetadataValue.json(
            [{"rule": str(v.rule), "rows": v.rows, "what": v.what, "examples": list(v.examples)} for v in comparison.failures]
        )
    return metadata


def _why(failures: Sequence[RuleVerdict]) -> str:
    return " ".join(str(verdict) for verdict in failures)


def _log_failures(context: dg.AssetCheckExecutionContext, compared: Sequence[Comparison]) -> None:
    failed = [comparison for comparison in compared if not comparison.passed]
    for comparison in failed[:MAX_FAILURES_IN_LOG]:
        context.log.error(str(comparison))
    if len(failed) > MAX_FAILURES_IN_LOG:
        context.log.error(f"and {len(failed) - MAX_FAILURES_IN_LOG} more partitions.")


def _description(name: str) -> str:
    return {
        RECONCILED: "Each partition of the table equals its source: same rows, unique keys, no strays, the spec's columns.",
        Rule.ROWS_MATCH_SOURCE: "The table has exactly the rows that its source has: count and checksum.",
        Rule.KEYS_ARE_UNIQUE: "No key comes twice in a partition, and none is missing.",
        Rule.ROWS_INSIDE_PARTITION: "Every row's event time lies in its partition.",
        Rule.SCHEMA_MATCHES: "The table has the columns and types of its spec.",
    }[name]
