"""Partitions: which there are, which a launch names, how they are cut into chunks, and the predicate that replaces them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from backfill_assets.core.windows import Grain, Window, as_utc, first_day, next_first_day, window_of
from backfill_assets.errors import NOTHING_WRITTEN, WindowError


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition: its first local day, the first local day after it, and the window it covers in UTC.

    Its key, in Dagster and in Delta's partition column, is the ISO date of the first local day.
    """

    first: date
    next_first: date
    window: Window

    @property
    def key(self) -> str:
        return self.first.isoformat()


@dataclass(frozen=True, slots=True)
class Grid:
    """All partitions of a table: its grain, where it starts, and the time zone of its days.

    Args:
        grain: How long one partition is.
        start: First local day of the first partition; it lies on the grain.
        zone_name: IANA name of the zone, for example `Europe/Berlin`.
    """

    grain: Grain
    start: date
    zone_name: str = "UTC"

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone_name)

    def partition(self, key: str) -> Partition:
        """Return the partition with a key.

        Raises:
            WindowError: The key is no date, is not on the grain, or lies before the table's start.
        """
        try:
            first = date.fromisoformat(key)
        except ValueError as error:
            raise self._unknown(key, "it is not a date in the form `YYYY-MM-DD`") from error
        if first.isoformat() != key:  # Python also takes `20240101` and `2024-W01-1`
            raise self._unknown(key, "it is not a date in the form `YYYY-MM-DD`")
        if first_day(first, self.grain) != first:
            raise self._unknown(key, f"no {self.grain} partition starts on it; the one that holds it is `{first_day(first, self.grain)}`")
        if first < self.start:
            raise self._unknown(key, f"the table starts at `{self.start}`")
        return self._at(first)

    def partition_of(self, instant: datetime) -> Partition:
        """Return the partition that holds an instant."""
        return self.partition(first_day(as_utc(instant).astimezone(self.zone).date(), self.grain).isoformat())

    def between(self, first_key: str, last_key: str) -> list[Partition]:
        """Return the partitions from one key to another, both included.

        Raises:
            WindowError: A key is unknown, or the range is reversed.
        """
        first, last = self.partition(first_key), self.partition(last_key)
        if last < first:
            raise WindowError(
                f"The range `{first_key}...{last_key}` is reversed: its last partition lies before its first.",
                state=NOTHING_WRITTEN,
                remedy=f"Launch `{last_key}...{first_key}`.",
            )
        found: list[Partition] = []
        day = first.first
        while day <= last.first:
            found.append(self._at(day))
            day = found[-1].next_first
        return found

    def until(self, instant: datetime) -> list[Partition]:
        """Return the partitions from the table's start on that begin before an instant."""
        start = self._at(self.start).window.start_utc
        return self.covering(Window(start, instant)) if instant > start else []

    def following(self, partition: Partition) -> Partition:
        """Return the partition after one."""
        return self._at(partition.next_first)

    def previous(self, partition: Partition) -> Partition | None:
        """Return the partition before one; None before the table's start."""
        before = first_day(partition.first - timedelta(days=1), self.grain)
        return None if before < self.start else self._at(before)

    def covering(self, window: Window) -> list[Partition]:
        """Return the partitions that share an instant with a window, from the table's start on."""
        day = max(first_day(window.start_utc.astimezone(self.zone).date(), self.grain), self.start)
        found: list[Partition] = []
        while (partition := self._at(day)).window.start_utc < window.end_utc:
            found.append(partition)
            day = partition.next_first
        return found

    def _at(self, first: date) -> Partition:
        return Partition(first, next_first_day(first, self.grain), window_of(first, self.grain, self.zone))

    def _unknown(self, key: str, why: str) -> WindowError:
        return WindowError(
            f"There is no partition `{key}`: {why}.",
            state=NOTHING_WRITTEN,
            remedy=f"Keys are the first days of {self.grain} partitions in `{self.zone_name}`, from `{self.start}` on.",
            key=key,
        )


def runs_of(partitions: Sequence[Partition]) -> Iterator[list[Partition]]:
    """Cut sorted partitions where they are not consecutive."""
    run: list[Partition] = []
    for partition in partitions:
        if run and run[-1].next_first != partition.first:
            yield run
            run = []
        run.append(partition)
    if run:
        yield run


def chunks_of(partitions: Sequence[Partition], *, max_partitions: int, max_bytes: int, size_bytes: dict[str, int]) -> list[list[Partition]]:
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


def quoted(identifier: str) -> str:
    """Return an identifier as Spark SQL quotes it."""
    return "`" + identifier.replace("`", "``") + "`"


def replace_where(column: str, partitions: Sequence[Partition]) -> str:
    """Return the predicate that holds exactly for the given partitions: literals only, identifiers quoted.

    | partitions             | predicate                                              |
    |------------------------|--------------------------------------------------------|
    | 2024-01-01, 2024-01-02 | `dt` >= DATE'2024-01-01' AND `dt` < DATE'2024-01-03'   |
    | 2024-01-01, 2024-01-03 | `dt` IN (DATE'2024-01-01', DATE'2024-01-03')           |

    Raises:
        ValueError: There are no partitions. A predicate for nothing could only be a mistake.
    """
    if not partitions:
        raise ValueError("an overwrite needs at least one partition")
    ordered = sorted(set(partitions))
    name = quoted(column)
    if len(list(runs_of(ordered))) == 1:
        return f"{name} >= {_date(ordered[0].first)} AND {name} < {_date(ordered[-1].next_first)}"
    return f"{name} IN ({', '.join(_date(p.first) for p in ordered)})"


def _date(day: date) -> str:
    """Return a day as a typed SQL literal."""
    return f"DATE'{day.isoformat()}'"
