"""The state of every partition of a table, as far as it can be told without reading rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import dagster as dg

from backfill_assets.core.spec.source_spec import refuse_unset
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known, PartitionStatus, status_of
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import SourceMissingError
from backfill_assets.runs.comparisons import failed_comparisons
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What is known of a table's partitions.

    Args:
        complete: Those of history for which the source is complete, in order.
        surveys: What the source has of each of them, by key.
        failing: Since when the newest comparison of a partition fails, by key.
    """

    complete: tuple[PartitionStatus, ...] = ()
    surveys: Mapping[str, Survey] = field(default_factory=dict[str, Survey])
    failing: Mapping[str, datetime] = field(default_factory=dict[str, datetime])


def look_at_table(
    instance: dg.DagsterInstance,
    table: Table,
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    log: Callable[[str], None],
) -> TableStatus:
    """Say what state each partition of a table is in: nothing of a table whose source is still to come.

    Receipts are held against the source's listing and the log, and the newest comparisons are looked up in Dagster.

    Raises:
        SchemaMismatchError: The table differs from its spec.
        SourceMissingError: The source is gone, and partitions are published from it.
        AddressMissingError: Nobody has said where the source's database is, and nothing is published from it.
    """
    delta = lakehouse.table(table.spec, log)
    delta.refuse_another_schema()
    if not delta.published():
        refuse_unset(table.spec.key, table.spec.source.variables, os.environ)
    source = lakehouse.source(table.spec, specs, None, log)
    try:
        until = source.complete_until()
    except SourceMissingError:
        if delta.published():
            raise
        return TableStatus()
    partitions = table.spec.grid.until(until) if until else []
    bounds = Known(fence=delta.fence(), complete_until=until, is_source_known=True)
    complete = [status.partition for status in status_of(partitions, bounds) if status.can_be_compared]
    published, surveys = delta.published(), source.survey(complete)
    complete = [p for p in complete if surveys[p.key].is_expected or p.key in published]
    failing = failed_comparisons(instance, table)
    known = replace(
        bounds,
        published=published,
        written_since=delta.written_by_others(published),
        surveys=surveys,
        late_rows=delta.late(complete).rows if complete else {},
        differing=failing.keys(),
        code_version=table.code_version,
    )
    return TableStatus(tuple(status_of(complete, known)), surveys, failing)
