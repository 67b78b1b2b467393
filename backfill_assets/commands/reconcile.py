"""`backfill-assets reconcile`: both sides are read afresh, in a Dagster run of the table's check alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.range_launch import QUIET, failure_of
from backfill_assets.commands.reconciliation_report import FenceCheck, PartitionReport, Reconciliation
from backfill_assets.commands.row_report import check_file, compare_rows
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
    partitions_named,
)
from backfill_assets.errors import ReconciliationUnavailableError

if TYPE_CHECKING:
    import dagster as dg

    from backfill_assets.core.calendar.partitions import Partition

_CHECK_FAILED = "DagsterAssetCheckFailedError"
"""How Dagster ends a step when all checks in it have been evaluated, and a blocking one has failed."""

WRONG_AT_FENCE = ("no_gap_at_fence", "no_overlap_at_fence", "landed_files_are_as_read")


@click.command()
@click.argument("key")
@click.option(
    "--partition-range",
    metavar="A...B",
    help="First and last partition, both included. Default: every partition that the source is complete for.",
)
@click.option("--explain", is_flag=True, help="Name the rows that differ, with both values of each column that does.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="So many rows are shown.")
@click.option(
    "--rows",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the rows that differ, up to 100,000, to a `.csv` or `.parquet` file; means `--explain`.",
)
@json_option
@definitions_option
def reconcile(
    key: str, *, partition_range: str | None, explain: bool, limit: int, file: Path | None, as_json: bool, module: str
) -> None:
    """Compare the table KEY with its source, partition by partition.

    Source and table are both read afresh, at a pinned point. Counts and checksums must be equal; where they are not,
    the rows that only one side has are named. The outcome is recorded in Dagster as the table's checks, in up to three
    runs with one tag `reconcile`: of the partitions, around the fence, and of the whole table.

    With `--explain` what differs is read once more, and its rows are shown with their values: here, not in Dagster.

    \b
    Exit code:  0  every partition equals its source
                1  some do not; or, where it is the whole table, something is wrong at the fence
                2  the command is wrong, or the comparison was not possible

    \b
    Examples:
      backfill-assets reconcile bronze/orders
      backfill-assets reconcile bronze/orders --partition-range 2024-01-01...2024-01-31
      backfill-assets reconcile silver/daily_sales --json > report.json
      backfill-assets reconcile bronze/orders --explain --rows differences.csv
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        if file is not None:
            check_file(file)
        with console.status(f"Comparing {key} with its source"):
            report = reconcile_and_record(project, key, partition_range, log=console.log)
        if explain or file is not None:
            with console.status(f"Looking for the rows of {key} that differ"):
                differing = [project.table(key).spec.grid.partition(found.partition) for found in report.differing]
                rows = compare_rows(project, key, differing, limit=limit, file=file, log=console.log)
            report = replace(report, rows=rows)
    if as_json:
        click.echo(report.to_json())
    else:
        report.show(new_console())
    sys.exit(0 if report.passed else EXIT_DIFFERS)


def reconcile_and_record(
    project: Project, key: str, partition_range: str | None, *, log: Callable[[str], None]
) -> Reconciliation:
    """Compare a table with its source in a Dagster run of its check, and return what was found.

    Args:
        partition_range: `A...B`, both included; None for all that the source is complete for.

    Raises:
        ConfigurationError: There is no such table.
        WindowError: The range is not one of the table.
        SourceIncompleteError: The source is complete for none of the partitions.
        ReconciliationUnavailableError: One side could not be counted.
    """
    import dagster as dg

    from backfill_assets.assets.checks import reconcile_job_name
    from backfill_assets.assets.reconciliation import reconciliation_job_of
    from backfill_assets.runs.check_history import RECONCILED
    from backfill_assets.runs.evaluations import OUTSIDE
    from backfill_assets.runs.run_tags import PART, PARTITIONS, RANGE_END, RANGE_START, in_short

    chosen = project.table(key)
    wanted = _wanted(chosen, partition_range, log)
    tags = {
        RANGE_START: wanted[0].key,
        RANGE_END: wanted[-1].key,
        PARTITIONS: in_short(wanted),
    }
    asked = {"reconcile": f"{key} {uuid4().hex[:8]}"}  # all runs of this command are found by it
    with dg.DagsterInstance.get() as instance:
        job = project.definitions.resolve_job_def(reconcile_job_name(key))
        result = _run(job, instance, {**tags, **asked, PART: "partitions"})
        evaluations = [e for e in result.get_asset_check_evaluations() if e.check_name == RECONCILED]
        if not evaluations or _broke_off(result):
            raise _unavailable(f"`{key}` could not be compared", result)
        is_whole = partition_range is None
        at_fence = _at_fence(chosen, instance, asked) if is_whole and _has_begun(chosen, log) else ()
        _run(
            reconciliation_job_of(project.definitions, project.lakehouse, key), instance, {**asked, PART: "whole table"}
        )
    compared = tuple(_report(e) for e in evaluations if "table_rows" in e.metadata)
    left_out = tuple(e.partition for e in evaluations if e.partition and "table_rows" not in e.metadata)
    outside = next((str(e.metadata[OUTSIDE].value) for e in evaluations if OUTSIDE in e.metadata), "")
    return Reconciliation(key, result.run_id, compared, left_out, at_fence, outside=outside)


