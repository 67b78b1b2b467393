"""What is tried when a chunk does not fit into memory: halves of it, and slices of a single partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backfill_assets.core.calendar.chunks import halves_of
from backfill_assets.core.calendar.partitions import Partition

SLICES_AT_ONCE, MAX_SLICES = 8, 64
"""A partition that does not fit into memory is cut by key: into how many parts at once, and into how many at most."""


@dataclass(frozen=True, slots=True)
class SmallerPart:
    """What is tried instead of a chunk that did not fit into memory.

    Args:
        slices: Into how many parts each partition is cut by key.
        why: One sentence for the log.
    """

    partitions: list[Partition]
    slices: int
    why: str


def in_smaller_parts(chunk: Sequence[Partition], slices: int, *, is_indivisible: bool = False) -> list[SmallerPart]:
    """Cut a chunk that did not fit into memory: into halves, and a single partition by key; none if it cannot be.

    Args:
        is_indivisible: Whether all of its partitions have to stay together, and so are all cut by key.
    """
    if len(chunk) > 1 and not is_indivisible:
        why = f"Spark ran out of memory over {len(chunk)} partitions; continuing with halves."
        return [SmallerPart(half, slices, why) for half in halves_of(chunk)]
    if slices >= MAX_SLICES:
        return []
    finer = slices * SLICES_AT_ONCE
    what = f"{chunk[0].key} alone" if len(chunk) == 1 else f"{len(chunk)} partitions of one commit"
    why = f"Spark ran out of memory over {what}; continuing with {finer} slices of it by key."
    return [SmallerPart(list(chunk), finer, why)]
