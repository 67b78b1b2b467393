"""The change feed of a table in Dagster: an asset whose events say how far the table is behind its database."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.assets.live import REPORT_SECONDS, live_asset_key
from backfill_assets.core.live.feed import as_lsn
from backfill_assets.core.spec.changes import ChangeFeed
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.runs.recording import partition_metadata
from backfill_assets.runs.unrecorded import told_receipts

if TYPE_CHECKING:
    from backfill_assets.live.changes.landed import FeedState
    from backfill_assets.live.changes.refresh import Refreshed
    from backfill_assets.runs.table import Table

NOT_CAPTURED = "not_captured"
"""Metadata of a feed whose capture does not have the table, or not yet."""

STOPPED = "stopped"
"""Metadata of a feed whose capture has stopped: why."""

SIGN_OF_LIFE_SECONDS = 300.0
"""Where nothing changes, Dagster is told so this often."""


def feed_definitions(table: Table, feed: ChangeFeed) -> dg.Definitions:
    """Return the asset that stands for a table's change feed; `backfill-assets live` writes it, and no launch does."""
    spec = table.spec
    asset = dg.AssetSpec(
        live_asset_key(spec),
        description=f"Changes that `backfill-assets capture {feed.capture}` lands, folded into `{spec.key}` by "
        f"`backfill-assets live {spec.key}`, which tells here how far the table is behind its database.",
        group_name=spec.layer,
        kinds={"streaming"},
        owners=spec.owners,
        tags=spec.tags,
    )
    return dg.Definitions(assets=[asset])


class FeedReporter:
    """Tells Dagster what was refreshed, and how far the table is behind its database.

    What Dagster does not take is kept, and told with the next: the table does not wait for a database that is away.
    Where nobody knows up to when the feed has all, the table is behind by how long that has been so here.

    Args:
        say: Called with one sentence when Dagster could not be told.
        needed_from: Returns the position from which on a process that begins would need the feed's files.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        table: Table,
        feed: ChangeFeed,
        say: Callable[[str], None],
        *,
        needed_from: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._needed_from = needed_from
        self._instance, self._table, self._feed, self._say, self._clock = instance, table, feed, say, clock
        self._partitions: list[dg.AssetMaterialization] = []
        self._count = self._rows = 0
        self._told_at: float | None = None
        self._was_wrong = False
        self._landed_at: datetime | None = None

    def catch_up(self, published_by_key: Callable[[], Mapping[str, PublishedPartition]]) -> None:
        """Keep what a process before this one published and did not tell, to be told with the first refresh.

        Args:
            published_by_key: Returns the newest of each partition.
        """
        from backfill_assets.live.changes.refresh import BY

        try:
            found = published_by_key()
            receipts = {key: one.receipt for key, one in found.items()}
            ours = {key: found[key] for key, one in receipts.items() if one.run.by == BY and one.kind == "publish"}
            told = told_receipts(self._instance, self._table.asset_key, list(ours))
        except Exception as error:  # noqa: BLE001 (as in `_tell`)
            self._say(f"What was published before cannot be told to Dagster now: {type(error).__name__}: {error}")
            return
        for key, one in ours.items():
            if told.get(key) != one.receipt.receipt_id:
                self._keep(key, one)

    def _keep(self, key: str, published: PublishedPartition, size_bytes: int = 0) -> None:
        metadata = partition_metadata(published, size_bytes=size_bytes)
        self._partitions.append(dg.AssetMaterialization(self._table.asset_key, partition=key, metadata=metadata))
        self._count, self._rows = self._count + 1, self._rows + published.partition.rows

    def saw(self, done: Refreshed, before: FeedState, now: datetime) -> None:
        """Take one refresh into account, and tell of it if it is time, or if the feed's state has changed.

        Args:
            before: How the feed stood when the refresh began: what had landed by then is in the table now.
        """
        for outcome in done.published:
            for partition in outcome.partitions:
                tallied = outcome.receipt.partitions[partition.key]
                published = PublishedPartition(outcome.commit.version, outcome.receipt, tallied)
                self._keep(partition.key, published, outcome.commit.size_bytes.get(partition.key, 0))
        self._landed_at = before.landed_at or self._landed_at or now
        lag = max(0.0, (now - min(self._landed_at, done.lacking_since or now)).total_seconds())
        is_wrong = bool(before.stopped) or lag > self._feed.max_lag_seconds
        since = None if self._told_at is None else self._clock() - self._told_at
        every = REPORT_SECONDS if self._count else SIGN_OF_LIFE_SECONDS
        is_time = since is None or since >= every or is_wrong != self._was_wrong
        self._was_wrong = is_wrong
        if is_time or self._partitions:
            self._tell(self._event(done, before, lag, now) if is_time else None)

    def _event(self, done: Refreshed, before: FeedState, lag: float, now: datetime) -> dg.AssetMaterialization:
        metadata: dict[str, Any] = {
            "partitions": dg.MetadataValue.int(self._count),
            "rows": dg.MetadataValue.int(self._rows),
            "position": dg.MetadataValue.text(as_lsn(done.position)),
            "feed": dg.MetadataValue.text(before.in_words(self._feed.capture, now)),
            "lag_seconds": dg.MetadataValue.float(round(lag, 1)),
        }
        with contextlib.suppress(BackfillAssetsError):  # the next event says it
            metadata["files_needed_from"] = dg.MetadataValue.text(as_lsn(self._needed_from()))
        if not before.has_table:
            metadata[NOT_CAPTURED] = dg.MetadataValue.bool(True)
        if before.stopped:
            metadata[STOPPED] = dg.MetadataValue.text(before.stopped)
        return dg.AssetMaterialization(live_asset_key(self._table.spec), metadata=metadata)

    def _tell(self, event: dg.AssetMaterialization | None) -> None:
        try:
            while self._partitions:
                self._instance.report_runless_asset_event(self._partitions[0])
                del self._partitions[0]
            if event is not None:
                self._instance.report_runless_asset_event(event)
                self._told_at, self._count, self._rows = self._clock(), 0, 0
        except Exception as error:  # noqa: BLE001 (whatever Dagster's storage raises; the table is right without it)
            self._say(f"Dagster could not be told, and will be with the next refresh: {type(error).__name__}: {error}")
