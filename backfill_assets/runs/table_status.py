"""The state of every partition of a table, as far as it can be told without reading rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.spec.source_spec import refuse_unset
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known, PartitionStatus, State, lost_at_source, status_of
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import AddressMissingError, ConfigurationError, SourceMissingError
from backfill_assets.runs.attempts import newest_refusals
from backfill_assets.runs.check_history import failed_comparisons
from backfill_assets.runs.partitions import materialized_partitions, to_be_judged
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What is known of a table's partitions.

    Args:
        complete: Those of history for which the source is complete, in order.
        lost: Those of history that are published, and that the source has no more, in order: it was emptied, or lost
            its newest part or the markers of that. No launch mends them.
        surveys: What the source has of each of them, by key.
        failing: Since when the newest comparison of a partition fails, by key.
        published: The newest receipt of each partition, by key.
        outside: How many rows lie in values of the partition column that are no partition, by value.
    """

    complete: tuple[PartitionStatus, ...] = ()
    lost: tuple[PartitionStatus, ...] = ()
    surveys: Mapping[str, Survey] = field(default_factory=dict[str, Survey])
    failing: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    published: Mapping[str, PublishedPartition] = field(default_factory=dict[str, PublishedPartition])
    outside: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def unreconciled(self) -> list[PartitionStatus]:
        """Those that are not as their source would make them, in order."""
        open_ = [status for status in self.complete if status.state is not State.PUBLISHED]
        return sorted([*open_, *self.lost], key=lambda status: status.partition)

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.complete) + len(self.lost)


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
        ConfigurationError: Something is.
    """
    delta = lakehouse.table(table.spec, log)
    try:
        return _look_at_table(instance, table, delta, specs, lakehouse, log=log)
    except AddressMissingError as error:
        if not (published := delta.published()):
            raise
        raise ConfigurationError(
            f"{error.what} {len(published):,} partitions of the table are published.",
            state=error.state,
            remedy=error.remedy,
        ) from error


def _look_at_table(
    instance: dg.DagsterInstance,
    table: Table,
    delta: LakeTable,
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    *,
    log: Callable[[str], None],
) -> TableStatus:
    delta.refuse_another_schema()
    if table.spec.source.is_of_version and not table.spec.inputs:
        return _look_at_copy(instance, table, delta)
    try:
        refuse_unset(table.spec.key, table.spec.source.variables, os.environ)
    except AddressMissingError:
        if not delta.published():
            _refuse_another_root(instance, table, delta)
            raise
    source = lakehouse.source(table.spec, specs, None, log)
    try:
        until = source.complete_until()
    except SourceMissingError:
        if delta.published():
            raise
        _refuse_another_root(instance, table, delta)
        return TableStatus()
    published = delta.published()
    bounds = Known(published, fence=delta.fence(), complete_until=until, is_source_known=True)
    complete = to_be_judged(table.spec, bounds, datetime.now(UTC))
    surveys = source.survey(complete)
    rows_now = delta.rows_now(complete)
    nothing = {p.key for p in complete if not surveys[p.key].is_expected} - published.keys() - rows_now.keys()
    complete = [p for p in complete if p.key not in nothing]
    failing = failed_comparisons(instance, table)
    known = replace(
        bounds,
        refused=newest_refusals(delta, complete, published, failing),
        written_since=delta.written_by_others(published),
        rows_now=rows_now,
        surveys=surveys,
        late_rows=delta.late(complete).rows if complete else {},
        differing=failing.keys(),
        unreadable=delta.unreadable(complete, reads=False),
        code_version=table.code_version,
    )
    if not complete and not published:
        _refuse_another_root(instance, table, delta)
    lost = lost_at_source(table.spec.grid.from_start(published), bounds)
    outside = delta.rows_outside_grid()
    return TableStatus(tuple(status_of(complete, known)), tuple(lost), surveys, failing, published, outside)


def _refuse_another_root(instance: dg.DagsterInstance, table: Table, delta: LakeTable) -> None:
    """Raise if neither source nor table is there, and Dagster knows better: the lakehouse lies elsewhere, or is away.

    Raises:
        ConfigurationError: Dagster has partitions of the table.
    """
    if not delta.exists() and (known := materialized_partitions(instance, table.asset_key)):
        raise ConfigurationError(
            f"`{table.spec.key}`: Dagster knows of {len(known):,} published partitions, and there is neither a "
            f"table at `{delta.path}` nor anything in its source.",
            state="Nothing was looked at.",
            remedy="See that the lakehouse is where `LAKEHOUSE_ROOT` says, and mounted. If the table was given up, "
            "remove its spec, or wipe its materializations in Dagster.",
        )


def _look_at_copy(instance: dg.DagsterInstance, table: Table, delta: LakeTable) -> TableStatus:
    """Say what state the partitions of a copy are in whose origin is given up: what was copied stays as it is.

    Receipts are held against the log alone; there is no source that could have changed, or that they could lack.
    """
    published, failing = delta.published(), failed_comparisons(instance, table)
    if not published:
        _refuse_another_root(instance, table, delta)
    partitions = table.spec.grid.from_start(published)
    known = Known(
        published=published,
        fence=delta.fence(),
        written_since=delta.written_by_others(published),
        rows_now=delta.rows_now(partitions),
        late_rows=delta.late(partitions).rows if partitions else {},
        differing=failing.keys(),
        unreadable=delta.unreadable(partitions, reads=False),
    )
    history = tuple(status for status in status_of(partitions, known) if status.state is not State.LIVE)
    outside = delta.rows_outside_grid()
    return TableStatus(history, failing=failing, published=published, outside=outside)
