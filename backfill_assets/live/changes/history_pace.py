"""When a table may read of its past by itself: changes are folded in at any time, the past in its turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from backfill_assets.core.spec.pace import LaunchPace
from backfill_assets.core.words import seconds_in_words


@dataclass(slots=True)
class HistoryPace:
    """Says of one table whether a piece of its past may be read now. Nobody is kept waiting for it.

    Args:
        opens_at: When the off-peak hours of a spec that has some begin; now, if they have begun.
    """

    pace: LaunchPace = field(default_factory=LaunchPace)
    opens_at: Callable[[datetime], datetime] = field(default=lambda now: now)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    clock: Callable[[], float] = field(default=time.monotonic)
    _rests_until: float = field(default=0.0, init=False)

    def waits_for(self) -> str:
        """Say what the next piece waits for; empty if it may be read."""
        if self.pace.off_peak is not None and (opens := self.opens_at(self.now())) > self.now():
            return f"the off-peak hours, which begin at {opens:%Y-%m-%d %H:%M} UTC"
        if (left := self._rests_until - self.clock()) > 0:
            return f"`max_rows_per_second`, {seconds_in_words(left)} more"
        return ""

    def saw(self, rows: int, began: float) -> None:
        """Take note of how many rows a piece had, and when it began by the clock."""
        if self.pace.max_rows_per_second:
            self._rests_until = began + rows / self.pace.max_rows_per_second
