"""The live side of the fence: how one batch of a stream is written exactly once. Knows no Spark.

A batch commits the table first, with a receipt that names the fence that split it; then the late rows, split by that
same fence; then what was quarantined. Whatever happens between any two of these, the batch is written once when it is
replayed: its receipt says whether and how it was split, and each append carries its batch number as a transaction id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from backfill_assets.core.history.ports import Rows
from backfill_assets.core.live.ownership import another_stream, has_written, the_fence_of
from backfill_assets.core.live.ports import Batch, Effects, LiveLake, Split, retry_until_committed
from backfill_assets.core.live.receipts import LiveReceipt, closes, is_batch
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import (
    CommitConflictError,
    FenceMoveInterruptedError,
    FirstBatchLateError,
    LiveError,
    ReceiptError,
    TableLockedError,
)

ENOUGH_ROWS = 100
"""A first batch of fewer rows says nothing about its folder."""


def write_batch(
    spec: TableSpec,
    batch: Batch[Rows],
    lake: LiveLake[Rows],
    stream: str,
    effects: Effects,
    *,
    is_first: bool = True,
    accept_late: bool = False,
    committed: Callable[[], object] = lambda: None,
) -> LiveReceipt:
    """Write one batch exactly once, whatever happened to it before.

    Args:
        stream: Id of the stream that the batch belongs to.
        is_first: Whether the writer has just started: only then can the batch have been committed before.
        accept_late: Whether the first batch of a stream may be late almost to the last row.
        committed: Called when its rows at or after the fence can be read.

    Returns:
        The receipt of its commit, which may be an older one.

    Raises:
        StreamMismatchError: The table belongs to another stream. Nothing was written.
        FirstBatchLateError: The stream is new, and more than nine tenths of its first rows are late. Nothing was
            written.
        FenceMoveInterruptedError: The fence was being moved, and whoever moved it is gone. Nothing of this batch was
            written.
        ReceiptError: Its number was used up before, and the log has forgotten by what. Nothing more was written.
        LiveError: It was committed before, and has other lines now, or they are now read as other events. Nothing more
            was written.
    """
    receipt = lake.find(is_batch(stream, batch.number)) if is_first else None
    if receipt is None:
        receipt = _commit_live_rows(spec, batch, lake, stream, effects, accept_late=accept_late)
    else:
        effects.log(f"Batch {batch.number} was committed before; only what is missing is written.")
    committed()
    split = batch.split(receipt.fence, receipt.until)
    if receipt.digest and receipt.digest != batch.digest:
        raise _another_batch(spec, receipt)
    if split.counts != (receipt.rows, receipt.late_rows, receipt.quarantined_rows):
        raise _read_otherwise(spec, split, receipt)
    if receipt.late_rows and spec.live and spec.live.late != "ignore":
        retry_until_committed(effects, lambda: lake.append_late(split.late, (f"late:{stream}", batch.number)))
    if receipt.quarantined_rows:
        retry_until_committed(
            effects, lambda: lake.append_quarantine(split.quarantined, (f"quarantine:{stream}", batch.number))
        )
    return receipt


def _commit_live_rows(
    spec: TableSpec, batch: Batch[Rows], lake: LiveLake[Rows], stream: str, effects: Effects, *, accept_late: bool
) -> LiveReceipt:
    """Append the rows at or after the fence; read the fence again whenever the append was not made."""
    waiting_for, waiting_since = None, effects.clock()
    while True:
        fence = the_fence_of(spec, lake)
        if fence.stream != stream:
            raise another_stream(spec, fence, stream)
        if batch.number <= fence.last_batch:
            if (known := lake.find(is_batch(stream, batch.number))) is None:
                raise _receipt_forgotten(spec, batch.number, stream)
            return known
        split, receipt = _split_at(fence, spec, batch, effects.now())
        if not accept_late and _is_almost_all_late(split) and not has_written(lake, fence):
            raise _first_batch_late(spec, split, fence)
        try:
            if lake.append(split.live, receipt, (fence.transaction_id, batch.number)):
                return receipt
        except (CommitConflictError, TableLockedError) as error:
            effects.log(f"Batch {batch.number} is tried again: {error}")
            effects.sleep(0.2)
            continue
        known = lake.find(is_batch(stream, batch.number))
        if known is not None:
            return known
        if fence != waiting_for:  # its epoch has just been ended: whoever does that has time from now on
            if batch.number <= lake.used_up_to(fence.transaction_id):
                raise _receipt_forgotten(spec, batch.number, stream)
            waiting_for, waiting_since = fence, effects.clock()
        elif effects.clock() - waiting_since > effects.wait_seconds:
            raise _interrupted(spec, lake, fence)
        effects.log(f"Batch {batch.number} waits: the fence is being moved.")
        effects.sleep(1.0)


def _split_at(fence: Fence, spec: TableSpec, batch: Batch[Rows], now: datetime) -> tuple[Split[Rows], LiveReceipt]:
    """Part a batch at the fence, and say so in the receipt that its commit will carry."""
    until = now + timedelta(seconds=spec.live.max_future_seconds if spec.live else 0)
    split = batch.split(fence.at_utc, until)
    live_rows, late_rows, quarantined_rows = split.counts
    receipt = LiveReceipt(
        receipt_id=uuid.uuid4().hex,
        table=spec.key,
        stream=fence.stream,
        epoch=fence.epoch,
        batch=batch.number,
        fence_utc=fence.at_utc.isoformat(),
        until_utc=until.isoformat(),
        rows=live_rows,
        late_rows=late_rows,
        quarantined_rows=quarantined_rows,
        landed_utc=batch.landed_utc,
        digest=batch.digest,
    )
    return split, receipt


def _is_almost_all_late(split: Split[Rows]) -> bool:
    live_rows, late_rows, _ = split.counts
    return live_rows + late_rows >= ENOUGH_ROWS and late_rows * 10 > (live_rows + late_rows) * 9


def _first_batch_late(spec: TableSpec, split: Split[Rows], fence: Fence) -> FirstBatchLateError:
    live_rows, late_rows, _ = split.counts
    path = spec.live.path if spec.live else ""
    return FirstBatchLateError(
        f"`{spec.key}`: {late_rows:,} of the first {live_rows + late_rows:,} rows in `{path}` lie before the fence "
        f"`{fence.at_utc.isoformat()}`, and history comes from {spec.source.description}.",
        state="The stream has written nothing; the events wait where they landed.",
        remedy="Move the old files out of the stream's folder, or correct `live.path`. If they are late events, run "
        f"`backfill-assets live {spec.key} --once --accept-late`.",
    )


def _receipt_forgotten(spec: TableSpec, number: int, stream: str) -> ReceiptError:
    return ReceiptError(
        f"`{spec.key}`: the number of batch {number} of stream `{stream}` was used up before, and the log no longer "
        "has the batch's receipt, which says how its rows were split.",
        state="If it was committed, its rows at or after the fence of that time are in the table; its late rows may "
        "not be in the late table.",
        remedy=f"Seal the live partitions (`backfill-assets fence {spec.key} --at ...`), launch them from their "
        f"source, and start a new stream: `backfill-assets live {spec.key} --new-stream`.",
    )


def _another_batch(spec: TableSpec, receipt: LiveReceipt) -> LiveError:
    return LiveError(
        f"`{spec.key}`: batch {receipt.batch} of stream `{receipt.stream}` was committed before, with other lines than "
        "it has now: the writer's checkpoint is older than the table, as after a restore from a backup, or a landed "
        "file has changed since.",
        state="What was committed then is in the table; lines of this batch that were not in it are in no table yet.",
        remedy="Bring the checkpoint back that the writer had last. If that cannot be: seal the live partitions, "
        f"launch them from their source, and start a new stream: `backfill-assets live {spec.key} --new-stream`.",
    )


def _read_otherwise(spec: TableSpec, split: Split[Rows], receipt: LiveReceipt) -> LiveError:
    live_rows, late_rows, quarantined_rows = split.counts
    return LiveError(
        f"`{spec.key}`: batch {receipt.batch} of stream `{receipt.stream}` was committed before, with {receipt.rows:,} "
        f"live, {receipt.late_rows:,} late and {receipt.quarantined_rows:,} quarantined rows, and is now read as "
        f"{live_rows:,}, {late_rows:,} and {quarantined_rows:,}: the spec, or a landed file, has changed since.",
        state="Its live rows are in the table as they were read then; its late rows and its quarantined lines may not "
        "be written yet.",
        remedy=f"Undo the change, run `backfill-assets live {spec.key} --once`, and make the change again. If that "
        "cannot be: seal the live partitions, launch them from their source, and start a new stream: "
        f"`backfill-assets live {spec.key} --new-stream`.",
    )


def _interrupted(spec: TableSpec, lake: LiveLake[Rows], fence: Fence) -> FenceMoveInterruptedError:
    closing = lake.find(closes(fence))
    target = closing.fence_utc if closing else "the fence that was meant"
    return FenceMoveInterruptedError(
        f"`{spec.key}`: the fence was about to be moved from `{fence.at_utc.isoformat()}` to `{target}`, and "
        "the command that moved it did not finish.",
        state="Live writing has stopped; nothing is lost, the events wait where they landed.",
        remedy=f"Finish the move: `backfill-assets fence {spec.key} --at {target}`; then start the writer again.",
    )
