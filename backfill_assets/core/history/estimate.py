"""How long a launch will take, and what it will cost: judged by chunks that were published before. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backfill_assets.core.state.receipts import Receipt

ROWS_A_PARTITION = 2_000
"""A partition costs about as much as so many rows do: its folder, its file, its entry in the log."""

NEAREST = 5
"""So many earlier chunks of about the same size say how long another one takes."""

SECONDS_A_ROW_FAST, SECONDS_A_ROW_SLOW = 1 / 250_000, 1 / 25_000
"""What is guessed where nothing was ever published: two cores with a local disk, and a tenth of that."""


@dataclass(frozen=True, slots=True)
class PastChunk:
    """One chunk that was published: how much it was, and how long it took from its first read to its commit."""

    partitions: int
    rows: int
    seconds: float

    @property
    def work(self) -> int:
        return work_of(self.partitions, self.rows)


@dataclass(frozen=True, slots=True)
class Prices:
    """What a user pays.

    Args:
        per_gb: For each 10^9 bytes that are read from the source.
        per_hour: For each hour that a launch runs.
    """

    currency: str
    per_gb: float = 0.0
    per_hour: float = 0.0

    def cost(self, size_bytes: int, seconds: tuple[float, float]) -> tuple[float, float]:
        """Return the least and the most that a launch costs."""
        read = self.per_gb * size_bytes / 1e9
        return read + self.per_hour * seconds[0] / 3600, read + self.per_hour * seconds[1] / 3600


def work_of(partitions: int, rows: int) -> int:
    """Return how much some partitions are, in rows."""
    return rows + ROWS_A_PARTITION * partitions


def seconds_of(chunks: Sequence[int], past: Sequence[PastChunk]) -> tuple[float, float]:
    """Return the least and the most seconds that chunks will take to publish, one after the other.

    The chunks of the past that are nearest in size say it. A smaller one's time counts as it was at least, and in
    proportion at most; a larger one's the other way round, for a part of every chunk's time is the same for all sizes.

    | chunks         | past: seconds for work                | least | most |
    |----------------|---------------------------------------|-------|------|
    | 100000         | 10 for 100000                         | 10    | 10   |
    | 100000         | 10 for 100000, 14 for 100000          | 10    | 14   |
    | 200000         | 10 for 100000                         | 10    | 20   |
    | 50000          | 10 for 100000                         | 5     | 10   |
    | 100000, 100000 | 10 for 100000                         | 20    | 20   |
    | 250000         | nothing                               | 1     | 10   |
    | nothing        | 10 for 100000                         | 0     | 0    |

    Args:
        chunks: The work of each, as `work_of` says it.
    """
    least = most = 0.0
    for work in chunks:
        near = sorted(past, key=lambda chunk: abs(math.log(max(work, 1) / max(chunk.work, 1))))[:NEAREST]
        ratios = [(chunk.seconds, work / max(chunk.work, 1)) for chunk in near]
        least += min((s * min(1.0, ratio) for s, ratio in ratios), default=work * SECONDS_A_ROW_FAST)
        most += max((s * max(1.0, ratio) for s, ratio in ratios), default=work * SECONDS_A_ROW_SLOW)
    return least, most


def past_chunks(receipts: Mapping[int, Receipt], committed: Mapping[int, datetime]) -> list[PastChunk]:
    """Return what receipts tell of how long chunks took; those of older formats do not say.

    Args:
        committed: When versions of the table were committed.
    """
    found: list[PastChunk] = []
    for version, receipt in receipts.items():
        if receipt.kind != "publish" or not receipt.began_at or version not in committed:
            continue
        seconds = (committed[version] - datetime.fromisoformat(receipt.began_at)).total_seconds()
        if seconds > 0:  # a clock may have been set back
            rows = sum(part.rows for part in receipt.partitions.values())
            found.append(PastChunk(len(receipt.partitions), rows, seconds))
    return found
