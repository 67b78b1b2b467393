"""Partitions: which there are, which ones a range of keys names, and what each is called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from backfill_assets.core.calendar.windows import (
    Grain,
    Window,
    as_utc,
    first_day,
    has_day,
    hour_offset_seconds,
    hour_start,
    midnight_utc,
    next_first_day,
    window_of,
)
from backfill_assets.errors import NOTHING_WRITTEN, WindowError


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition: the window it covers in UTC, its key, and what Delta's partition column holds for it.

    Args:
        key: As Dagster names it: the ISO date of the first local day; of an hour `YYYY-MM-DD-HH:00` on the local clock,
            with the offset behind it where the clock shows that hour for the second time (`2024-10-27-02:00+0100`).
        value: In Delta's partition column: the first local day; of an hour the text `YYYY-MM-DD-HH` in UTC.
        next_value: The value of the partition after it.
    """

    window: Window
    key: str
    value: date | str
    next_value: date | str


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

    @property
    def start_utc(self) -> datetime:
        """The start of the first partition."""
        return midnight_utc(self.start, self.zone)

    def partition(self, key: str) -> Partition:
        """Return the partition with a key.

        Raises:
            WindowError: The key has not the right form, is not on the grain, or lies before the table's start.
        """
        found = self._from_any_time(key)
        if found.window.start_utc < self.start_utc:
            raise self._unknown(key, f"the table starts at `{self.start}`")
        return found

    def is_key(self, key: str) -> bool:
        """Say whether there is a partition with a key; one that does not end before the year 10000 is none."""
        try:
            self.partition(key)
        except (WindowError, OverflowError):
            return False
        return True

    def partition_of(self, instant: datetime) -> Partition:
        """Return the partition that holds an instant.

        Raises:
            WindowError: It lies before the table's start.
        """
        found = self._holding(instant)
        if found.window.start_utc < self.start_utc:
            raise self._unknown(found.key, f"the table starts at `{self.start}`")
        return found

    def key_of(self, value: object) -> str:
        """Return the key of the partition for which Delta's partition column holds a value: a date, or its text.

        A value that is not an hour, in a column of hours, is returned as it is: it is the key of no partition.
        """
        if self.grain is not Grain.HOURLY:
            return str(value)
        try:
            return _hour_key(self._hour_of_value(str(value)), self.zone)
        except (ValueError, OverflowError):
            return str(value)

    def between(self, first_key: str, last_key: str) -> list[Partition]:
        """Return the partitions from one key to another, both included.

        Raises:
            WindowError: A key is unknown, or the range is reversed.
        """
        self.partition(first_key)
        _, found = self.around_start(first_key, last_key)
        return found

    def around_start(self, first_key: str, last_key: str) -> tuple[list[Partition], list[Partition]]:
        """Return the periods of a range that lie before the table's start, and its partitions from there on.

        Raises:
            WindowError: A key has not the right form, is not on the grain, or the range is reversed.
        """
        first, last = self._from_any_time(first_key), self._from_any_time(last_key)
        if last < first:
            raise WindowError(
                f"The range `{first_key}...{last_key}` is reversed: its last partition lies before its first.",
                state=NOTHING_WRITTEN,
                remedy=f"Launch `{last_key}...{first_key}`.",
            )
        everything = self._from(first.window.start_utc, last.window.end_utc)
        begun = [partition for partition in everything if partition.window.start_utc >= self.start_utc]
        return everything[: len(everything) - len(begun)], begun

    def until(self, instant: datetime) -> list[Partition]:
        """Return the partitions from the table's start on that begin before an instant."""
        return self.covering(Window(self.start_utc, instant)) if instant > self.start_utc else []

    def following(self, partition: Partition) -> Partition:
        """Return the partition after one."""
        return self._holding(partition.window.end_utc)

    def previous(self, partition: Partition) -> Partition:
        """Return the partition before one; it may lie before the table's start, where an input has rows."""
        return self._holding(partition.window.start_utc - timedelta(microseconds=1))

    def week_before(self, partition: Partition) -> Partition:
        """Return the partition of the same local hour, or day, a week before; it may lie before the table's start."""
        local = partition.window.start_utc.astimezone(self.zone).replace(tzinfo=None)
        return self._holding((local - timedelta(days=7)).replace(tzinfo=self.zone))

    def from_start(self, keys: Iterable[str]) -> list[Partition]:
        """Return the partitions that some keys name, in order, without those before the table's start.

        What was published, or came late, before `start` was moved forward is no part of the table any more.

        Raises:
            WindowError: A key has not the right form, or is not on the grain.
        """
        named = map(self._named, keys)
        return sorted(partition for partition in named if partition.window.start_utc >= self.start_utc)

    def covering(self, window: Window) -> list[Partition]:
        """Return the partitions that share an instant with a window, from the table's start on."""
        return self._from(max(window.start_utc, self.start_utc), window.end_utc)

    def _from(self, at: datetime, until: datetime) -> list[Partition]:
        found: list[Partition] = []
        while at < until:
            found.append(self._holding(at))
            at = found[-1].window.end_utc
        return found

    def _from_any_time(self, key: str) -> Partition:
        try:
            return self._named(key)
        except OverflowError as error:
            raise self._unknown(key, "it does not end before the year 10000") from error

    def _named(self, key: str) -> Partition:
        return self._hour_of(key) if self.grain is Grain.HOURLY else self._day_of(key)

    def _holding(self, instant: datetime) -> Partition:
        if self.grain is Grain.HOURLY:
            return self._hour(hour_start(instant, self.zone))
        return self._days(first_day(as_utc(instant).astimezone(self.zone).date(), self.grain))

    def _days(self, first: date) -> Partition:
        return Partition(
            window_of(first, self.grain, self.zone), first.isoformat(), first, next_first_day(first, self.grain)
        )

    def _hour(self, start: datetime) -> Partition:
        end = start + timedelta(hours=1)
        return Partition(
            Window(start, end), _hour_key(start, self.zone), start.strftime(_HOUR_VALUE), end.strftime(_HOUR_VALUE)
        )

    def _day_of(self, key: str) -> Partition:
        try:
            first = date.fromisoformat(key)
        except ValueError as error:
            raise self._unknown(key, "it is not a date in the form `YYYY-MM-DD`") from error
        if first.isoformat() != key:  # Python also takes `20240101` and `2024-W01-1`
            raise self._unknown(key, "it is not a date in the form `YYYY-MM-DD`")
        if first_day(first, self.grain) != first:
            raise self._unknown(
                key,
                f"no {self.grain} partition starts on it; the one that holds it is `{first_day(first, self.grain)}`",
            )
        if self.grain is Grain.DAILY and not has_day(first, self.zone):
            raise self._unknown(key, f"the clocks of `{self.zone_name}` skip that day")
        return self._days(first)

    def _hour_of(self, key: str) -> Partition:
        match = re.fullmatch(r"(\d{4}-\d{2}-\d{2})-(\d{2}):00([+-]\d{4})?", key)
        try:
            local = datetime.fromisoformat(f"{match[1]}T{match[2]}:00") if match else None
        except ValueError:
            local = None
        if match is None or local is None:
            raise self._unknown(key, "it is not an hour in the form `YYYY-MM-DD-HH:00`")
        found = self._hour(local.replace(tzinfo=self.zone, fold=1 if match[3] else 0).astimezone(UTC))
        if found.key != key:
            raise self._unknown(
                key,
                f"the clocks of `{self.zone_name}` do not show that hour so; the one at that instant is `{found.key}`",
            )
        return found

    def _hour_of_value(self, value: str) -> datetime:
        """Return when the hour starts for which the partition column holds `YYYY-MM-DD-HH`, every digit of it."""
        hour = datetime.strptime(value, _HOUR_VALUE).replace(tzinfo=UTC)
        if hour.isoformat()[:13].replace("T", "-") != value:
            raise ValueError(value)
        return hour + timedelta(seconds=hour_offset_seconds(self.zone, hour))

    def _unknown(self, key: str, why: str) -> WindowError:
        keys = "hours" if self.grain is Grain.HOURLY else f"the first days of {self.grain} partitions"
        return WindowError(
            f"There is no partition `{key}`: {why}.",
            state=NOTHING_WRITTEN,
            remedy=f"Keys are {keys} in `{self.zone_name}`, from `{self.start}` on.",
            key=key,
        )


_HOUR_VALUE = "%Y-%m-%d-%H"


def _hour_key(start: datetime, zone: ZoneInfo) -> str:
    """Return an hour as Dagster names it."""
    local = start.astimezone(zone)
    return local.strftime("%Y-%m-%d-%H:%M") + (local.strftime("%z") if local.fold else "")


def runs_of(partitions: Sequence[Partition]) -> Iterator[list[Partition]]:
    """Cut sorted partitions where they are not consecutive."""
    run: list[Partition] = []
    for partition in partitions:
        if run and run[-1].window.end_utc != partition.window.start_utc:
            yield run
            run = []
        run.append(partition)
    if run:
        yield run
