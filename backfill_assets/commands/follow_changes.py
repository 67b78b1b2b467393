"""What `backfill-assets live` does for a table with a change feed: its partitions are kept up to date."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from backfill_assets.commands.project import ProjectTable
from backfill_assets.errors import BackfillAssetsError

if TYPE_CHECKING:
    import dagster as dg

    from backfill_assets.core.spec.changes import ChangeFeed
    from backfill_assets.live.changes.refresh import Refreshed


def follow_changes(
    chosen: ProjectTable,
    feed: ChangeFeed,
    *,
    once: bool,
    is_new_feed: bool,
    stop: threading.Event,
    say: Callable[[str], None],
) -> int:
    """Refresh a table's partitions until stopped, or once; return how often any was published.

    Args:
        is_new_feed: Whether the feed begins anew, behind a hole; every partition then has to be launched again.

    What cannot be done now and may be later is said, and tried again.

    Raises:
        AddressMissingError: Partitions are to be launched, and nobody has said where the database is.
        BackfillAssetsError: A repetition would not help; or with `once`, anything.
    """
    import dagster as dg

    from backfill_assets.core.spec.source_spec import refuse_unset
    from backfill_assets.live.changes.refresh import Refresh
    from backfill_assets.sources.context import SourceContext
    from backfill_assets.sources.database.source import build

    spec, lakehouse = chosen.spec, chosen.lakehouse
    if feed.backfill != "excluded":
        refuse_unset(spec.key, spec.source.variables, os.environ)
    context = SourceContext(spec, lakehouse.spark, lakehouse.landing_path, log=say)
    source = lakehouse.changed_source(spec, feed, build(spec.source, context), say)  # type: ignore[arg-type]
    refresh = Refresh(source, chosen.table.code_version, say)
    say(f"{spec.key}: changes that land in {source.reader.folder} are folded in, every {feed.refresh_seconds:g} s.")
    if is_new_feed:
        source.reader.read(is_new_feed=True)
    commits = 0
    with dg.DagsterInstance.get() as instance:
        while not stop.is_set():
            began = time.monotonic()
            try:
                done = refresh.once()
            except BackfillAssetsError as error:
                if once or not error.retry_helps:
                    raise
                say(f"Tried again: {error}")
            else:
                commits += len(done.published)
                _tell(instance, chosen, done, say, time.monotonic() - began)
                if once and not done.launched:
                    break
            stop.wait(0 if once else max(feed.refresh_seconds - (time.monotonic() - began), 0.1))
    return commits


def _tell(
    instance: dg.DagsterInstance,
    chosen: ProjectTable,
    done: Refreshed,
    say: Callable[[str], None],
    seconds: float,
) -> None:
    """Say what was refreshed, here and in Dagster."""
    import dagster as dg

    from backfill_assets.core.state.receipts import PublishedPartition
    from backfill_assets.runs.recording import partition_metadata

    for refused in done.refused:
        say(f"Refused {refused.verdict}")
    for outcome in done.published:
        rows = sum(part.rows for part in outcome.receipt.partitions.values())
        count = len(outcome.partitions)
        say(f"{count:,} partitions, {rows:,} rows, version {outcome.commit.version}, {seconds:.1f} s")
        for partition in outcome.partitions:
            receipt = PublishedPartition(
                outcome.commit.version, outcome.receipt, outcome.receipt.partitions[partition.key]
            )
            metadata = partition_metadata(receipt, size_bytes=outcome.commit.size_bytes.get(partition.key, 0))
            event = dg.AssetMaterialization(chosen.table.asset_key, partition=partition.key, metadata=metadata)
            instance.report_runless_asset_event(event)
