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
        past: Likewise those of before, of which it was asked.
        between_feeds: Those of them in whose time there was another feed than this one, and that no refresh brings up.
            What came between the two, nobody knows.
    """

    positions: Mapping[str, int]
    never_launched: Set[str]
    past: Set[str]
    between_feeds: Set[str]

    def behind(self, source: ChangedSource, reach: Reach, *, past: Collection[str] = ()) -> dict[str, int]:
        """Return up to where those have changes, by key, that others have touched since.

        Args:
            past: Keys of those of the past that count too: as long as it is being loaded, it is no lag.
        """
        behind = self._counting(source.keys_behind(self.positions, reach), past)
        return {key: self.positions[key] for key in behind}

    def missed(self, *, past: Collection[str] = ()) -> set[str]:
        """Return those that may lack what came between two feeds, though nothing has touched them since.

        Args:
            past: As above.
        """
        return self._counting(self.between_feeds, past)

    def _counting(self, keys: Collection[str], past: Collection[str]) -> set[str]:
        """Return those of some partitions that count: of the past only what was named."""
        return {key for key in keys if key not in self.past or key in past}


def had_by(
    source: ChangedSource,
    published: Mapping[str, PublishedPartition],
    reach: Reach,
    *,
    past: Collection[str] = (),
) -> Had:
    """Look at what partitions have by now.

    Args:
        past: Keys of partitions of before the table followed, to be looked at too if they have no publish.
    """
    brought_up = source.refreshed_from(source.positions(published, reach), reach)
    ours = {key: known for key, known in published.items() if source.spec.grid.is_key(key)}
    launched = {key: launch for key, known in ours.items() if (launch := launch_of(known))}
    other = {key for key, launch in launched.items() if not reach.brought(launch.partition.fingerprint)}
    folded = {key: reach.folded(known) for key, known in ours.items()}
    new = _never_launched(source, published, reach)
    old = {key for key in past if source.spec.grid.is_key(key)} - new - published.keys()
    none = dict.fromkeys(new | old, reach.began)
    if reach.first_at is not None:
        other |= {key for key in none if not reach.is_in_all_of(source.spec.grid.partition(key))}
    return Had(none | folded | brought_up, new, old, other - brought_up.keys())


def _never_launched(source: ChangedSource, published: Mapping[str, PublishedPartition], reach: Reach) -> set[str]:
    """Return the partitions up to now that have no publish, of after the table began to follow."""
    grid, since, now = source.spec.grid, max(source.spec.grid.start_utc, reach.followed_since), source.now()
    if source.feed.backfill == "excluded" or since >= now:
        return set()
    begun = grid.covering(Window(since, now))
    return {p.key for p in begun if reach.begins_before(p) and p.key not in published}
