"""Receipts of the live side: what one commit of a stream, or the end of an epoch, did; JSON in the commit itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.receipts import marked_body
from backfill_assets.errors import ReceiptError

MARK = "backfill_assets_live"
"""Key by which a commit's user metadata is known to be a receipt of the live side."""

FORMAT = 1

CLOSED = 1 << 62
"""The transaction version that ends an epoch: no batch has a larger number."""


@dataclass(frozen=True, slots=True)
class LiveReceipt:
    """What one commit of the live side did; stored in the commit itself.

    Args:
        kind: `batch`: rows of one batch; `close`: the end of an epoch, without rows.
        fence_utc: The fence that split the batch, in ISO format; for `close`, where the fence is about to stand.
        until_utc: Events from this instant on were taken for a wrong clock and quarantined.
        rows: Rows that went into the table, the late table and the quarantine.
        landed_utc: When the oldest and the newest file of the batch landed.
        digest: Of the batch's lines; empty where nobody took it.
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
    digest: str = ""

    @property
    def fence(self) -> datetime:
        return datetime.fromisoformat(self.fence_utc)

    @property
    def until(self) -> datetime:
        return datetime.fromisoformat(self.until_utc)

    def to_json(self) -> str:
        return json.dumps({MARK: FORMAT, **asdict(self)}, separators=(",", ":"))


def live_receipt_from_json(text: str | None) -> LiveReceipt | None:
    """Read a commit's user metadata; None if it is somebody else's, or of another format.

    Raises:
        ReceiptError: It is a live receipt that is damaged.
    """
    body = marked_body(text, MARK)
    if body is None or body.pop(MARK) != FORMAT:
        return None
    try:
        body["landed_utc"] = tuple(body["landed_utc"]) if body.get("landed_utc") else None
        return LiveReceipt(**body)
    except (TypeError, ValueError) as error:
        raise ReceiptError(
            f"A live commit holds a receipt that cannot be read ({error}).",
            state="The table's rows are not affected.",
            remedy="Only this package writes such receipts: find out who changed the table's log.",
        ) from error


def is_batch(stream: str, number: int | None = None) -> Callable[[LiveReceipt], bool]:
    """Return what holds for the receipt of one batch of a stream, or of any."""
    return lambda receipt: (
        receipt.kind == "batch" and receipt.stream == stream and (number is None or receipt.batch == number)
    )


def closes(fence: Fence) -> Callable[[LiveReceipt], bool]:
    """Return what holds for the receipt of the commit that ended a fence's epoch."""
    return lambda receipt: receipt.kind == "close" and receipt.stream == fence.stream and receipt.epoch == fence.epoch
