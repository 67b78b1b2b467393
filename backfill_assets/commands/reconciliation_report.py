"""`backfill-assets reconcile`: both sides read afresh in a Dagster run of the table's check alone, and what it found."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from backfill_assets.assets.checks import RECONCILED, complete_partitions, reconcile_job_name
from backfill_assets.assets.factory import Table, tables_of
from backfill_assets.assets.live import live_check_job_name
from backfill_assets.assets.reconciliation import RECONCILIATION_JOB
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import ConfigurationError, ReconciliationUnavailableError, WindowError

NOTHING_READ = "Nothing was read."
WRONG_AT_FENCE = ("no_gap_at_fence", "no_overlap_at_fence")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run configuration with which a run says nothing on the terminal; its log is in Dagster."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a reconciliation found in one partition.

    Args:
        source_rows: None if the source could not be counted.
        failures: Rules that do not hold: `rule`, `rows`, `what` and `examples` of each.
    """

    partition: str
    passed: bool
    source_rows: int | None
    table_rows: int
    source_checksum: str
    table_checksum: str
    failures: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FenceCheck:
    """What was found at the fence.

    Args:
        counts: Whether a failure means that the table is wrong: a gap or an overlap, not silence or rows that wait.
    """

    name: str
    passed: bool
    what: str
    counts: bool


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a reconciliation of one table found."""

    key: str
    run_id: str
    compared: tuple[PartitionReport, ...]
    left_out: tuple[str, ...]
    at_fence: tuple[FenceCheck, ...] = ()

    @property
    def passed(self) -> bool:
        return all(report.passed for report in self.compared) and all(check.passed for check in self.at_fence if check.counts)

    @property
    def differing(self) -> list[PartitionReport]:
        return [report for report in self.compared if not report.passed]

    def summary(self) -> str:
        """Return the outcome in one sentence."""
        rows = sum(report.table_rows for report in self.compared)
        left_out = f" {len(self.left_out):,} were left out: the source is not complete for them yet." if self.left_out else ""
        if not self.differing:
            return f"{self.key}: all {len(self.compared):,} partitions ({rows:,} rows) equal their source.{left_out}"
        return f"{self.key}: {len(self.differing):,} of {len(self.compared):,} partitions differ from their source.{left_out}"

    def to_json(self) -> str:
        """Return one JSON object; `partitions` holds every partition that was compared."""
        partitions = [{name: getattr(report, name) for name in PartitionReport.__slots__} for report in self.compared]
        whole = {
            "table": self.key,
            "passed": self.passed,
            "run_id": self.run_id,
            "left_out": list(self.left_out),
            "at_fence": [{"check": c.name, "passed": c.passed, "what": c.what} for c in self.at_fence],
            "partitions": partitions,
        }
        return json.dumps(whole, indent=2)


def reconcile_and_record(module: str, key: str, partition_range: str | None, *, log: Callable[[str], None]) -> Reconciliation:
    """Compare a table with its source in a Dagster run of its check, and return what was found.

    Args:
        module: Of the Dagster definitions.
        partition_range: `A...B`, both included; None for all that the source is complete for.

    Raises:
        ConfigurationError: There is no such module or table.
        WindowError: The range is not one of the table.
        SourceIncompleteError: The source is complete for none of the partitions.
        ReconciliationUnavailableError: One side could not be counted.
    """
    definitions = load_definitions(module)
    table, specs = table_of(definitions, key, module)
    lakehouse = Lakehouse()
    wanted = _wanted(table, specs, lakehouse, partition_range, log)
    with dg.DagsterInstance.get() as instance:
        result = definitions.resolve_job_def(reconcile_job_name(key)).execute_in_process(
            instance=instance,
            tags={"dagster/asset_partition_range_start": wanted[0].key, "dagster/asset_partition_range_end": wanted[-1].key},
            run_config=QUIET,
            raise_on_error=False,
        )
        evaluations = [e for e in result.get_asset_check_evaluations() if e.check_name == RECONCILED]
        if not evaluations:
            raise ReconciliationUnavailableError(
                f"`{key}` could not be compared: {_failure(result)}",
                state="Neither side was changed.",
                remedy=f"The run {result.run_id} has the whole log.",
            )
        at_fence = _at_fence(definitions, table, instance) if partition_range is None and _has_begun(table, lakehouse, log) else ()
        definitions.resolve_job_def(RECONCILIATION_JOB).execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
    compared = tuple(_report(e) for e in evaluations if "table_rows" in e.metadata)
    left_out = tuple(e.partition or "" for e in evaluations if "table_rows" not in e.metadata)
    return Reconciliation(key, result.run_id, compared, left_out, at_fence)


def _has_begun(table: Table, lakehouse: Lakehouse, log: Callable[[str], None]) -> bool:
    """Say whether a live stream has begun to write a table."""
    fence = lakehouse.table(table.spec, log).fence()
    return fence is not None and bool(fence.stream)


def _at_fence(definitions: dg.Definitions, table: Table, instance: dg.DagsterInstance) -> tuple[FenceCheck, ...]:
    """Evaluate the checks around the fence in a run of their own, and return what they found."""
    job = definitions.resolve_job_def(live_check_job_name(table.spec.key))
    result = job.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
    evaluations = result.get_asset_check_evaluations()
    if not evaluations:
        raise ReconciliationUnavailableError(
            f"The fence of `{table.spec.key}` could not be looked at: {_failure(result)}",
            state="Neither side was changed.",
            remedy=f"The run {result.run_id} has the whole log.",
        )
    return tuple(FenceCheck(e.check_name, e.passed, e.description or "", e.check_name in WRONG_AT_FENCE) for e in evaluations)


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
    )


def _failure(result: dg.ExecuteInProcessResult) -> str:
    """Return why a run failed, in the words of our own error if it was one."""
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error:
                return data.error.message.strip()
    return "the run failed before it read anything."


def table_of(definitions: dg.Definitions, key: str, module: str) -> tuple[Table, dict[str, TableSpec]]:
    """Return a table of some definitions, and the specs of all.

    Raises:
        ConfigurationError: There is no such table.
    """
    tables, specs = tables_of(definitions)
    if key not in tables:
        raise ConfigurationError(
            f"There is no table `{key}` in `{module}`.", state=NOTHING_READ, remedy=f"There are: {', '.join(sorted(tables))}."
        )
    return tables[key], specs


def load_definitions(module: str) -> dg.Definitions:
    """Return the Dagster definitions that a module holds.

    Raises:
        ConfigurationError: There is no such module, or it holds none.
    """
    try:
        loaded: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"There is no module `{module}` ({error}).",
            state=NOTHING_READ,
            remedy="Name the module of your Dagster definitions with --definitions.",
        ) from error
    for value in vars(loaded).values():
        if isinstance(value, dg.Definitions):
            return value
        if type(value).__name__ == "LazyDefinitions":  # what `@dg.definitions` makes
            return value(None)
    raise ConfigurationError(
        f"The module `{module}` holds no Dagster definitions.", state=NOTHING_READ, remedy="Name another module with --definitions."
    )


def _wanted(
    table: Table, specs: dict[str, TableSpec], lakehouse: Lakehouse, partition_range: str | None, log: Callable[[str], None]
) -> list[Partition]:
    """Return the partitions of a range, or all for which the source is complete."""
    grid = table.spec.grid
    if partition_range is not None:
        first, dots, last = partition_range.partition("...")
        if not dots:
            raise WindowError(
                f"`{partition_range}` is no range.",
                state=NOTHING_READ,
                remedy=f"Write first and last partition with three dots between, for example `{table.spec.start}...{table.spec.start}`.",
            )
        return grid.between(first, last)
    return complete_partitions(table, specs, lakehouse, log)
