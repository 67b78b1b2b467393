"""What the live side needs of an engine: a batch, and a table to append it to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from backfill_assets.core.history.ports import Rows
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import CommitConflictError, TableLockedError

WAIT_SECONDS = 60.0
"""How long a batch waits for a fence that is being moved."""


@dataclass(frozen=True, slots=True)
class Split(Generic[Rows]):
    """One batch, split at the fence.

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

    @property
    def digest(self) -> str:
        """What tells it from another batch: of its lines, whatever their order; known after a split."""
        ...

    def split(self, fence: datetime, until: datetime) -> Split[Rows]:
        """Split the rows at the fence; those from `until` on are quarantined."""
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

    def used_up_to(self, name: str) -> int:
        """Return the largest number of a batch that a transaction id has used up, as far as that outlives receipts.

        Returns:
            -1 if it was no batch's, or only commits whose receipts are still there say so.
        """
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
class Effects:
    """How a writer waits, and what it says.

    Args:
        now: The instant that it is, for what is too far in the future.
        clock: Seconds that only go forward, for how long something lasts.
    """

    log: Callable[[str], None] = field(default=lambda _: None)
    sleep: Callable[[float], None] = field(default=time.sleep)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    wait_seconds: float = WAIT_SECONDS
    clock: Callable[[], float] = field(default=time.monotonic)


def retry_until_committed(effects: Effects, append: Callable[[], None]) -> None:
    """Repeat a commit that can be repeated safely until it is made."""
    while True:
        try:
            append()
        except (CommitConflictError, TableLockedError) as error:
            effects.log(f"Tried again: {error}")
            effects.sleep(0.2)
        else:
            return
