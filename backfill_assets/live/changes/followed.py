"""Into which partitions of a table the changes of its database come, and into which none does until it is launched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import datetime

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.source import ChangedSource


def followed(source: ChangedSource, log: Callable[[str], None]) -> dict[Partition, bool]:
    """Return each partition up to now, and whether changes come into it, or will when it is launched by itself.

    None does where the feed has not begun, or cannot be read on, of which `log` is told.
    """
    every = source.spec.grid.until(source.now())
    try:
        reach = source.reader.reach()
    except ChangeFeedError as error:
        log(str(error))
        reach = None
    if reach is None:
        return dict.fromkeys(every, False)
    published = source.lake.published()
    positions = source.refreshed_from(source.positions(published, reach), reach)
    foreign = source.lake.written_by_others({p.key: published[p.key] for p in every if p.key in published})
    undone, mode = source.lake.receipts.undone(), source.feed.backfill

    def comes(partition: Partition) -> bool:
        key, known = partition.key, published.get(partition.key)
        if key in positions:
            return key not in foreign
        if known is not None:  # with other columns it is read anew when anything in it changes
            is_ours = known.receipt.kind == "publish" and reach.brought(known.partition.fingerprint)
            return is_ours and key not in foreign and mode != "excluded"
        return key not in undone and (mode == "automatic" or partition.window.start_utc >= reach.began_at)

    return {partition: comes(partition) for partition in every}


def not_followed(
    own: Mapping[Partition, bool],
    others: Mapping[Partition, bool],
    *,
    until: datetime | None = None,
    has_same_event_time: bool = True,
) -> tuple[str, ...]:
    """Return the partitions that no change comes into, of time in which another version of the table follows.

    Their rows may be the same today. Whoever reads that table tomorrow would lack what has changed by then.

    Args:
        own: What `followed` returns of the table.
        others: Likewise of the other version.
        until: Only of the time before it.
        has_same_event_time: Else no time of the one is that of the other, and every one counts into which none comes.
    """
    windows = [partition.window for partition in sorted(others) if others[partition]]  # one after the other
    ends = [window.end_utc for window in windows]
    found: list[str] = []
    for partition in sorted(p for p, comes in own.items() if not comes):
        window = partition.window
        at = bisect_right(ends, window.start_utc)
        is_followed = at < len(ends) and windows[at].start_utc < window.end_utc
        if (is_followed or not has_same_event_time) and (until is None or window.start_utc < until):
            found.append(partition.key)
    return tuple(found)
