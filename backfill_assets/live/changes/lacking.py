"""What a table that follows a database lacks of what its feed has brought, whether or not a refresh can bring it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.live.changes.newest import waiting_since
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach


def had_by(source: ChangedSource, published: Mapping[str, PublishedPartition], reach: Reach) -> dict[str, int]:
    """Return up to where each partition has every change, by key; or had, if a refresh cannot bring it up any more.

    So it is with what was taken back, what somebody else wrote, and what has other columns than the spec.
    """
    ours = {key: reach.folded(known) for key, known in published.items() if source.spec.grid.is_key(key)}
    return ours | source.refreshed_from(source.positions(published, reach), reach)


def since_when(source: ChangedSource, lacking: Mapping[str, int], reach: Reach) -> dict[str, datetime]:
    """Return when the oldest change was committed that each of some partitions lacks, by key.

    Args:
        lacking: Up to where they have every change, by key.
    """
    if not lacking:
        return {}
    grid = source.spec.grid
    values = {str(grid.partition(key).value): position for key, position in lacking.items()}
    found = waiting_since(source.reader.changes(min(values.values()), reach.position), values)
    return {grid.key_of(value): at for value, at in found.items()}
