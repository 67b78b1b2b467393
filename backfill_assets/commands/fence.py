"""`backfill-assets fence` and `backfill-assets live`: the live side of a table, from a terminal."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from rich.table import Table as Shown

from backfill_assets.assets.live import LiveReporter, live_asset_key
from backfill_assets.commands.reconciliation_report import load_definitions, table_of
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.spec.files import LiveStream
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.calendar.windows import as_utc
from backfill_assets.errors import ConfigurationError, FenceError, NaiveInstantError

if TYPE_CHECKING:
    from backfill_assets.live.fence_queries import LiveStatus
    from backfill_assets.live.writer import BatchReport


@dataclass(frozen=True, slots=True)
class FenceReport:
    """The fence of a table, and what waits around it."""

    key: str
    before: Fence
    status: LiveStatus
    carried_rows: int
    asked_for: datetime | None = None

    @property
    def has_moved(self) -> bool:
        return self.status.fence.at_utc != self.before.at_utc

    def to_json(self) -> str:
        """Return one JSON object."""
        fence, newest = self.status.fence, self.status.newest
        return json.dumps(
            {
                "table": self.key,
                "fence": fence.at_utc.isoformat(),
                "was": self.before.at_utc.isoformat(),
                "epoch": fence.epoch,
                "stream": fence.stream or None,
                "last_batch": newest[1].batch if newest else None,
                "last_batch_at": newest[0].isoformat() if newest else None,
                "late_rows": sum(self.status.late.values()),
                "stale_partitions": self.status.stale,
                "quarantined_rows": sum(self.status.quarantined.values()),
                "carried_rows": self.carried_rows,
            },
            indent=2,
        )

    def to_table(self) -> Shown:
        """Return what a person reads."""
        fence, newest = self.status.fence, self.status.newest
        shown = Shown(title=f"{self.key}: the fence", title_justify="left", show_header=False)
        shown.add_column(style="bold")
        shown.add_column(overflow="fold")
        where = f"{fence.at_utc:%Y-%m-%d %H:%M} UTC"
        if self.has_moved:
            where += f", moved from {self.before.at_utc:%Y-%m-%d %H:%M}"
        if self.asked_for is not None and self.asked_for.astimezone(UTC) != fence.at_utc:
            where += f" ({self.asked_for.isoformat()} rounded up to the start of a partition)"
        shown.add_row("history is before, live from", where)
        shown.add_row("epoch", str(fence.epoch))
        shown.add_row("stream", fence.stream or "none has begun")
        shown.add_row("newest batch", f"{newest[1].batch}, at {newest[0]:%Y-%m-%d %H:%M:%S} UTC" if newest else "none")
        shown.add_row("late rows", f"{sum(self.status.late.values()):,}")
        stale = self.status.stale
        named = ", ".join(f"{key} ({rows:,})" for key, rows in list(stale.items())[:5]) + (", ..." if len(stale) > 5 else "")
        shown.add_row("stale partitions", f"{len(stale):,}: {named}" if stale else "none")
        reasons = "; ".join(f"{reason}: {rows:,}" for reason, rows in self.status.quarantined.items())
        shown.add_row("quarantined rows", f"{sum(self.status.quarantined.values()):,}" + (f" ({reasons})" if reasons else ""))
        if self.carried_rows:
            shown.add_row("carried rows", f"{self.carried_rows:,} live rows of sealed partitions are in `{self.key}_late` now")
        return shown


def look_at_fence(module: str, key: str, at: str | None, *, carry: bool, log: Callable[[str], None]) -> FenceReport:
    """Return the fence of a table; move it first if asked to.

    Args:
        module: Of the Dagster definitions.
        at: Instant in ISO format, with its zone; None to leave the fence where it is.
        carry: Append live rows of sealed partitions that were never published to `<table>_late`.

    Raises:
        ConfigurationError: There is no such module, table, or live stream.
        NaiveInstantError: `at` has no zone.
        FenceError: `at` is no instant, or the fence cannot be moved there. The fence stays where it is.
    """
    from backfill_assets.core.live.batches import Pace
    from backfill_assets.core.live.fence_moves import end_interrupted_move, move_fence
    from backfill_assets.live.fence_queries import status_of

    spec, _ = _with_stream(module, key)
    instant = None if at is None else _instant(at, key)
    table = Lakehouse().live_table(spec, log)
    table.table.create()
    pace = Pace(log=log)
    before = end_interrupted_move(spec, table, pace) if instant is None else move_fence(spec, table, instant, pace).before
    carried = table.carry_live_rows(table.table.published()) if carry else 0
    return FenceReport(key, before, status_of(table, table.table.published()), carried, instant)


def write_live(module: str, key: str, *, once: bool, new_stream: bool, checkpoint: str | None, say: Callable[[str], None]) -> int:
    """Write a table's live stream until it is stopped; return how many batches there were.

    Raises:
        ConfigurationError: There is no such module, table, or live stream.
        LiveError: The stream cannot go on; no event is lost.
    """
    spec, live = _with_stream(module, key)
    writer = Lakehouse().live_writer(spec, live, say, checkpoint=checkpoint)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: (say("Stopping after the batch at hand."), stop.set())[1])
    say(f"{key}: events that land in {writer.folder} are appended.")
    with dg.DagsterInstance.get() as instance:
        reporter = LiveReporter(instance, live_asset_key(spec))

        def report(batch: BatchReport) -> None:
            say(str(batch))
            reporter.saw(batch)

        writer.report = report
        try:
            return writer.run(once=once, is_new_stream=new_stream, stop=stop)
        finally:
            reporter.tell()


def _with_stream(module: str, key: str) -> tuple[TableSpec, LiveStream]:
    spec = table_of(load_definitions(module), key, module)[0].spec
    if spec.live is None:
        raise ConfigurationError(
            f"`{key}` has no live stream, and so no fence.",
            state="Nothing was changed.",
            remedy="Add `live:` to its spec: the folder of its events, and the day from which on the stream owns them.",
        )
    return spec, spec.live


def _instant(text: str, key: str) -> datetime:
    try:
        return as_utc(datetime.fromisoformat(text))
    except NaiveInstantError:
        raise
    except ValueError as error:
        raise FenceError(
            f"`{text}` is no instant.", state=f"The fence of `{key}` was not moved.", remedy="Write it like 2026-01-01T00:00:00Z."
        ) from error
