"""How the reading of a chunk is cut into queries of about the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from backfill_assets.core.postgres.sql import Bound


def stretches(
    partitions: Sequence[tuple[tuple[Bound, Bound], int]], rows_per_read: int
) -> Iterator[tuple[Bound, Bound]]:
    """Cut partitions, in order, into stretches of about so many rows each; several small ones are read as one.

    Args:
        partitions: Begin and end of each, and its rows.
    """
    pending: tuple[Bound, Bound] | None = None
    pending_rows = 0
    for (start, end), rows in partitions:
        if pending and (pending[1] != start or pending_rows + rows > rows_per_read):
            yield pending
            pending, pending_rows = None, 0
        pieces = min(-(-rows // rows_per_read), 1_000) if rows > rows_per_read else 1
        if pieces > 1 and isinstance(start, datetime) and isinstance(end, datetime):
            cuts = [start + (end - start) * piece / pieces for piece in range(pieces)] + [end]
            yield from pairwise(cuts)
        else:
            pending, pending_rows = (pending[0] if pending else start, end), pending_rows + rows
    if pending:
        yield pending
