"""Of when the rows are by which two versions of a table are compared."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pyspark.sql import functions as F

from backfill_assets.core.calendar.windows import Window, midnight_utc
from backfill_assets.core.history.version_comparison import FOR_EVER, has_same_event_time, since_utc
from backfill_assets.core.sql import between
from backfill_assets.errors import NOTHING_COMPARED, VersionError
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import rows_by_partition


def compared_window(before: LakeTable, new: LakeTable, until: Literal["before", "both"] | datetime) -> Window:
    """Return from when on both have rows, until the end of what the version before has: a stream has none.

    Where rows happen at other times in both, nothing is known of when those of the version before end in the new one.

    Raises:
        VersionError: There is no such time.
    """
    if not has_same_event_time(new.spec, before.spec):
        since = new.spec.grid.start_utc
        return _shared(before, new, since, until if isinstance(until, datetime) else FOR_EVER)
    since = since_utc(new.spec, before.spec)
    if (first := new.spec.grid.start_utc) < since and _has_rows(before, Window(first, since)):
        since = first  # its start was moved, and its readers are given what lies before
    if isinstance(until, datetime):
        return _shared(before, new, since, until)
    is_ended = until == "before" and before.spec.live is None
    published = before.published() if is_ended else {}
    if not published:
        return Window(since, FOR_EVER)
    grid, written = before.spec.grid, rows_by_partition(before.spec, before.read())  # by others too
    if not (known := grid.from_start(filter(grid.is_key, [*published, *written]))):
        return Window(since, FOR_EVER)
    end = known[-1].window.end_utc
    if new.spec.columns[new.spec.event_time].type == "date":  # a day has no zone, and is the same in both
        end = midnight_utc(end.astimezone(before.spec.grid.zone).date(), new.spec.grid.zone)
    return _shared(before, new, since, end)


def _shared(before: LakeTable, new: LakeTable, since: datetime, end: datetime) -> Window:
    if end > since:
        return Window(since, end)
    raise VersionError(
        f"`{before.spec.key}` and `{new.spec.key}` have no time in common: what is compared would end at "
        f"{end.isoformat()}, and the new version begins at {since.isoformat()}.",
        state=NOTHING_COMPARED,
        remedy="Let `start` of the new version be earlier, or name a later day with `--before`.",
    )


def _has_rows(table: LakeTable, window: Window) -> bool:
    return bool(table.read().where(F.expr(between(table.spec, window))).head(1))
