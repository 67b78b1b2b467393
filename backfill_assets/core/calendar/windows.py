"""Windows of time and the grain that cuts them: all calendar arithmetic of the project, and no input or output.

A window is half-open, `[start_utc, end_utc)`, in UTC. A day, a week or a month is one of the table's time zone;
it becomes UTC here and nowhere else, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from backfill_assets.errors import NOTHING_WRITTEN, NaiveInstantError, WindowError


class Grain(StrEnum):
    """How long one partition is. Hours are those of a clock in the table's zone; weeks start on Monday (ISO 8601)."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A half-open interval of UTC instants, `[start_utc, end_utc)`.

    Raises:
        NaiveInstantError: An end has no zone.
        WindowError: The window is empty or reversed.
    """

    start_utc: datetime
    end_utc: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start_utc", as_utc(self.start_utc))
        object.__setattr__(self, "end_utc", as_utc(self.end_utc))
        if self.end_utc <= self.start_utc:
            raise WindowError(
                f"The window from `{self.start_utc.isoformat()}` to `{self.end_utc.isoformat()}` is empty or reversed.",
                state=NOTHING_WRITTEN,
                remedy="Give a start that lies before the end.",
            )

    def contains(self, instant: datetime) -> bool:
        """Say whether an instant lies inside; the end does not."""
        return self.start_utc <= as_utc(instant) < self.end_utc

    def share_in(self, other: Window) -> float:
        """Return which part of this window lies in another one, from 0 to 1."""
        inside = min(self.end_utc, other.end_utc) - max(self.start_utc, other.start_utc)
        return max(inside, timedelta(0)) / (self.end_utc - self.start_utc)


def as_utc(instant: datetime) -> datetime:
    """Convert an instant to UTC; one without a zone is refused.

    Raises:
        NaiveInstantError: `instant` has no zone.
    """
    if instant.tzinfo is None:
        raise NaiveInstantError(
            f"The instant `{instant.isoformat()}` has no time zone.",
            state=NOTHING_WRITTEN,
            remedy=f"Write it with one, for example `{instant.isoformat()}+00:00`.",
        )
    return instant.astimezone(UTC)


def first_day(day: date, grain: Grain) -> date:
    """Return the first local day of the partition that holds `day`; of an hourly one, the day itself.

    | day        | daily      | weekly     | monthly    |
    |------------|------------|------------|------------|
    | 2024-02-29 | 2024-02-29 | 2024-02-26 | 2024-02-01 |
    | 2024-03-01 | 2024-03-01 | 2024-02-26 | 2024-03-01 |
    | 2023-12-31 | 2023-12-31 | 2023-12-25 | 2023-12-01 |
    | 2024-01-01 | 2024-01-01 | 2024-01-01 | 2024-01-01 |
    """
    if grain is Grain.WEEKLY:
        return day - timedelta(days=day.weekday())
    if grain is Grain.MONTHLY:
        return day.replace(day=1)
    return day


def next_first_day(first: date, grain: Grain) -> date:
    """Return the first local day of the following partition.

    | first      | daily      | weekly     | monthly    |
    |------------|------------|------------|------------|
    | 2024-02-01 | 2024-02-02 | 2024-02-08 | 2024-03-01 |
    | 2023-12-01 | 2023-12-02 | 2023-12-08 | 2024-01-01 |
    """
    if grain is Grain.WEEKLY:
        return first + timedelta(days=7)
    if grain is Grain.MONTHLY:
        return (first.replace(day=28) + timedelta(days=4)).replace(day=1)
    return first + timedelta(days=1)


def midnight_utc(day: date, zone: ZoneInfo) -> datetime:
    """Return the instant at which a local day starts, in UTC.

    Where a zone skips midnight (its clocks go forward at 00:00), the day starts at the first instant that exists.

    | day        | zone             | instant              |
    |------------|------------------|----------------------|
    | 2024-01-01 | UTC              | 2024-01-01T00:00:00Z |
    | 2024-07-01 | Europe/Berlin    | 2024-06-30T22:00:00Z |
    | 2024-01-01 | Asia/Kolkata     | 2023-12-31T18:30:00Z |
    | 2018-11-04 | America/Sao_Paulo | 2018-11-04T03:00:00Z |
    """
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def has_day(day: date, zone: ZoneInfo) -> bool:
    """Say whether there is such a day: Samoa moved across the date line, and had no 30 December 2011."""
    return midnight_utc(day, zone) < midnight_utc(day + timedelta(days=1), zone)


def window_of(first: date, grain: Grain, zone: ZoneInfo) -> Window:
    """Return the window of the partition that starts on the local day `first`."""
    return Window(midnight_utc(first, zone), midnight_utc(next_first_day(first, grain), zone))


def hour_offset_seconds(zone: ZoneInfo, at: datetime) -> int:
    """Return how many seconds of an hour of UTC have passed when an hour of the zone starts.

    | zone           | at                   | seconds |
    |----------------|----------------------|---------|
    | UTC            | 2024-01-01T00:00:00Z | 0       |
    | Europe/Berlin  | 2024-07-01T00:00:00Z | 0       |
    | Asia/Kolkata   | 2024-01-01T00:00:00Z | 1800    |
    | Asia/Kathmandu | 2024-01-01T00:00:00Z | 900     |
    """
    offset = at.astimezone(zone).utcoffset() or timedelta()
    return -int(offset.total_seconds()) % 3600


def hours_stay_put(zone: ZoneInfo, since: date) -> bool:
    """Say whether the zone's hours always start at the same minute of an hour of UTC, from a day on as far as is known.

    They do not where clocks move by half an hour (Australia/Lord_Howe): one hour of the year is then half as long.
    """
    first = datetime(since.year, since.month, since.day, tzinfo=UTC)
    days = range(0, max(366, (KNOWN_UNTIL - first).days), 7)  # no zone keeps an offset for less than a week
    return len({hour_offset_seconds(zone, first + timedelta(days=n)) for n in days}) == 1


KNOWN_UNTIL = datetime(2038, 1, 1, tzinfo=UTC)
"""As far as time zones are looked at; their rules beyond are the same each year."""


def hour_start(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return when the zone's hour that holds an instant starts, in UTC.

    | instant              | zone          | start                |
    |----------------------|---------------|----------------------|
    | 2024-01-01T05:59:59Z | UTC           | 2024-01-01T05:00:00Z |
    | 2024-01-01T05:29:59Z | Asia/Kolkata  | 2024-01-01T04:30:00Z |
    | 2024-10-27T01:30:00Z | Europe/Berlin | 2024-10-27T01:00:00Z |
    """
    instant = as_utc(instant)
    behind = hour_offset_seconds(zone, instant)
    into_hour = (instant.minute * 60 + instant.second - behind) % 3600
    return instant.replace(microsecond=0) - timedelta(seconds=into_hour)
