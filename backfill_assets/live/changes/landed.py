"""What a capture lands, and where."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill_assets.core.live.feed import FeedFile, as_lsn
from backfill_assets.core.live.pgoutput import Change, Relation, Truncate


@dataclass(frozen=True, slots=True)
class CaptureTable:
    """A table whose changes are captured."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Landed:
    """What one look at the server has brought.

    Args:
        behind_bytes: How much of the log the server has by now that was not looked at.
    """

    file: FeedFile | None
    transactions: int
    changes: int
    behind_bytes: int

    def __str__(self) -> str:
        where = f"up to {as_lsn(self.file.end)}" if self.file else "nothing new"
        return f"{self.changes:,} changes of {self.transactions:,} transactions, {where}"


def tables_of(change: Change | Truncate) -> Sequence[Relation]:
    """Return the tables that a change is of."""
    return change.relations if isinstance(change, Truncate) else (change.relation,)


def sync(folder: Path) -> None:
    """Have the disk keep the folder's names."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
