"""Rows of a chunk after they were read: what was counted of them, and the rows themselves where they were kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.core.state.tallies import Tally

Rows = TypeVar("Rows")
"""A frame of the engine that reads and writes: Spark's DataFrame; in the core's tests a list."""


@dataclass(frozen=True, slots=True)
class StagedChunk(Generic[Rows]):
    """Staged rows after they were read: late rows joined, one row per key, tallied, and kept for who reads them again.

    Args:
        kept: The staged columns and the partition column; None where the rows were tallied and not kept.
        tallies: By partition key; a key without rows is missing.
        superseded_rows: By partition key; only keys that have any.
        partition_by_file: As they were staged, and those of the late rows.
        late: What was joined.
        parts: The rows as they were read, for the writer that publishes them.
    """

    kept: Rows | None
    tallies: Mapping[str, Tally]
    superseded_rows: Mapping[str, int]
    partition_by_file: Mapping[Any, str] | None
    release: Callable[[], None]
    late: Late = NO_LATE
    parts: tuple[Any, ...] = ()

    @property
    def rows(self) -> Rows:
        """What was kept.

        Raises:
            ValueError: Nothing was: read again, the rows may be others than those that were tallied.
        """
        if self.kept is None:
            raise ValueError("these rows were tallied and not kept")
        return self.kept

    @property
    def count(self) -> int:
        """Rows of all partitions together."""
        return sum(tally.rows for tally in self.tallies.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
