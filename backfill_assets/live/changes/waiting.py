"""Waiting for a feed: whoever has read the database needs every change up to the moment of that."""

from __future__ import annotations

import time
from collections.abc import Callable

from backfill_assets.core.live.feed import as_lsn
from backfill_assets.core.spec.changes import ChangeFeed
from backfill_assets.errors import NOTHING_WRITTEN, ChangeFeedError, FeedBehindError
from backfill_assets.live.changes.feed import FeedReader
from backfill_assets.live.changes.table import Reach

_LOOK_AGAIN_SECONDS = 0.5


def reach_past(
    reader: FeedReader, key: str, feed: ChangeFeed, position: int | None, log: Callable[[str], None]
) -> Reach:
    """Wait until a feed has come up to a position, and return how far it has come.

    Args:
        key: Of the table that follows.
        position: None: until it has brought anything.

    Raises:
        FeedBehindError: It does not come so far.
        ChangeFeedError: It began after that.
    """
    until, said = time.monotonic() + feed.wait_seconds, False
    while True:
        reach = reader.reach()
        if reach and position is not None and reach.began > position:
            raise ChangeFeedError(
                f"`{key}`: the feed of `{feed.capture}` begins at `{as_lsn(reach.began)}`, after what was read "
                f"(`{as_lsn(position)}`).",
                state=NOTHING_WRITTEN,
                remedy="Launch again.",
            )
        if reach and (position is None or reach.position >= position):
            return reach
        if time.monotonic() >= until:
            raise behind_position(key, feed, reach, position or 0)
        if not said:
            come = "begins" if position is None else f"has come up to `{as_lsn(position)}`"
            log(f"Waiting until the feed of `{feed.capture}` {come}.")
            said = True
        time.sleep(_LOOK_AGAIN_SECONDS)


def behind_position(key: str, feed: ChangeFeed, reach: Reach | None = None, position: int = 0) -> FeedBehindError:
    """Return the failure of a feed that has not come as far as it is needed."""
    come = "has brought nothing yet" if reach is None else f"has come to `{as_lsn(reach.position)}`"
    return FeedBehindError(
        f"`{key}`: the feed of `{feed.capture}` {come}, and `{as_lsn(position)}` is needed.",
        state=NOTHING_WRITTEN,
        remedy=f"Start `backfill-assets capture {feed.capture}`, which runs all the time (again, if this table is new "
        "in it), and launch again: without the changes since, it would be overtaken.",
    )
