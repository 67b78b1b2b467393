"""How the reading of a chunk is cut into queries of about the same size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from backfill_assets.core.postgres.sql import Bound, Stretch

MOST_PIECES = 1_000
"""Of one partition: each is a query."""


def stretches(
    partitions: Sequence[tuple[tuple[Bound, Bound], int]],
    rows_per_read: int,
    places: Callable[[tuple[Bound, Bound], int], Sequence[str]],
) -> Iterator[Stretch]:
    """Cut partitions, in order, into stretches of no more than about so many rows; several small ones are read as one.

    A large one is cut by where its rows lie in the table's files, and not by time or key: however they are spread, a
    day that is one value has as many rows in each piece as a day of instants, and no block of the table is read twice.

    Args:
        partitions: Begin and end of each, and its rows.
        places: Returns where to cut a partition into so many pieces: the last place of each piece but the last one.
    """
    pending: tuple[Bound, Bound] | None = None
    pending_rows = 0
    for (start, end), rows in partitions:
        if pending and (pending[1] != start or pending_rows + rows > rows_per_read):
            yield Stretch(*pending)
            pending, pending_rows = None, 0
        if rows > rows_per_read:
            cuts = places((start, end), min(-(-rows // rows_per_read), MOST_PIECES))
            for after, until in pairwise([None, *dict.fromkeys(cuts), None]):
                yield Stretch(start, end, after, until)
        else:
            pending, pending_rows = (pending[0] if pending else start, end), pending_rows + rows
    if pending:
        yield Stretch(*pending)
