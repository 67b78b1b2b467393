"""What a launch does besides reading and writing tables: it says how far it is, waits, and looks at the clock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Effects:
    """What a launch does besides reading and writing tables.

    Args:
        log: Called with one sentence whenever a person would want to know.
        sleep: Called with seconds before another attempt.
        clock: Seconds that only go forward.
        now: The instant that it is.
    """

    log: Callable[[str], None] = field(default=lambda _: None)
    sleep: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


ATTEMPTS = 5
"""So often a commit is tried that others come before."""


def seconds_after(attempt: int) -> float:
    """Return how long to wait after an attempt, the first of which is 1: twice as long each time, about."""
    return random.uniform(0.5, 1.5) * 2 ** (attempt - 1)  # noqa: S311 (jitter, not a secret)
