"""Chunks: how the partitions of a launch are cut into commits."""

from __future__ import annotations

from collections.abc import Sequence

from backfill_assets.core.calendar.partitions import Partition


def chunks_of(
    partitions: Sequence[Partition], *, max_partitions: int, max_bytes: int, size_bytes: dict[str, int]
) -> list[list[Partition]]:
    """Cut partitions into chunks of at most so many partitions and so many source bytes, in order.

    A partition is never cut: one that is larger than `max_bytes` is a chunk of its own. The chunks are of about the
    same size, so that the last one is not a crumb.

    | partitions | max_partitions | chunks    |
    |------------|----------------|-----------|
    | 10         | 4              | 4, 3, 3   |
    | 4          | 4              | 4         |
    | 1          | 4              | 1         |

    Args:
        partitions: In any order, without repetition.
        size_bytes: Source bytes by partition key; a key that it lacks counts as 0.
    """
    left = sorted(partitions)
    chunks: list[list[Partition]] = []
    while left:
        bytes_left = sum(size_bytes.get(p.key, 0) for p in left)
        count = max(-(-len(left) // max_partitions), -(-bytes_left // max_bytes))
        even = -(-len(left) // count)
        taken, filled_bytes = 1, size_bytes.get(left[0].key, 0)
        while taken < even and filled_bytes + size_bytes.get(left[taken].key, 0) <= max_bytes:
            filled_bytes += size_bytes.get(left[taken].key, 0)
            taken += 1
        chunks.append(left[:taken])
        left = left[taken:]
    return chunks


def halves_of(chunk: Sequence[Partition]) -> list[list[Partition]]:
    """Cut a chunk of two or more partitions in two."""
    middle = len(chunk) // 2
    return [list(chunk[:middle]), list(chunk[middle:])]
