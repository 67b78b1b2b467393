"""The live side of the fence: how one batch of a stream is written exactly once. Knows no Spark.

A batch commits the table first, with a receipt that names the fence that split it; then the late rows, split by that same
fence; then what was quarantined. Whatever happens between any two of these, the batch is written once when it is
replayed: its receipt says whether and how it was split, and each append carries its batch number as a transaction id.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, Protocol, TypeVar

from backfill_assets.core.history.ports import Rows
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import (
    CommitConflictError,
    FenceMoveInterruptedError,
    ReceiptError,
    StreamMismatchError,
    TableLockedError,
)

MARK = "backfill_assets_live"
"""Key by which a commit's user metadata is known to be a receipt of the live side."""

FORMAT = 1
CLOSED = 1 << 62
"""The transaction version that ends an epoch: no batch has a larger number."""

WAIT_SECONDS = 60.0
"""How long a batch waits for a fence that is being moved."""

NEIGHBOURS = 31
"""Partitions of history before the fence whose keys are held against the live ones."""

CHECKS = {
    "live_is_writing": "The newest batch is not older than `live.silent_after_seconds`.",
    "no_gap_at_fence": "Every partition before the fence is published; every closed live one holds exactly the events that landed.",
    "no_overlap_at_fence": f"No partition is written by both sides; no live key is in the last {NEIGHBOURS} partitions before the fence.",
    "late_rows_are_folded": "No partition waits for a launch that folds late rows in.",
    "nothing_is_quarantined": "Everything that landed was an event of the table.",
}
"""What is looked at around the fence: what holds when a check is green."""


@dataclass(frozen=True, slots=True)
class LiveReceipt:
    """What one commit of the live side did; stored in the commit itself.

    Args:
        kind: `batch`: rows of one batch; `close`: the end of an epoch, without rows.
        fence_utc: The fence that split the batch, in ISO format; for `close`, where the fence is about to stand.
        until_utc: Events from this instant on were taken for a wrong clock and quarantined.
        rows: Rows that went into the table, the late table and the quarantine.
        landed_utc: When the oldest and the newest file of the batch landed.
    """

    receipt_id: str
    table: str
    stream: str
    epoch: int
    batch: int
    fence_utc: str
    until_utc: str = ""
    kind: Literal["batch", "close"] = "batch"
    rows: int = 0
    late_rows: int = 0
    quarantined_rows: int = 0
    landed_utc: tuple[str, str] | None = None

    @property
    def fence(self) -> datetime:
        return datetime.fromisoformat(self.fence_utc)

    @property
    def until(self) -> datetime:
        return datetime.fromisoformat(self.until_utc)

    def to_json(self) -> str:
        return json.dumps({MARK: FORMAT, **asdict(self)}, separators=(",", ":"))


def live_receipt_from_json(text: str | None) -> LiveReceipt | None:
    """Read a commit's user metadata; None where it is somebody else's.

    Raises:
        ReceiptError: It is a live receipt, of a format that this version does not know or damaged.
    """
    if not text or MARK not in text:
        return None
    try:
        parsed: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or MARK not in parsed:
        return None
    body: dict[str, Any] = {**parsed}
    try:
        if (version := body.pop(MARK)) != FORMAT:
            raise ValueError(f"format {version}")
        body["landed_utc"] = tuple(body["landed_utc"]) if body.get("landed_utc") else None
        return LiveReceipt(**body)
    except (TypeError, ValueError) as error:
        raise ReceiptError(
            f"A live commit holds a receipt that cannot be read ({error}).",
            state="The table's rows are not affected.",
            remedy=f"This version reads format {FORMAT}; use the version of backfill_assets that wrote the commit, or a newer one.",
        ) from error


@dataclass(frozen=True, slots=True)
class Split(Generic[Rows]):
    """One batch, parted at a fence.

    Args:
        live: Rows at or after the fence.
        late: Rows before it.
        quarantined: What is no event of this table, with the reason.
        counts: Rows of the three, in this order.
    """

    live: Rows
    late: Rows
    quarantined: Rows
    counts: tuple[int, int, int]


class Batch(Protocol[Rows]):
    """What a stream gives at a time; a replay has the same number and the same rows."""

    @property
    def number(self) -> int: ...

    @property
    def landed_utc(self) -> tuple[str, str] | None:
        """When the oldest and the newest file of it landed."""
        ...

    def split(self, fence: datetime, until: datetime) -> Split[Rows]:
        """Part the rows at the fence; those from `until` on are quarantined."""
        ...


