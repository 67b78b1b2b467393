"""`backfill-assets fence`: where history ends and the live stream begins, and moving that forward."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.terminal import (
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.errors import ConfigurationError, FenceError, NaiveInstantError

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.live.checks import LiveStatus
    from backfill_assets.core.spec.live import LiveStream
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.state.fence import Fence


@click.command()
@click.argument("key")
@click.option(
    "--at",
    metavar="INSTANT",
    help="Move the fence to this instant, with its zone: 2026-01-01T00:00:00Z. Rounded up to a partition.",
)
@click.option(
    "--carry-live-rows",
    is_flag=True,
    help="Copy what the stream wrote into sealed partitions to `<table>_late`, to be folded in.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Move it even beyond the partition after the one of now: every event before it is late from then on.",
)
@json_option
@definitions_option
def fence(key: str, *, at: str | None, carry_live_rows: bool, yes: bool, as_json: bool, module: str) -> None:
    """Show where history ends and the live stream begins in the table KEY, or move that fence forward.

    History owns the partitions before the fence, the live stream the partitions from it on. Moving the fence seals live
    partitions that have ended: they become history, and can be launched from their source. The fence may be moved into
    the future, but never back. The live writer need not be stopped.

    \b
    Examples:
      backfill-assets fence bronze/orders
      backfill-assets fence bronze/orders --at 2026-02-01T00:00:00Z
      backfill-assets fence bronze/orders --at 2026-02-01T00:00:00Z --carry-live-rows
    """
    with one_message_for_an_error(), Project.load(module, looks=not (at or carry_live_rows)) as project:
        console = new_console(stderr=True)
        with console.status(f"Looking at {key}"):
            report = look_at_fence(project, key, at, carry=carry_live_rows, is_sure=yes, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        new_console().print(report.to_table())


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
        from rich.markup import escape
        from rich.table import Table as Shown

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
        named = ", ".join(f"{key} ({rows:,})" for key, rows in list(stale.items())[:5]) + (
            ", ..." if len(stale) > 5 else ""
        )
        shown.add_row("stale partitions", f"{len(stale):,}: {named}" if stale else "none")
        reasons = escape("; ".join(f"{reason}: {rows:,}" for reason, rows in self.status.quarantined.items()))
        shown.add_row(
            "quarantined rows", f"{sum(self.status.quarantined.values()):,}" + (f" ({reasons})" if reasons else "")
        )
        if self.carried_rows:
            shown.add_row(
                "carried rows", f"{self.carried_rows:,} live rows of sealed partitions are in `{self.key}_late` now"
            )
        return shown


def look_at_fence(
    project: Project, key: str, at: str | None, *, carry: bool, is_sure: bool, log: Callable[[str], None]
) -> FenceReport:
    """Return the fence of a table; move it first if asked to. Looking makes no table; moving the fence does.

    Args:
        at: Instant in ISO format, with its zone; None to leave the fence where it is.
        carry: Append rows of sealed partitions that no publish put there to `<table>_late`.
        is_sure: Whether an instant that looks like a slip is meant.

    Raises:
        ConfigurationError: There is no such table, or it has no live stream, or rows are to be carried that no launch
            would fold in.
        NaiveInstantError: `at` has no zone.
        FenceError: `at` is no instant, or is far ahead of now, or the fence cannot be moved there. The fence stays
            where it is.
    """
    from backfill_assets.core.live.fence_moves import end_interrupted_move, move_fence
    from backfill_assets.core.live.ports import Effects
    from backfill_assets.lake.current_table import refuse_retired
    from backfill_assets.live.fence_queries import status_of

    chosen, stream = with_stream(project.table(key))
    if carry and stream.late != "fold":
        raise ConfigurationError(
            f"`{key}`: `--carry-live-rows` puts rows among the late ones, which no launch folds in with `live.late: "
            f"{stream.late}`.",
            state="Nothing was changed.",
            remedy="Export the rows to the source too; or launch with `discard_uncovered_rows: true`.",
        )
    instant = None if at is None else _instant(at, key)
    spec, effects = chosen.spec, Effects(log=log)
    if instant is not None and not is_sure:
        _refuse_far_ahead(spec, instant, effects.now())
    live = chosen.lakehouse.live_table(spec, log)
    if instant is not None or carry:
        refuse_retired(chosen.lakehouse.current_table(), key)
    if instant is None:
        before = end_interrupted_move(spec, live, effects)
    else:
        live.table.create()
        before = move_fence(spec, live, instant, effects).before
        _tell(spec, live.fence(), log)
    carried = live.carry_live_rows() if carry else 0
    return FenceReport(key, before, status_of(live, live.table.published()), carried, instant)


def _tell(spec: TableSpec, fence: Fence | None, log: Callable[[str], None]) -> None:
    """Tell Dagster where the fence is: what is launched by itself goes by that, and no batch may come for long.

    The partitions that were sealed are missing from now on, until they are launched.
    """
    import dagster as dg

    from backfill_assets.assets.live import batch_metadata, live_asset_key
    from backfill_assets.assets.live_partitions import withdraw_sealed

    try:
        with dg.DagsterInstance.get() as instance:
            metadata = batch_metadata([], fence)
            instance.report_runless_asset_event(dg.AssetMaterialization(live_asset_key(spec), metadata=metadata))
            if fence is not None:
                withdraw_sealed(instance, spec, fence)
    except Exception as error:  # noqa: BLE001 (whatever Dagster's storage raises; the fence has moved all the same)
        log(f"Dagster could not be told of it; the next batch does: {type(error).__name__}: {error}")


def with_stream(chosen: ProjectTable) -> tuple[ProjectTable, LiveStream]:
    """Return a table that has a live stream, and that stream.

    Raises:
        ConfigurationError: It has none.
    """
    if chosen.spec.live is None:
        raise ConfigurationError(
            f"`{chosen.spec.key}` has no live stream, and so no fence.",
            state="Nothing was changed.",
            remedy="Add `live:` to its spec: the folder of its events, and the first day that the stream owns.",
        )
    return chosen, chosen.spec.live


def _refuse_far_ahead(spec: TableSpec, at: datetime, now: datetime) -> None:
    """Refuse a fence that is probably a slip of the pen: it could never be moved back."""
    following = spec.grid.partition_of(spec.grid.partition_of(now).window.end_utc).window.end_utc
    if at > following:
        raise FenceError(
            f"`{at.isoformat()}` is far ahead of now, and a fence is never moved back: every event before it would be "
            "late.",
            state=f"The fence of `{spec.key}` was not moved.",
            remedy=f"Name an instant up to `{following.isoformat()}`, or repeat the command with `--yes`.",
        )


def _instant(text: str, key: str) -> datetime:
    from backfill_assets.core.calendar.windows import as_utc

    try:
        return as_utc(datetime.fromisoformat(text))
    except NaiveInstantError:
        raise
    except (ValueError, OverflowError) as error:
        raise FenceError(
            f"`{text}` is not an instant.",
            state=f"The fence of `{key}` was not moved.",
            remedy="Write it like 2026-01-01T00:00:00Z.",
        ) from error
