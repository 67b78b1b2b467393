"""Both sides of a comparison as of one moment: of a source that the table follows while it changes.

A source that stands still is read, and then the table is. Where clients write all the time the two would never be
equal, so the source says what it has at a moment, and what the table had by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, runtime_checkable

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Difference, Rows

DIGEST_VERSION = 1
"""Of how a row's digest is made: the MD5 of its values' texts in the order of the spec's columns, each with its length
before it, NULL a dash; the texts are those of `core.postgres.sql` and `sources.database.values`."""


@dataclass(frozen=True, slots=True)
class RowSums:
    """What one side has of a partition: as a database and Spark can both add it up.

    Args:
        first: Sum over the first 60 bits of each row's digest.
        second: Sum over 60 other bits of it.
        unreadable: Rows with a value that their column's type cannot be.
    """

    rows: int = 0
    first: int = 0
    second: int = 0
    unreadable: int = 0

    @property
    def checksum(self) -> str:
        """Both sums in one text, with the version of what was added up."""
        return f"{DIGEST_VERSION}:{self.first:x}:{self.second:x}"


@dataclass(frozen=True, slots=True)
class Moment(Generic[Rows]):
    """What source and table had of some partitions at one moment of the source.

    Args:
        at: The moment, in words.
        source: By partition key; a key without rows may be missing.
        table: Likewise: what one version of the table has, with the changes that had happened by the moment.
        problems: Why the source is not what the spec says, by partition key.
        rows: Returns the rows of both sides, the source's first.
        differences: Counts and names the rows that only one side has, of some partitions.
        release: Closes what is open for it.
    """

    at: str
    source: Mapping[str, RowSums]
    table: Mapping[str, RowSums]
    rows: Callable[[Sequence[Partition]], tuple[Rows, Rows]]
    differences: Callable[[Sequence[Partition]], Mapping[str, Difference]]
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    release: Callable[[], None] = lambda: None


@runtime_checkable
class FollowedSource(Protocol[Rows]):
    """A source whose changes the table follows."""

    def moment(self, partitions: Sequence[Partition], *, version: int) -> Moment[Rows]:
        """Return what both sides had at a moment that has everything which a version of the table has.

        Raises:
            FeedBehindError: The feed does not come up to the moment.
        """
        ...