Appended_contra = TypeVar("Appended_contra", contravariant=True)
"""The same frame where it is only taken."""


class LiveLake(Protocol[Appended_contra]):
    """What the live side needs of a table."""

    def fence(self) -> Fence | None:
        """Return the fence as it is now."""
        ...

    def append(self, rows: Appended_contra, receipt: LiveReceipt, transaction: tuple[str, int]) -> bool:
        """Append rows in one commit that carries the receipt; return whether that commit is in the log.

        It is not when the transaction's number was used up before: by the same batch, or by the end of the epoch.

        Raises:
            CommitConflictError: Another writer came between. The table is unchanged; a retry is safe.
            TableLockedError: Another writer holds the lock. The table is unchanged; a retry is safe.
        """
        ...

    def close(self, receipt: LiveReceipt, transaction: tuple[str, int]) -> None:
        """Use up an epoch's transaction id by an empty commit; the same errors as `append`."""
        ...

    def find(self, matches: Callable[[LiveReceipt], bool]) -> LiveReceipt | None:
        """Return the newest live receipt in the log for which something holds."""
        ...

    def append_late(self, rows: Appended_contra, transaction: tuple[str, int]) -> None:
        """Append to `<table>_late`; a transaction that was committed before does nothing."""
        ...

    def append_quarantine(self, rows: Appended_contra, transaction: tuple[str, int]) -> None:
        """Append to `<table>_quarantine`; a transaction that was committed before does nothing."""
        ...

    def rows_from(self, at: datetime) -> int:
        """Return how many rows the table has in partitions that start at an instant or later."""
        ...

    def store_fence(self, fence: Fence, *, instead_of: Fence) -> None:
        """Store a fence in the table's properties, unless another than `instead_of` is there by now."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How a writer waits, and what it says."""

    log: Callable[[str], None] = field(default=lambda _: None)
    sleep: Callable[[float], None] = field(default=time.sleep)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    wait_seconds: float = WAIT_SECONDS


# -- one batch -----------------------------------------------------------------------------------------------------------


def write_batch(
    spec: TableSpec,
    batch: Batch[Rows],
    lake: LiveLake[Rows],
    stream: str,
    pace: Pace,
    *,
    is_first: bool = True,
    committed: Callable[[], object] = lambda: None,
) -> LiveReceipt:
    """Write one batch exactly once, whatever happened to it before.

    Args:
        stream: Id of the stream that the batch belongs to.
        is_first: Whether the writer has just started: only then can the batch have been committed before.
        committed: Called when its rows at or after the fence can be read.

    Returns:
        The receipt of its commit, which may be an older one.

    Raises:
        StreamMismatchError: The table belongs to another stream. Nothing was written.
        FenceMoveInterruptedError: The fence was being moved, and whoever moved it is gone. Nothing of this batch was written.
    """
    receipt = lake.find(_is_batch(stream, batch.number)) if is_first else None
    if receipt is None:
        receipt = _commit_live_rows(spec, batch, lake, stream, pace)
    else:
        pace.log(f"Batch {batch.number} was committed before; only what it lacks is written.")
    committed()
    split = batch.split(receipt.fence, receipt.until)
    if receipt.late_rows and spec.live and spec.live.late != "ignore":
        insist(pace, lambda: lake.append_late(split.late, (f"late:{stream}", batch.number)))
    if receipt.quarantined_rows:
        insist(pace, lambda: lake.append_quarantine(split.quarantined, (f"quarantine:{stream}", batch.number)))
    return receipt


