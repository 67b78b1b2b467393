"""How long a launch takes: its steps measured, and its chunks cut so that a live writer never waits too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backfill_assets.core.calendar.partitions import Partition


class PublishPace:
    """Says how many partitions may be saved at once, so that a live writer waits no longer than it may.

    Args:
        max_seconds: None where nobody waits.
    """

    PARTITIONS_A_SECOND, BYTES_A_SECOND = 55.0, 6.4 * (1 << 20)
    """What is expected before anything was measured: about half of what two cores with a local disk save."""

    def __init__(self, max_seconds: float | None) -> None:
        self._max_seconds = max_seconds
        self._partitions: int | None = None

    def most_saved(self, chunk: Sequence[Partition], size_bytes: Mapping[str, int]) -> int | None:
        """Return how many partitions one commit may have, judged by how long the last one took; None: any number."""
        return None if self._max_seconds is None else self._partitions or self._first(chunk, size_bytes)

    def saw(self, save_seconds: float, partitions: int) -> None:
        """Take note of how long saving some partitions took."""
        if self._max_seconds is not None:
            self._partitions = max(1, int(self._max_seconds / max(save_seconds / partitions, 1e-6)))

    def _first(self, chunk: Sequence[Partition], size_bytes: Mapping[str, int]) -> int:
        """Return how many partitions to begin with."""
        seconds, total = self._max_seconds or 0, 0
        most = max(1, int(self.PARTITIONS_A_SECOND * seconds))
        for count, partition in enumerate(chunk[:most]):
            total += size_bytes.get(partition.key, 0)
            if total > self.BYTES_A_SECOND * seconds:
                return max(1, count)
        return most


def cut(chunk: list[Partition], most_saved: int | None, saved: int) -> tuple[list[Partition], list[Partition]]:
    """Part a chunk into what is published now and the rest, in parts of about the same size.

    Args:
        saved: How many of its partitions will be written; those that are in the table already keep nobody waiting.
    """
    if most_saved is None or saved <= most_saved:
        return chunk, []
    size = -(-len(chunk) // -(-len(chunk) // most_saved))
    return chunk[:size], chunk[size:]


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