def _run(job: dg.JobDefinition, instance: dg.DagsterInstance, tags: dict[str, str]) -> dg.ExecuteInProcessResult:
    from backfill_assets.commands.range_launch import was_stopped

    result = job.execute_in_process(instance=instance, tags=tags, run_config=QUIET, raise_on_error=False)
    if was_stopped(result):
        raise KeyboardInterrupt  # Dagster has taken it, so that the run could end; what it found is no answer
    return result


def _broke_off(result: dg.ExecuteInProcessResult) -> bool:
    """Say whether a run of checks ended before it had said all, and not only because a check has failed."""
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return not result.success and not all(error and error.cls_name == _CHECK_FAILED for error in failures or [None])


def _has_begun(chosen: ProjectTable, log: Callable[[str], None]) -> bool:
    """Say whether a live stream has begun to write a table."""
    fence = chosen.lakehouse.table(chosen.spec, log).fence()
    return fence is not None and bool(fence.stream)


def _at_fence(chosen: ProjectTable, instance: dg.DagsterInstance, tags: dict[str, str]) -> tuple[FenceCheck, ...]:
    """Evaluate the checks around the fence in a run of their own, and return what they found."""
    import dagster as dg

    from backfill_assets.assets.live import live_check_job_name
    from backfill_assets.runs.run_tags import PART

    key = chosen.spec.key
    job = chosen.project.definitions.resolve_job_def(live_check_job_name(key))
    result = _run(job, instance, {**tags, PART: "fence"})
    evaluations = result.get_asset_check_evaluations()
    if not evaluations or _broke_off(result):
        raise _unavailable(f"The fence of `{key}` could not be inspected", result)
    error = dg.AssetCheckSeverity.ERROR
    return tuple(
        FenceCheck(e.check_name, e.passed, e.description or "", e.check_name in WRONG_AT_FENCE and e.severity == error)
        for e in evaluations
    )


def _report(evaluation: dg.AssetCheckEvaluation) -> PartitionReport:
    metadata = {name: value.value for name, value in evaluation.metadata.items()}
    rows: Any = metadata.get("source_rows")
    table_rows: Any = metadata["table_rows"]
    failures: Any = metadata.get("differences") or []
    return PartitionReport(
        partition=evaluation.partition or "",
        passed=evaluation.passed,
        source_rows=rows,
        table_rows=table_rows,
        source_checksum=str(metadata.get("source_checksum", "")),
        table_checksum=str(metadata["table_checksum"]),
        failures=failures,
        as_of=str(metadata.get("as_of", "")),
        tolerated=str(metadata.get("tolerated", "")),
    )


def _unavailable(what: str, result: dg.ExecuteInProcessResult) -> ReconciliationUnavailableError:
    return ReconciliationUnavailableError(
        f"{what}: {failure_of(result)}",
        state="Neither side was changed.",
        remedy=f"The run {result.run_id} has the whole log.",
    )


def _wanted(chosen: ProjectTable, partition_range: str | None, log: Callable[[str], None]) -> list[Partition]:
    """Return the partitions of a range, or all for which the source is complete."""
    from backfill_assets.runs.comparisons import complete_partitions

    if partition_range is None:
        return complete_partitions(chosen.table, chosen.specs, chosen.lakehouse, log)
    return partitions_named(chosen.spec, partition_range)
