"""What a table that follows a database lacks of what its feed has brought, whether or not a refresh can bring it."""

from __future__ import annotations

from collections.abc import Mapping

from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.live.changes.source import ChangedSource
from backfill_assets.live.changes.table import Reach


def had_by(source: ChangedSource, published: Mapping[str, PublishedPartition], reach: Reach) -> dict[str, int]:
    """Return up to where each partition has every change, by key; or had, if a refresh cannot bring it up any more.

    So it is with what was taken back, what somebody else wrote, and what has other columns than the spec.
    """
    ours = {key: reach.folded(known) for key, known in published.items() if source.spec.grid.is_key(key)}
    return ours | source.refreshed_from(source.positions(published, reach), reach)
