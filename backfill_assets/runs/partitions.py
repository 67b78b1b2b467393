"""Between Dagster's partitions and the core's: one definition for each grain, and what a run names."""

from __future__ import annotations

from datetime import datetime

import dagster as dg

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known, status_of
from backfill_assets.errors import NOTHING_WRITTEN, WindowError
from backfill_assets.runs.run_tags import PARTITION, RANGE_START, range_named

Definition = (
    dg.DailyPartitionsDefinition
    | dg.WeeklyPartitionsDefinition
    | dg.MonthlyPartitionsDefinition
    | dg.HourlyPartitionsDefinition
)
MONDAY = 1


def partitions_definition(spec: TableSpec) -> Definition:
    """Return Dagster's partitions of a table; a key is the ISO date of the partition's first local day.

    A version that follows the one before it has the partition that is not over yet too.
    """
    start, more = spec.start.isoformat(), int(_has_the_one_under_way(spec))
    if spec.grain is Grain.HOURLY:
        return dg.HourlyPartitionsDefinition(f"{start}-00:00", timezone=spec.time_zone, end_offset=more)
    if spec.grain is Grain.WEEKLY:
        return dg.WeeklyPartitionsDefinition(start, timezone=spec.time_zone, day_offset=MONDAY, end_offset=more)
    if spec.grain is Grain.MONTHLY:
        return dg.MonthlyPartitionsDefinition(start, timezone=spec.time_zone, end_offset=more)
    return dg.DailyPartitionsDefinition(start, timezone=spec.time_zone, end_offset=more)


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
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, spec: TableSpec
) -> list[Partition]:
    """Return the partitions that a run names, in order.

    Raises:
        WindowError: The run names none, or its range is empty or reversed, which Dagster itself lets through.
    """
    if named := range_named(context.run.tags):
        return spec.grid.between(*named)
    raise WindowError(
        f"`{spec.key}`: the run names no partition.",
        state=NOTHING_WRITTEN,
        remedy=f"Launch a range, for example `dg launch --assets {spec.key} --partition-range "
        f"{spec.start}...{spec.start}`.",
    )
