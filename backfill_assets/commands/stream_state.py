"""What a table's live stream or change feed does, and how far the table is behind it: in words, and in seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill_assets.commands.project import ProjectTable
from backfill_assets.core.words import seconds_in_words

if TYPE_CHECKING:
    from backfill_assets.live.changes.landed import FeedState


def stream_in_words(
    chosen: ProjectTable, feed: FeedState | None, log: Callable[[str], None]
) -> tuple[str, dict[str, float | None]]:
    """Return what brings a table its newest rows, and its lag beside what it may be; nothing where launches alone do.

    A database is asked at most what its columns are, where others land its feed.
    """
    if chosen.spec.live:
        return _live_in_words(chosen, log)
    if feed:
        return _feed_in_words(chosen, feed, log)
    return "", {}


def _live_in_words(chosen: ProjectTable, log: Callable[[str], None]) -> tuple[str, dict[str, float | None]]:
    from backfill_assets.live.fence_queries import status_of

    live = chosen.lakehouse.live_table(chosen.spec, log)
    found = status_of(live, live.table.published())
    if found.newest is None:
        return "no batch yet", {}
    (at, receipt), target = found.newest, chosen.spec.live and chosen.spec.live.max_lag_seconds
    ago = (datetime.now(UTC) - at).total_seconds()
    waiting = sum(found.stale.values())
    late = f"\n{waiting:,} late rows wait" if waiting else ""
    said = f"batch {receipt.batch}, {seconds_in_words(max(0.0, ago))} ago"
    if receipt.landed_utc is None:
        return said + late, {}
    lag = max(0.0, (at - datetime.fromisoformat(receipt.landed_utc[0])).total_seconds())
    most = f" of {seconds_in_words(target)} at most" if target else ""
    return f"{said}\nlag {seconds_in_words(lag)}{most}{late}", {"seconds": round(lag, 1), "most_seconds": target}


def _feed_in_words(
    chosen: ProjectTable, feed: FeedState, log: Callable[[str], None]
) -> tuple[str, dict[str, float | None]]:
    from backfill_assets.live.changes.lacking import had_by
    from backfill_assets.live.changes.newest import waiting_since

    changes, now = chosen.spec.changes, datetime.now(UTC)
    said = feed.in_words(changes.capture, now) if changes else ""
    source = chosen.changed_source(log)
    if not changes or source is None or feed.landed_at is None or (reach := source.reader.reach()) is None:
        return said, {}
    had = had_by(source, source.lake.published(), reach)
    lacking, missed, lacks_since = had.behind(source, reach), had.missed(), feed.landed_at
    if lacking or missed:
        since = waiting_since(chosen.spec.grid, source.reader.changes, lacking, reach.position)
        instants = [*since.values(), reach.began_at] if missed else since.values()
        oldest = min(instants, default=now)
        lacks_since = min(lacks_since, oldest)
        count = len(lacking.keys() | missed)
        said += f"\n{count:,} partitions lack changes, the oldest for {seconds_in_words(_seconds(oldest, now))}"
    return said, {"seconds": round(_seconds(lacks_since, now), 1), "most_seconds": changes.max_lag_seconds}


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


def feed_of(chosen: ProjectTable) -> FeedState | None:
    """Return how the change feed of a table stands; None if it has none. The database is not asked."""
    from backfill_assets.core.spec.databases import DatabaseSpec
    from backfill_assets.live.changes.joining import table_state
    from backfill_assets.live.changes.landed import CaptureTable

    feed, source = chosen.spec.changes, chosen.spec.source
    if feed is None or not isinstance(source, DatabaseSpec):
        return None
    return table_state(chosen.lakehouse.capture_folder(feed.capture), CaptureTable(*source.schema_and_name))
