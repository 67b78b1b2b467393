"""What a table that follows a database lacks of what its feed has brought, whether or not a refresh can bring it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach


@dataclass(frozen=True, slots=True)
class Had:
    """What the partitions of a table have of what its feed has brought.

    Args:
        positions: Up to where each has every change, by key; or had, if a refresh cannot bring it up any more: it was
            taken back, somebody else wrote it, or it has other columns than the spec.
        never_launched: Those of them that a refresh has still to launch by itself. They have no change.
        of_another_feed: Those of them that another feed has brought, or none, and no refresh brings up. What came
            between the two, nobody knows.
    """

    positions: Mapping[str, int]
    never_launched: Set[str]
    of_another_feed: Set[str]

    def behind(self, source: ChangedSource, reach: Reach) -> dict[str, int]:
        """Return up to where those have changes, by key, that others have touched since."""
        return {key: self.positions[key] for key in source.keys_behind(self.positions, reach)}


def had_by(
    source: ChangedSource, published: Mapping[str, PublishedPartition], reach: Reach, *, with_past: bool = False
) -> Had:
    """Look at what partitions have by now.

    Args:
        with_past: Whether those of before the feed count too that a refresh has still to launch.
    """
    brought_up = source.refreshed_from(source.positions(published, reach), reach)
    ours = {key: known for key, known in published.items() if source.spec.grid.is_key(key)}
    never = never_launched(source, published, reach, with_past=with_past)
    other = {
        key
        for key, known in ours.items()
        if known.receipt.kind == "publish" and not reach.brought(known.partition.fingerprint)
    }
    folded = {key: reach.folded(known) for key, known in ours.items()}
    return Had(dict.fromkeys(never, reach.began) | folded | brought_up, never, other - brought_up.keys())


def never_launched(
    source: ChangedSource, published: Mapping[str, PublishedPartition], reach: Reach, *, with_past: bool = False
) -> set[str]:
    """Return the partitions up to now that a refresh has still to launch by itself.

    Args:
        with_past: Whether those of before the feed count too.
    """
    grid, now, mode = source.spec.grid, source.now(), source.feed.backfill
    since = grid.start_utc if with_past and mode == "automatic" else max(grid.start_utc, reach.began_at)
    if mode == "excluded" or since >= now:
        return set()
    begun = grid.covering(Window(since, now))
    found = {p.key for p in begun if p.window.start_utc >= since and p.key not in published}
    return found - source.lake.receipts.undone() if found else found
