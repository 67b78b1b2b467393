"""Moving the fence, and making a stream the one that writes: two steps each, and a crash between them loses nothing."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import datetime

from backfill_assets.core.history.ports import Rows
from backfill_assets.core.live.ownership import another_stream, the_fence_of
from backfill_assets.core.live.ports import Effects, LiveLake, retry_until_committed
from backfill_assets.core.live.receipts import CLOSED, LiveReceipt, closes, is_batch
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence, moved
from backfill_assets.errors import StreamMismatchError


@dataclass(frozen=True, slots=True)
class Move:
    """A fence before and after it was moved."""

    before: Fence
    after: Fence


def move_fence(spec: TableSpec, lake: LiveLake[Rows], at: datetime, effects: Effects) -> Move:
    """Move the fence forward to the start of a partition.

    First the epoch's transaction id is used up, by a commit that names where the fence is about to stand; then the
    fence, the next epoch and the last batch that the old one committed are stored in one step. A crash between the two
    stops live writing until this is called again, and loses nothing: a move that was begun is ended first, then the one
    asked for. Of one that was begun so long ago that the log has forgotten it, nobody knows the last batch before it:
    the one asked for is made, and the stream writes no more.

    Raises:
        NaiveInstantError: `at` has no zone.
        FenceError: `at` lies before the fence, as a move that was begun may have left it, or before the table's start.
            The fence stays where it is.
    """
    before = the_fence_of(spec, lake)
    moved(spec, before, at)
    while True:
        now = end_interrupted_move(spec, lake, effects)
        target = moved(spec, now, at)
        if target == now.at_utc:
            return Move(before, now)
        if now.stream:
            _close(spec, lake, now, target, effects)
            if lake.find(closes(now)) is not None:
                continue
        last_batch = CLOSED if now.stream else now.last_batch  # without a stream nobody can have written
        after = replace(now, at_utc=target, epoch=now.epoch + 1, last_batch=last_batch)
        retry_until_committed(effects, lambda was=now, to=after: lake.store_fence(to, instead_of=was))


def claim(spec: TableSpec, lake: LiveLake[Rows], stream: str, effects: Effects, *, is_new: bool = False) -> Fence:
    """Make a stream the one that may append to a table; does nothing if it is already.

    Args:
        is_new: Whether it may follow another stream, whose checkpoint was lost. It starts over with every event that
            landed, so nothing may be in the live partitions.

    Raises:
        StreamMismatchError: The table belongs to another stream, and that has rows in it that would come twice.
    """
    fence = end_interrupted_move(spec, lake, effects)
    followed = fence.stream
    while fence.stream != stream:
        if fence.stream != followed or (followed and not is_new):
            raise another_stream(spec, fence, stream)
        if not followed or _end_stream(spec, lake, fence, effects):
            after = Fence(fence.at_utc, fence.epoch + 1, -1, stream)
            retry_until_committed(effects, lambda was=fence, to=after: lake.store_fence(to, instead_of=was))
        fence = end_interrupted_move(spec, lake, effects)
    return fence


def _end_stream(spec: TableSpec, lake: LiveLake[Rows], fence: Fence, effects: Effects) -> bool:
    """End the epoch of a stream that is to be followed; it stays ended until the new stream is stored.

    Returns:
        Whether it was ended for this, and not by a move that came first.

    Raises:
        StreamMismatchError: It has live rows. It may write on.
    """
    _close(spec, lake, fence, fence.at_utc, effects)
    closing = lake.find(closes(fence))
    if closing is not None and closing.fence != fence.at_utc:  # None: it was ended before all that the log tells
        return False
    if rows := lake.rows_from(fence.at_utc):
        end_interrupted_move(spec, lake, effects)
        raise StreamMismatchError(
            f"`{spec.key}`: {rows:,} rows at or after the fence (`{fence.at_utc.isoformat()}`) are of stream "
            f"`{fence.stream}`, and a new stream would write them again.",
            state="Nothing was written; the events wait where they landed.",
            remedy=f"Seal them first: `backfill-assets fence {spec.key} --at ...`, at an instant after the newest "
            "of them.",
        )
    return True


def _close(spec: TableSpec, lake: LiveLake[Rows], fence: Fence, target: datetime, effects: Effects) -> None:
    """End an epoch: no writer of it can commit any more."""
    closing = LiveReceipt(
        uuid.uuid4().hex, spec.key, fence.stream, fence.epoch, CLOSED, fence_utc=target.isoformat(), kind="close"
    )
    retry_until_committed(effects, lambda: lake.close(closing, (fence.transaction_id, CLOSED)))


def end_interrupted_move(spec: TableSpec, lake: LiveLake[Rows], effects: Effects) -> Fence:
    """Do the second step of a move whose first step is in the log; return the fence as it is then."""
    fence = the_fence_of(spec, lake)
    closing = lake.find(closes(fence)) if fence.stream else None
    if closing is None:
        return fence
    newest = lake.find(is_batch(fence.stream))
    last_batch = max(fence.last_batch, newest.batch if newest else lake.used_up_to(fence.transaction_id))
    after = Fence(closing.fence, fence.epoch + 1, last_batch, fence.stream)
    retry_until_committed(effects, lambda: lake.store_fence(after, instead_of=fence))
    return the_fence_of(spec, lake)
