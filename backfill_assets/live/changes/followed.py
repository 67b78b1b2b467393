"""Into which partitions of a table the changes of its database come, and into which none does until it is launched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach


def readable(source: ChangedSource, log: Callable[[str], None]) -> Reach | None:
    """Return how far a feed has come; None where it has not begun, or cannot be read on, of which `log` is told."""
    try:
        reach = source.reader.reach()
        if reach is not None:
            source.reader.newest.until(reach)
    except ChangeFeedError as error:
        log(str(error))
        return None
    return reach


def followed(source: ChangedSource, reach: Reach | None) -> dict[Partition, bool]:
    """Return each partition up to now, and whether changes come into it, as long as nobody launches anything.

    Into none they do without a reach. What `automatic` has still to load has first to be loaded: that may be refused.
    """
    every = source.spec.grid.until(source.now())
    if reach is None:
        return dict.fromkeys(every, False)
    published = source.lake.published()
    positions = source.refreshed_from(source.positions(published, reach), reach)
    foreign = source.lake.written_by_others({p.key: published[p.key] for p in every if p.key in published})
    undone, is_read = source.lake.history.undone(), source.feed.backfill != "excluded"

    def comes(partition: Partition) -> bool:
        key, known = partition.key, published.get(partition.key)
        if key in positions:
            return key not in foreign
        if known is not None:  # with other columns it is read anew when anything in it changes
            is_ours = known.receipt.kind == "publish" and reach.brought(known.partition.fingerprint)
            return is_ours and key not in foreign and is_read
        return key not in undone and reach.begins_before(partition)

    return {partition: comes(partition) for partition in every}


def not_followed(
    own: Mapping[Partition, bool],
    others: Mapping[Partition, bool],
    *,
    has_same_event_time: bool = True,
) -> tuple[str, ...]:
    """Return the partitions that no change comes into, of time in which another version of the table follows.

    Their rows may be the same today. Whoever reads that table tomorrow would lack what has changed by then.

    Args:
        own: What `followed` returns of the table.
        others: Likewise of the other version.
        has_same_event_time: Else no time of the one is that of the other, and every one counts into which none comes.
    """
    windows = [partition.window for partition in sorted(others) if others[partition]]  # one after the other
    ends = [window.end_utc for window in windows]
    found: list[str] = []
    for partition in sorted(p for p, comes in own.items() if not comes):
        window = partition.window
        at = bisect_right(ends, window.start_utc)
        is_followed = at < len(ends) and windows[at].start_utc < window.end_utc
        if is_followed or not has_same_event_time:
            found.append(partition.key)
    return tuple(found)
