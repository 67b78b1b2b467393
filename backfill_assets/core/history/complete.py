"""Which partitions a source is complete for, of those that somebody names. Pure."""

from __future__ import annotations

from datetime import datetime

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, SourceIncompleteError, WindowError


def complete_part(
    spec: TableSpec, partitions: list[Partition], until: datetime | None
) -> tuple[list[Partition], tuple[Partition, ...]]:
    """Part the partitions for which the source is complete from those beyond it.

    Raises:
        WindowError: There are none.
        SourceIncompleteError: It is complete for none of them.
    """
    if not partitions:
        raise WindowError(
            f"`{spec.key}`: no partition is named; the range is empty or reversed.",
            state=NOTHING_WRITTEN,
            remedy="Name a range whose first partition is not after its last, for example "
            f"`--partition-range {spec.start}...{spec.start}`.",
        )
    inside = [p for p in partitions if until is not None and p.window.end_utc <= until]
    if not inside and spec.source.is_of_version and not spec.inputs:
        raise SourceIncompleteError(
            f"`{spec.key}`: its history was copied from {spec.source.description}, which is retired and read no more.",
            state="What was copied is in the table as it was.",
            remedy="To make it again name another `source`, from which all of it is then launched.",
        )
    if not inside:
        known = "has nothing yet" if until is None else f"is complete up to `{until.isoformat()}`"
        raise SourceIncompleteError(
            f"`{spec.key}`: the source {known}, and the launch starts at `{partitions[0].window.start_utc.isoformat()}`"
            f" (partition `{partitions[0].key}`).",
            state=NOTHING_WRITTEN,
            remedy="Launch partitions that end before that, or wait for the source.",
            complete_until=until,
        )
    return inside, tuple(partitions[len(inside) :])
