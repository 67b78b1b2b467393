"""Catching up: which of the missing partitions a schedule launches next. Pure.

A partition that was asked for and is still missing was refused, or its source was not complete for it. It is asked for
again, but only `AGAIN_AFTER` later, beside what was never asked for: so a bad day costs one run a night and holds
nothing up, and what comes anew with each tick holds no bad day up.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime, timedelta

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.table import CatchUp, TableSpec

AGAIN_AFTER = timedelta(hours=12)
"""Longer than the hours of one night, shorter than from one night to the next."""


def next_pieces(
    spec: TableSpec,
    catch_up: CatchUp,
    *,
    until_utc: datetime,
    present: Set[str],
    asked_utc: Mapping[str, datetime],
    now_utc: datetime,
) -> list[list[Partition]]:
    """Return the consecutive partitions to launch next, a run for each; empty if there is nothing to launch now.

    One piece of what was never asked for; then one of what was, from the partition on that was asked for longest ago.

    Args:
        until_utc: Partitions that end later are not looked at: they are not over yet, or live.
        present: Keys of the partitions that are published, or are being launched.
        asked_utc: When each partition was last asked for, by key; a partition that it lacks never was.
    """
    over = [p for p in history_of(spec).until(until_utc) if p.window.end_utc <= until_utc]
    missing = [p for p in over if p.key not in present]
    never = list(runs_of([p for p in missing if p.key not in asked_utc]))
    due = [p for p in missing if p.key in asked_utc and now_utc - asked_utc[p.key] >= AGAIN_AFTER]
    first = min(range(len(due)), key=lambda n: asked_utc[due[n].key], default=0)
    most = catch_up.max_partitions
    pieces = [never[-1][-most:] if catch_up.newest_first else never[0][:most]] if never else []
    return [*pieces, next(runs_of(due[first:]))[:most]] if due else pieces