def _commit_live_rows(spec: TableSpec, batch: Batch[Rows], lake: LiveLake[Rows], stream: str, pace: Pace) -> LiveReceipt:
    """Append the rows at or after the fence; read the fence again whenever the append was not made."""
    waiting_for, waiting_since = None, pace.now()
    while True:
        fence = the_fence_of(spec, lake)
        if fence.stream != stream:
            raise another_stream(spec, fence, stream)
        if batch.number <= fence.last_batch:  # an earlier epoch committed it
            receipt = lake.find(_is_batch(stream, batch.number))
            if receipt is None:
                raise ReceiptError(
                    f"`{spec.key}`: batch {batch.number} of stream `{stream}` was committed in an earlier epoch, and the log no longer "
                    "has its receipt, which says where its late rows were parted.",
                    state="Its rows at or after the fence of then are in the table; its late rows may not be in the late table.",
                    remedy=f"Seal the live partitions (`backfill-assets fence {spec.key} --at ...`), launch them from their source, and "
                    f"start a new stream: `backfill-assets live {spec.key} --new-stream`.",
                )
            return receipt
        until = pace.now() + timedelta(seconds=spec.live.max_future_seconds if spec.live else 0)
        split = batch.split(fence.at_utc, until)
        receipt = LiveReceipt(
            receipt_id=uuid.uuid4().hex,
            table=spec.key,
            stream=stream,
            epoch=fence.epoch,
            batch=batch.number,
            fence_utc=fence.at_utc.isoformat(),
            until_utc=until.isoformat(),
            rows=split.counts[0],
            late_rows=split.counts[1],
            quarantined_rows=split.counts[2],
            landed_utc=batch.landed_utc,
        )
        try:
            if lake.append(split.live, receipt, (fence.transaction_id, batch.number)):
                return receipt
        except (CommitConflictError, TableLockedError) as error:
            pace.log(f"Batch {batch.number} is tried again: {error}")
            pace.sleep(0.2)
            continue
        known = lake.find(_is_batch(stream, batch.number))
        if known is not None:
            return known
        if fence != waiting_for:  # its epoch has just been ended: whoever does that has time from now on
            waiting_for, waiting_since = fence, pace.now()
        elif (pace.now() - waiting_since).total_seconds() > pace.wait_seconds:
            raise _interrupted(spec, lake, fence)
        pace.log(f"Batch {batch.number} waits: the fence is being moved.")
        pace.sleep(1.0)


def insist(pace: Pace, append: Callable[[], None]) -> None:
    """Repeat a commit that can be repeated safely until it is made."""
    while True:
        try:
            append()
        except (CommitConflictError, TableLockedError) as error:
            pace.log(f"Tried again: {error}")
            pace.sleep(0.2)
        else:
            return


def _is_batch(stream: str, number: int) -> Callable[[LiveReceipt], bool]:
    return lambda receipt: receipt.kind == "batch" and receipt.stream == stream and receipt.batch == number


def another_stream(spec: TableSpec, fence: Fence, stream: str) -> StreamMismatchError:
    """Return the error for a stream that a table does not belong to."""
    return StreamMismatchError(
        f"`{spec.key}` belongs to stream `{fence.stream or 'none'}`, and this is `{stream}`: two streams would write the same "
        "events twice.",
        state="Nothing was written.",
        remedy="Start the writer with the checkpoint of that stream. If it is lost: seal the live partitions, launch them from their "
        f"source, then `backfill-assets live {spec.key} --new-stream`.",
    )


def the_fence_of(spec: TableSpec, lake: LiveLake[Rows]) -> Fence:
    """Return the fence of a table that must have one.

    Raises:
        StreamMismatchError: The spec names no live stream.
    """
    fence = lake.fence()
    if fence is None:
        raise StreamMismatchError(
            f"`{spec.key}` has no live stream, and so no fence.",
            state="Nothing was changed.",
            remedy="Add `live:` to its spec: the folder of its events, and the day from which on the stream owns them.",
        )
    return fence


def _interrupted(spec: TableSpec, lake: LiveLake[Rows], fence: Fence) -> FenceMoveInterruptedError:
    closing = lake.find(closes(fence))
    target = closing.fence_utc if closing else "the fence that was meant"
    return FenceMoveInterruptedError(
        f"`{spec.key}`: the fence was about to be moved from `{fence.at_utc.isoformat()}` to `{target}`, and whoever moved it did "
        "not end it.",
        state="Live writing has stopped; nothing is lost, the events wait where they landed.",
        remedy=f"End the move: `backfill-assets fence {spec.key} --at {target}`; then start the writer again.",
    )


def closes(fence: Fence) -> Callable[[LiveReceipt], bool]:
    """Return what holds for the receipt of the commit that ended a fence's epoch."""
    return lambda receipt: receipt.kind == "close" and receipt.stream == fence.stream and receipt.epoch == fence.epoch
