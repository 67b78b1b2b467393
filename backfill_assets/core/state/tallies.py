"""Tallies: what is counted of a partition, the same way on every side.

The checksum is the sum, modulo 2**64, of a 64-bit hash of each row. It does not depend on the order of rows, a row that
comes twice changes it, and the sums of two sets of rows add up to the sum of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

CHECKSUM_ENCODING = 1
"""Version of the row hash. Checksums of different encodings cannot be compared."""

Content = tuple[int, str]
"""Rows of a partition, and their checksum as 16 hexadecimal digits."""

Contents = Mapping[str, Content]
"""By partition key."""

_MODULUS = 1 << 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted of one partition.

    Args:
        rows: Rows.
        checksum: Sum of the row hashes, modulo 2**64.
        first_event_micros: Smallest event time, microseconds since 1970-01-01T00:00Z; None without rows.
        last_event_micros: Largest event time.
        null_keys: Rows in which a key column is NULL.
        duplicate_keys: Rows beyond the first of each key.
        stray_rows: Rows whose event time lies in another partition.
        unreadable_rows: Rows that could not be read; they are in no other number here.
        nulls: Rows with NULL, by required column; columns without any are left out.
        empty_columns: Columns of the spec that are NULL in every row.
    """

    rows: int = 0
    checksum: int = 0
    first_event_micros: int | None = None
    last_event_micros: int | None = None
    null_keys: int = 0
    duplicate_keys: int = 0
    stray_rows: int = 0
    unreadable_rows: int = 0
    nulls: dict[str, int] = field(default_factory=dict[str, int])
    empty_columns: tuple[str, ...] = ()

    @property
    def checksum_hex(self) -> str:
        """The checksum as 16 hexadecimal digits."""
        return f"{self.checksum:016x}"

    @property
    def content(self) -> Content:
        """What says whether two tallies, or receipts, are of the same rows."""
        return self.rows, self.checksum_hex

    @property
    def first_event_utc(self) -> datetime | None:
        return instant_of(self.first_event_micros)

    @property
    def last_event_utc(self) -> datetime | None:
        return instant_of(self.last_event_micros)

    def same_content(self, other: Tally) -> bool:
        """Say whether both count the same rows."""
        return self.content == other.content


EMPTY = Tally()

NOTHING_KNOWN: Contents = {}


def are_known(tallies: Mapping[str, Tally], contents: Contents) -> bool:
    """Say whether all that was tallied is as it is known to be; of partitions without rows nothing is asked."""
    return all(tally.content == contents.get(key) for key, tally in tallies.items())


NOWHERE = "None"
"""The key of rows without an event time, where nothing else says which partition they are for."""


def checksum_of(high_lane: int, low_lane: int) -> int:
    """Join the two lanes in which Spark sums 64-bit hashes without overflow: `high * 2**32 + low`, modulo 2**64."""
    return ((high_lane << 32) + low_lane) % _MODULUS


def sum_if_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of some counts; None if one of them is not known."""
    found = 0
    for count in counts:
        if count is None:
            return None
        found += count
    return found


def total(tallies: Iterable[Tally]) -> tuple[int, int]:
    """Return the rows and the checksum of several partitions together."""
    return total_of((tally.rows, tally.checksum) for tally in tallies)


def total_of(contents: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Add up rows and checksums."""
    found = list(contents)
    return sum(rows for rows, _ in found), sum(checksum for _, checksum in found) % _MODULUS


def instant_of(micros: int | None) -> datetime | None:
    """Convert microseconds since 1970 to an instant in UTC, exactly."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
