"""`backfill-assets reconcile`: both sides read afresh, the outcome recorded in Dagster and returned."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from backfill_assets.assets.checks import evaluations_of, reconcile_table
from backfill_assets.assets.event_log import recording
from backfill_assets.assets.factory import Table, tables_of
from backfill_assets.assets.reconciliation import RECONCILIATION, check_name, describe, summary_metadata, unreconciled
from backfill_assets.assets.resources import Lakehouse
from backfill_assets.core.partitions import Partition
from backfill_assets.core.reconcile import Comparison
from backfill_assets.core.spec import TableSpec
from backfill_assets.errors import ConfigurationError, SourceIncompleteError, WindowError


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a reconciliation of one table found."""

    key: str
    compared: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        return all(comparison.passed for comparison in self.compared)

    @property
    def differing(self) -> list[Comparison]:
        return [comparison for comparison in self.compared if not comparison.passed]

    def summary(self) -> str:
        """Return the outcome in one sentence."""
        rows = sum(comparison.table_rows for comparison in self.compared)
        if self.passed:
            return f"{self.key}: all {len(self.compared):,} partitions ({rows:,} rows) equal their source."
        return f"{self.key}: {len(self.differing):,} of {len(self.compared):,} partitions differ from their source."

    def to_json(self) -> str:
        """Return one JSON object; `partitions` holds every partition that was compared."""
        return json.dumps(
            {
                "table": self.key,
                "passed": self.passed,
                "partitions": [
                    {
                        "partition": c.partition.key,
                        "passed": c.passed,
                        "source_rows": c.source_rows,
                        "table_rows": c.table_rows,
                        "source_checksum": c.source_checksum,
                        "table_checksum": c.table_checksum,
                        "failures": [
                            {"rule": str(v.rule), "rows": v.rows, "what": v.what, "examples": list(v.examples)} for v in c.failures
                        ],
                    }
                    for c in self.compared
                ],
            },
            indent=2,
        )


def reconcile_and_record(module: str, key: str, partition_range: str | None, *, log: Callable[..., None]) -> Reconciliation:
    """Compare a table with its source, record the checks in Dagster, and return what was found.

    Args:
        module: Of the Dagster definitions.
        partition_range: `A...B`, both included; None for all that the source is complete for.

    Raises:
        ConfigurationError: There is no such module or table.
        WindowError: The range is not one of the table.
        SourceIncompleteError: The source is complete for none of the partitions.
    """
    tables, specs = tables_of(_load(module))
    if key not in tables:
        raise ConfigurationError(f"There is no table `{key}` in `{module}`.", state="Nothing was read.", remedy=f"There are: {', '.join(sorted(tables))}.")
    table = tables[key]
    lakehouse = Lakehouse()
    wanted = _wanted(table, specs, lakehouse, partition_range, log)
    compared = tuple(reconcile_table(table, specs, lakehouse, wanted, log))
    with dg.DagsterInstance.get() as instance:
        _record(instance, table, specs, lakehouse, compared, log)
    return Reconciliation(key, compared)


def _load(module: str) -> dg.Definitions:
    try:
        loaded: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"There is no module `{module}` ({error}).", state="Nothing was read.", remedy="Name the module of your Dagster definitions with --definitions.") from error
    for value in vars(loaded).values():
        if isinstance(value, dg.Definitions):
            return value
        if type(value).__name__ == "LazyDefinitions":  # what `@dg.definitions` makes
            return value(None)
    raise ConfigurationError(f"The module `{module}` holds no Dagster definitions.", state="Nothing was read.", remedy="Name another module with --definitions.")


def _wanted(
    table: Table, specs: dict[str, TableSpec], lakehouse: Lakehouse, partition_range: str | None, log: Callable[..., None]
) -> list[Partition]:
    """Return the partitions of a range, or all for which the source is complete."""
    grid = table.spec.grid
    if partition_range is not None:
        first, dots, last = partition_range.partition("...")
        if not dots:
            raise WindowError(f"`{partition_range}` is no range.", state="Nothing was read.", remedy=f"Write first and last partition with three dots between, for example `{table.spec.start}...{table.spec.start}`.")
        return grid.between(first, last)
    until = lakehouse.source(table.spec, specs, None, log).complete_until()
    wanted = [] if until is None else [p for p in grid.until(until) if p.window.end_utc <= until]
    if not wanted:
        raise SourceIncompleteError(f"`{table.spec.key}`: its source has nothing yet.", state="Nothing was compared.", remedy="Run it again when the source has a whole partition.")
    return wanted


def _record(
    instance: dg.DagsterInstance,
    table: Table,
    specs: dict[str, TableSpec],
    lakehouse: Lakehouse,
    compared: tuple[Comparison, ...],
    log: Callable[..., None],
) -> None:
    """Record one evaluation for each partition, and the table-wide check."""
    with recording(instance, ""):
        for evaluation in evaluations_of(table, compared):
            instance.report_runless_asset_event(evaluation)
    found, known = unreconciled(instance, table, specs, lakehouse, log)
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=RECONCILIATION,
            check_name=check_name(table.spec.key),
            passed=not found,
            description=describe(found, known),
            metadata=summary_metadata(found, known),
        )
    )
