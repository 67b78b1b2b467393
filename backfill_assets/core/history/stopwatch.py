"""Which step a launch is at, and how long each took."""

from __future__ import annotations

from collections.abc import Callable


class Stopwatch:
    """Counts the seconds of each step.

    Args:
        clock: Seconds that only go forward.
        tell: Called with the name of each step that begins.
    """

    def __init__(self, clock: Callable[[], float], tell: Callable[[str], None] = lambda _: None) -> None:
        self._clock, self._tell, self._began, self._step = clock, tell, clock(), ""
        self.seconds: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """Begin a step, which ends the one before; one that comes again adds up."""
        self.end()
        self._step = step
        self._tell(step)

    def end(self) -> None:
        """End a step."""
        now = self._clock()
        if self._step:
            self.seconds[self._step] = self.seconds.get(self._step, 0.0) + now - self._began
        self._began, self._step = now, ""
