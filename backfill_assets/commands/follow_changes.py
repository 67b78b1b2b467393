"""What `backfill-assets live` does for a table with a change feed: its partitions are kept up to date."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill_assets.commands.project import ProjectTable
from backfill_assets.errors import BackfillAssetsError

if TYPE_CHECKING:
    from backfill_assets.core.spec.changes import ChangeFeed
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.live.changes.history_pace import HistoryPace
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

    Raises:
        TableLockedError: Somebody else follows its changes. Nothing was written.
        ConfigurationError: It is a version that was retired. Nothing was written.
        BackfillAssetsError: As `_follow` says.
    """
    from backfill_assets.lake.current_table import refuse_retired
    from backfill_assets.lake.locks import stream_lock

    key, lakehouse = chosen.spec.key, chosen.lakehouse
    with stream_lock(lakehouse.table_path(key)):
        refuse_retired(lakehouse.current_table(), key)
        return _follow(chosen, feed, once=once, is_new_feed=is_new_feed, stop=stop, say=say)


def _follow(
    chosen: ProjectTable,
    feed: ChangeFeed,
    *,
    once: bool,
    is_new_feed: bool,
    stop: threading.Event,
    say: Callable[[str], None],
) -> int:
    """Refresh a table's partitions.

    What cannot be done now and may be later is said, and tried again.

    Raises:
        AddressMissingError: Partitions are to be launched, and nobody has said where the database is.
        BackfillAssetsError: A repetition would not help; or with `once`, anything.
    """
    import dagster as dg

    from backfill_assets.assets.feed import FeedReporter
    from backfill_assets.core.spec.source_spec import refuse_unset
    from backfill_assets.live.changes.joining import table_state
    from backfill_assets.live.changes.refresh import Refresh, Refreshed
    from backfill_assets.sources.context import SourceContext
    from backfill_assets.sources.database.source import build

    spec, lakehouse = chosen.spec, chosen.lakehouse
    if feed.backfill != "excluded":
        refuse_unset(spec.key, spec.source.variables, os.environ)
    context = SourceContext(spec, lakehouse.session, lakehouse.landing_path, log=say)
    source = lakehouse.changed_source(spec, feed, build(spec.source, context), say)  # type: ignore[arg-type] (`changes` need `kind: jdbc`)
    source.code_version = chosen.table.code_version
    refresh = Refresh(source, say, pace=_pace_of(spec))
    say(f"{spec.key}: changes that land in {source.reader.folder} are folded in, every {feed.refresh_seconds:g} s.")
    if is_new_feed:
        source.reader.read(is_new_feed=True)
    commits = 0
    with dg.DagsterInstance.get() as instance:
        reporter = FeedReporter(instance, chosen.table, feed, say, needed_from=source.reader.needed_from)
        reporter.catch_up(source.lake.published)
        while not stop.is_set():
            began, done, failure = time.monotonic(), Refreshed(), None
            before = table_state(source.reader.folder, source.reader.captured)
            try:
                refresh.once(done)
            except BackfillAssetsError as error:
                failure = error
            if failure is None or done.position or done.outcomes:
                commits += len(done.published)
                _say(done, say, time.monotonic() - began)
                reporter.saw(done, before, datetime.now(UTC))
            if failure is not None:
                if once or not failure.retry_helps:
                    raise failure
                say(f"Tried again: {failure}")
            if once and not done.launched:
                break
            stop.wait(0 if once else max(feed.refresh_seconds - (time.monotonic() - began), 0.1))
    return commits


def _pace_of(spec: TableSpec) -> HistoryPace:
    """Return when a table may read of its past by itself."""
    from backfill_assets.live.changes.history_pace import HistoryPace
    from backfill_assets.runs.pacing import opens_at

    hours = spec.pace.off_peak
    return HistoryPace(spec.pace, lambda now: opens_at(hours, spec.time_zone, now) if hours else now)


def _say(done: Refreshed, say: Callable[[str], None], seconds: float) -> None:
    """Say what was refreshed."""
    for refused in done.refused:
        say(f"Refused {refused.verdict}")
    for outcome in done.published:
        rows = sum(part.rows for part in outcome.receipt.partitions.values())
        count = len(outcome.partitions)
        say(f"{count:,} partitions, {rows:,} rows, version {outcome.commit.version}, {seconds:.1f} s")
