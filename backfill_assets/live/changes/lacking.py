"""What a table that follows a database lacks of what its feed has brought, whether or not a refresh can bring it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach, launch_of


@dataclass(frozen=True, slots=True)
class Had:
    """What the partitions of a table have of what its feed has brought.

    Args:
        positions: Up to where each has every change, by key; or had, if a refresh cannot bring it up any more: it was
            taken back, somebody else wrote it, or it has other columns than the spec.
        never_launched: Those of them that have none: nobody has launched them, or that was taken back, and the table
            has followed for all of their time.
        past: Likewise those of before, which a refresh has still to launch, or whose launch was taken back.
        of_another_feed: Those of them that another feed has brought, or none, and no refresh brings up. What came
            between the two, nobody knows.
    """

    positions: Mapping[str, int]
    never_launched: Set[str]
    past: Set[str]
    of_another_feed: Set[str]

    def behind(self, source: ChangedSource, reach: Reach, *, past: Collection[str] = ()) -> dict[str, int]:
        """Return up to where those have changes, by key, that others have touched since.

        Args:
            past: Keys of those of the past that count too: as long as it is being loaded, it is no lag.
        """
        behind = source.keys_behind(self.positions, reach)
        return {key: self.positions[key] for key in behind if key not in self.past or key in past}


def had_by(
    source: ChangedSource,
    published: Mapping[str, PublishedPartition],
    reach: Reach,
    *,
    taken_back: Collection[str] = (),
) -> Had:
    """Look at what partitions have by now.

    Args:
        taken_back: Keys of partitions of the past that were launched and have no publish any more.
    """
    brought_up = source.refreshed_from(source.positions(published, reach), reach)
    ours = {key: known for key, known in published.items() if source.spec.grid.is_key(key)}
    launched = {key: launch for key, known in ours.items() if (launch := launch_of(known))}
    other = {key for key, launch in launched.items() if not reach.brought(launch.partition.fingerprint)}
    folded = {key: reach.folded(known) for key, known in ours.items()}
    new, past = _never_launched(source, published, reach, taken_back)
    none = dict.fromkeys(new | past, reach.began)
    return Had(none | folded | brought_up, new, past, other - brought_up.keys())


def _never_launched(
    source: ChangedSource, published: Mapping[str, PublishedPartition], reach: Reach, taken_back: Collection[str]
) -> tuple[set[str], set[str]]:
    """Return the partitions up to now that have no publish: of after the table began to follow, and of before."""
    grid, mode, now = source.spec.grid, source.feed.backfill, source.now()
    if mode == "excluded":
        return set(), set()
    since = grid.start_utc if mode == "automatic" else max(grid.start_utc, reach.followed_since)
    begun = grid.covering(Window(since, now)) if since < now else []
    missing = [p for p in begun if p.key not in published]
    new = {p.key for p in missing if p.window.start_utc >= reach.followed_since}
    past = {p.key for p in missing} if mode == "automatic" else {key for key in taken_back if grid.is_key(key)}
    return new, past - new - published.keys()
