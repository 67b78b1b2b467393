"""What one commit leaves in the table over lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backfill_assets.core.live.receipts import live_receipt_from_json
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.state.receipts import receipt_from_json
from backfill_assets.errors import NOTHING_WRITTEN, UndoError
from tests.support.fakes import Row


@dataclass(frozen=True)
class Version:
    """The table after one commit: rows by partition key, its fence, which keys the commit wrote, and what else it carries."""

    rows: Mapping[str, tuple[Row, ...]]
    touched: frozenset[str] = frozenset()
    metadata: str | None = None
    fence: Fence | None = None
    transaction: tuple[str, int] | None = None

    @property
    def is_ours(self) -> bool:
        return bool(receipt_from_json(self.metadata) or live_receipt_from_json(self.metadata))


def cleaned_up(version: int) -> UndoError:
    return UndoError(f"Version {version} was cleaned up.", state=NOTHING_WRITTEN, remedy="Launch from the source.")
