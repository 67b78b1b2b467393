"""How long the steps of a launch take."""

from __future__ import annotations

from collections.abc import Callable


class Stopwatch:
    """Counts the seconds that each step took.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last = clock, clock()
        self.seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """End a step; one that comes again adds up."""
        now = self._clock()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now
