"""Between Dagster's partitions and the core's: one definition for each grain, and what a run names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

import dagster as dg

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known, status_of
from backfill_assets.errors import NOTHING_WRITTEN, WindowError
from backfill_assets.runs.run_tags import BACKFILL, PARTITION, RANGE_START, range_named

Definition = (
    dg.DailyPartitionsDefinition
    | dg.WeeklyPartitionsDefinition
    | dg.MonthlyPartitionsDefinition
    | dg.HourlyPartitionsDefinition
)
MONDAY = 1

DATA_VERSION, BEFORE_START, LIVE = "dagster/data_version", "before_start", "live"
"""Dagster's tag with the data version of an event, and what it is where nothing was published: of a period that lies
before a table's start, and of a partition that a live stream has written."""


def partitions_definition(spec: TableSpec, start: date | None = None) -> Definition:
    """Return Dagster's partitions of a table; a key is the ISO date of the partition's first local day.

    A version that follows the one before it has the partition that is not over yet too.

    Args:
        start: First local day of the first partition; the table's own if not given.
    """
    first, more = (start or spec.start).isoformat(), int(_has_the_one_under_way(spec))
    if spec.grain is Grain.HOURLY:
        return dg.HourlyPartitionsDefinition(f"{first}-00:00", timezone=spec.time_zone, end_offset=more)
    if spec.grain is Grain.WEEKLY:
        return dg.WeeklyPartitionsDefinition(first, timezone=spec.time_zone, day_offset=MONDAY, end_offset=more)
    if spec.grain is Grain.MONTHLY:
        return dg.MonthlyPartitionsDefinition(first, timezone=spec.time_zone, end_offset=more)
    return dg.DailyPartitionsDefinition(first, timezone=spec.time_zone, end_offset=more)


def shared_definitions(specs: Mapping[str, TableSpec]) -> dict[str, Definition]:
    """Return Dagster's partitions of each table of a project, by key.

    Tables of one grain and zone begin together, at the earliest start of any of them. Dagster launches several tables
    in one run only if their definitions are equal.
    """
    starts: dict[tuple[Grain, str], date] = {}
    for spec in specs.values():
        at = spec.grain, spec.time_zone
        starts[at] = min(spec.start, starts.get(at, spec.start))
    return {key: partitions_definition(spec, starts[spec.grain, spec.time_zone]) for key, spec in specs.items()}


def _has_the_one_under_way(spec: TableSpec) -> bool:
    return spec.source.is_of_version and spec.live is None


def to_be_judged(spec: TableSpec, bounds: Known, now: datetime) -> list[Partition]:
    """Return the partitions of which it is to be said how they are: those that Dagster has by now, and any published.

    A source may have files of a day that is not over. That day is not missing: nobody could launch it yet.

    Args:
        bounds: The fence, until when the source is complete, and what is published.
    """
    until = bounds.complete_until
    statuses = status_of(history_of(spec).until(until), bounds) if until else []
    complete = [status.partition for status in statuses if status.can_be_compared]
    everything = _has_the_one_under_way(spec)
    return [p for p in complete if everything or p.window.end_utc <= now or p.key in bounds.published]


def partition_mapping(source: Input, *, same_zone: bool = True) -> dg.PartitionMapping:
    """Return how a table's partitions lie over those of an input.

    Args:
        same_zone: Dagster knows no partitions of one zone over those of another; any may lie over any then.
    """
    if not same_zone:
        return dg.AllPartitionMapping()
    return dg.TimeWindowPartitionMapping(
        start_offset=source.start_offset, end_offset=source.end_offset, allow_nonexistent_upstream_partitions=True
    )


def names_partitions(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> bool:
    """Say whether a run names a partition or a range."""
    return PARTITION in context.run.tags or RANGE_START in context.run.tags


def partitions_of(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, spec: TableSpec, *, may_be_none: bool = False
) -> list[Partition]:
    """Return the partitions of a table that a run names, in order; what lies before the table's start is none.

    Args:
        may_be_none: Whether the whole range may lie before the table's start.

    Raises:
        WindowError: The run names none, or its range is reversed, which Dagster itself lets through.
    """
    before, found = _named(context, spec)
    if found or may_be_none:
        return found
    raise WindowError(
        f"`{spec.key}` starts at `{spec.start}`, and the run names `{before[0].key}...{before[-1].key}`.",
        state=NOTHING_WRITTEN,
        remedy=f"Launch partitions from `{spec.start}` on, or give the table an earlier `start`.",
    )


def before_start(context: dg.AssetExecutionContext, spec: TableSpec) -> list[Partition]:
    """Return what a run names that lies before a table's start: an older table of the project has partitions there."""
    return _named(context, spec)[0]


def launches_more(context: dg.AssetExecutionContext) -> bool:
    """Say whether a run is one of a backfill, or launches other assets beside this one."""
    return BACKFILL in context.run.tags or len(list(context.job_def.asset_layer.executable_asset_keys)) > 1


def materialized_partitions(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> set[str]:
    """Return the keys that Dagster counts as materialized and that were published.

    It counts too what lay before the table's start when it was launched, and what a live stream has written.
    """
    not_published = {key for key, said in data_versions(instance, asset_key).items() if said in (BEFORE_START, LIVE)}
    return instance.get_materialized_partitions(asset_key) - not_published


def data_versions(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> dict[str, str]:
    """Return the data version of each partition's newest materialization, by key."""
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
    )
    return {key: found[DATA_VERSION] for key, found in tags.items() if DATA_VERSION in found}


def _named(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, spec: TableSpec
) -> tuple[list[Partition], list[Partition]]:
    if named := range_named(context.run.tags):
        return spec.grid.around_start(*named)
    raise WindowError(
        f"`{spec.key}`: the run names no partition.",
        state=NOTHING_WRITTEN,
        remedy=f"Launch a range, for example `dg launch --assets {spec.key} --partition-range "
        f"{spec.start}...{spec.start}`.",
    )
