"""The fence: the start of a partition, which divides history from the live stream. Pure.

History writes whole partitions before it; the live writer appends only at or after it. It only moves forward, so a
partition that was history once stays history, and who reads it once reads it for the whole launch.

A fence has an epoch. Every live commit carries the epoch's transaction id, and moving the fence begins by using that id
up: after that no writer that read the old fence can commit, however late it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.calendar.windows import as_utc, first_day, midnight_utc
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, FenceError, LivePartitionsError

AT, EPOCH, LAST_BATCH, STREAM = (f"backfill_assets.{name}" for name in ("fence", "epoch", "last_batch", "stream"))
"""Properties of the table that hold the fence."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Where history ends and the live stream begins.

    Args:
        at_utc: Start of the first live partition.
        epoch: Counts the moves, from 1.
        last_batch: The last batch that an earlier epoch committed; -1 if none did.
        stream: The one stream that may append; empty until one has begun.
    """

    at_utc: datetime
    epoch: int = 1
    last_batch: int = -1
    stream: str = ""

    @property
    def transaction_id(self) -> str:
        """The transaction id of this epoch's live commits."""
        return f"live:{self.stream}:{self.epoch}"

    def properties(self) -> dict[str, str]:
        """Return the fence as properties of its table."""
        return {
            AT: self.at_utc.isoformat(),
            EPOCH: str(self.epoch),
            LAST_BATCH: str(self.last_batch),
            STREAM: self.stream,
        }


def fence_of(properties: dict[str, str], table: str) -> Fence | None:
    """Read a fence from a table's properties; None where there is none.

    Raises:
        FenceError: There is one, but it cannot be read.
    """
    if AT not in properties:
        return None
    try:
        at_utc = as_utc(datetime.fromisoformat(properties[AT]))
        return Fence(at_utc, int(properties[EPOCH]), int(properties[LAST_BATCH]), properties.get(STREAM, ""))
    except (KeyError, ValueError) as error:
        found = {name: value for name, value in properties.items() if name.startswith("backfill_assets.")}
        raise FenceError(
            f"`{table}`: the fence in the table's properties cannot be read: {found}.",
            state=NOTHING_WRITTEN,
            remedy="Somebody changed them by hand; restore what the newest live commit's receipt names.",
        ) from error


def first_fence(spec: TableSpec) -> Fence | None:
    """Return the fence of a table that was just made; None for a table without a live stream."""
    if spec.live is None:
        return None
    return Fence(midnight_utc(spec.live.starts, spec.grid.zone))


def refuse_past_boundary(
    spec: TableSpec,
    fence: Fence,
    now: datetime,
    *,
    state: str = "The new version was not made, and nothing of it is there.",
) -> None:
    """Refuse to make a new version whose stream would begin in the past: events since then may not land again.

    Raises:
        FenceError: The first partition of its stream has begun.
    """
    if fence.at_utc <= now:
        day = now.astimezone(spec.grid.zone).date() + timedelta(days=1)
        while first_day(day, spec.grain) != day:
            day += timedelta(days=1)
        raise FenceError(
            f"`{spec.key}`: its stream would begin at `{fence.at_utc.isoformat()}`, and that has passed: of what "
            "landed since then nobody knows that it still lies there.",
            state=state,
            remedy=f"Set `live.starts` to `{day}` or later, and make it again.",
            from_day=day.isoformat(),
        )


def refuse_rows_behind(spec: TableSpec, fence: Fence, newest: Partition | None) -> None:
    """Refuse a first fence in a table that has rows at or after it already: the stream would write them once more.

    Args:
        newest: The newest partition with rows.

    Raises:
        FenceError: There are such rows.
    """
    if newest is not None and newest.window.end_utc > fence.at_utc:
        day = newest.window.end_utc.astimezone(spec.grid.zone).date()
        if midnight_utc(day, spec.grid.zone) < newest.window.end_utc:  # hours of that day are history
            day += timedelta(days=1)
        raise FenceError(
            f"`{spec.key}`: the stream would own the partitions from `{fence.at_utc.isoformat()}` on, and history has "
            f"published rows up to `{newest.key}`: they would be there twice.",
            state=NOTHING_WRITTEN,
            remedy=f"Set `live.starts` to `{day}` or later; events of before are folded in as late rows.",
        )


def moved(spec: TableSpec, fence: Fence, at: datetime) -> datetime:
    """Return where a fence comes to stand that is to be moved to an instant: the start of a partition, not before it.

    | fence now  | asked for            | moved to   |
    |------------|----------------------|------------|
    | 2025-12-01 | 2025-12-03T00:00:00Z | 2025-12-03 |
    | 2025-12-01 | 2025-12-03T00:00:01Z | 2025-12-04 |
    | 2025-12-01 | 2025-12-01T00:00:00Z | 2025-12-01 |

    Raises:
        NaiveInstantError: The instant has no zone.
        FenceError: It lies before the fence as it is, or before the table's start.
    """
    at = as_utc(at)
    start = spec.grid.start_utc
    if at < start:
        raise FenceError(
            f"`{spec.key}`: the fence cannot be moved to `{at.isoformat()}`: the table starts at "
            f"`{start.isoformat()}`.",
            state="The fence stays where it is.",
            remedy="Name an instant after that.",
        )
    try:
        around = spec.grid.partition_of(at)
    except OverflowError as error:
        raise FenceError(
            f"`{spec.key}`: the partition that holds `{at.isoformat()}` would end after the year 9999.",
            state="The fence stays where it is.",
            remedy="Name an earlier instant.",
        ) from error
    target = at if around.window.start_utc == at else around.window.end_utc
    if target < fence.at_utc:
        raise FenceError(
            f"`{spec.key}`: the fence is at `{fence.at_utc.isoformat()}` and cannot be moved back to "
            f"`{target.isoformat()}`: what history owns now would be written by both sides.",
            state="The fence stays where it is.",
            remedy="A fence only moves forward. Launch the partitions before it from their source to correct them.",
        )
    return target


def history_part(
    spec: TableSpec, partitions: Sequence[Partition], fence: Fence | None
) -> tuple[list[Partition], tuple[Partition, ...]]:
    """Part the partitions that history owns from those that are live.

    Args:
        partitions: In order.

    Raises:
        LivePartitionsError: All of them are live.
    """
    if fence is None:
        return list(partitions), ()
    history = [p for p in partitions if is_history(p, fence)]
    live = tuple(partitions[len(history) :])
    if live and not history:
        raise LivePartitionsError(
            f"`{spec.key}`: partition `{live[0].key}` and those after it are live: the fence is at "
            f"`{fence.at_utc.isoformat()}`.",
            state=NOTHING_WRITTEN,
            remedy="Launch partitions before it; or, once these have ended, seal them: `backfill-assets fence "
            f"{spec.key} "
            f"--at {live[-1].window.end_utc.isoformat()}`.",
            fence=fence.at_utc,
        )
    return history, live


def is_history(partition: Partition, fence: Fence) -> bool:
    """Say whether a partition lies before the fence as a whole."""
    return partition.window.end_utc <= fence.at_utc


def refuse_live(spec: TableSpec, partitions: Iterable[Partition], fence: Fence | None) -> None:
    """Refuse to overwrite what the live stream owns; asked just before every commit of history.

    Raises:
        LivePartitionsError: At least one partition is live.
    """
    history_part(spec, [p for p in partitions if fence is not None and not is_history(p, fence)], fence)
