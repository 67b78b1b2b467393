"""How files are laid out by time: what a folder's or a file's name says of when its rows happened. Pure.

Names are read in one time zone, and become half-open windows in UTC here, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from backfill_assets.core.calendar.windows import Window, has_day, midnight_utc

FIELDS = ("date", "day", "hour", "month", "year")
FLAT = "flat"
LAYOUTS = {
    "year/month/day": "{year}/{month}/{day}",
    "hive": "year={year}/month={month}/day={day}",
    FLAT: FLAT,
}
ANY_TIME = Window(datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
"""The window of a file whose name says nothing of time."""

_PATTERNS = {"year": r"\d{4}", "month": r"\d{1,2}", "day": r"\d{1,2}", "hour": r"\d{1,2}", "date": r"\d{4}-\d{2}-\d{2}"}


class Unit(StrEnum):
    """How much time one folder, or one file, is about."""

    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Slot:
    """A time for which a layout has a folder or a file's name, and that name; `unpadded` has no zeros in front."""

    window: Window
    name: str
    unpadded: str


@dataclass(frozen=True, slots=True)
class Layout:
    """A template such as `{year}/{month}/orders_{date}.csv`, and the zone whose days and hours it names.

    The last part is a file's name if it has a `.` or a `*` in it; else all parts are folders, with files anywhere
    below.
    """

    template: str
    zone_name: str

    @property
    def fields(self) -> set[str]:
        """The fields of the template."""
        return set(re.findall(r"{(.*?)}", self.template))

    @property
    def unit(self) -> Unit:
        """How much time one name is about."""
        if self.template == FLAT:
            return Unit.ANY
        if "hour" in self.fields:
            return Unit.HOUR
        if {"day", "date"} & self.fields:
            return Unit.DAY
        return Unit.MONTH if "month" in self.fields else Unit.YEAR

    @property
    def names_files(self) -> bool:
        """Whether the template's last part is a file's name."""
        return self.template != FLAT and bool(set(".*") & set(self.template.rsplit("/", 1)[-1]))

    @property
    def dates_files(self) -> bool:
        """Whether files of one folder are told apart by the time in their names."""
        return self.names_files and "{" in self.template.rsplit("/", 1)[-1]

    @property
    def folders(self) -> int:
        """How many folders deep the folder of one time lies below the root."""
        return 0 if self.template == FLAT else self.template.count("/") + (not self.names_files)

    def window_of(self, below_root: str) -> Window | None:
        """Return which time a path below the root stands for; None if it does not fit, or if there is no such time."""
        if self.template == FLAT:
            return ANY_TIME
        match = _pattern(self.template, self.names_files).match(below_root.lstrip("/"))
        if match is None:
            return None
        said: dict[str, set[int]] = {}
        for group, text in match.groupdict().items():
            field = group.rsplit("_", 1)[0]
            parts = zip(("year", "month", "day"), text.split("-"), strict=True) if field == "date" else [(field, text)]
            for name, digits in parts:
                said.setdefault(name, set()).add(int(digits))
        if any(len(values) > 1 for values in said.values()):  # a folder says one month, the file's name another
            return None
        found = {name: values.pop() for name, values in said.items()}
        try:
            day = date(found["year"], found.get("month", 1), found.get("day", 1))
            return _window(self.unit, day, found.get("hour", 0), self.zone_name)
        except (ValueError, OverflowError):  # no such day, or one at the very end of the calendar
            return None

    def slots_in(self, window: Window) -> list[Slot]:
        """Return the stretches of time that share an instant with a window; none if names say nothing of time."""
        if self.unit is Unit.ANY:
            return []
        zone = ZoneInfo(self.zone_name)
        day, last = (
            instant.astimezone(zone).date()
            for instant in (window.start_utc, window.end_utc - timedelta(microseconds=1))
        )
        slots: dict[str, Slot] = {}
        while day <= last:
            for hour in _hours_of(day, zone) if self.unit is Unit.HOUR else [0] if has_day(day, zone) else []:
                own = _window(self.unit, day, hour, self.zone_name)
                if own.start_utc < window.end_utc and window.start_utc < own.end_utc:
                    name = self.template.format(
                        year=f"{day:%Y}", month=f"{day:%m}", day=f"{day:%d}", date=f"{day}", hour=f"{hour:02}"
                    )
                    unpadded = self.template.format(
                        year=day.year, month=day.month, day=day.day, date=f"{day}", hour=hour
                    )
                    slots.setdefault(name, Slot(own, name, unpadded))
            day += timedelta(days=1)
        return list(slots.values())


def parts_missing(fields: set[str]) -> str | None:
    """Return the field that a template needs beside those it has: a day is nothing without its month."""
    have = fields | {"year", "month", "day"} if "date" in fields else fields
    for field, needed in (("hour", "day"), ("day", "month"), ("month", "year")):
        if field in have and needed not in have:
            return needed
    return None if have else "year"


def _hours_of(day: date, zone: ZoneInfo) -> Iterator[int]:
    """Yield the hours of a local day that there are: one is skipped when clocks go forward."""
    for hour in range(24):
        local = datetime(day.year, day.month, day.day, hour, 59, 59, tzinfo=zone)
        shown = local.astimezone(UTC).astimezone(zone)
        if (shown.date(), shown.hour) == (day, hour):
            yield hour


@lru_cache(maxsize=100_000)
def _window(unit: Unit, day: date, hour: int, zone_name: str) -> Window:
    """Return the window of the local year, month, day or hour that a day and an hour of it lie in.

    | unit | local            | zone          | window                               |
    |------|------------------|---------------|--------------------------------------|
    | day  | 2024-03-31       | Europe/Berlin | 2024-03-30T23:00Z, 2024-03-31T22:00Z |
    | hour | 2024-10-27 02:00 | Europe/Berlin | 2024-10-27T00:00Z, 2024-10-27T02:00Z |
    | hour | 2024-03-31 03:00 | Europe/Berlin | 2024-03-31T01:00Z, 2024-03-31T02:00Z |

    An hour, or a day, that clocks skip is taken for the one that they show instead.

    Raises:
        ValueError: There is no such hour.
    """
    zone = ZoneInfo(zone_name)
    if unit is Unit.YEAR:
        return Window(midnight_utc(date(day.year, 1, 1), zone), midnight_utc(date(day.year + 1, 1, 1), zone))
    if unit is Unit.MONTH:
        following = date(day.year + day.month // 12, day.month % 12 + 1, 1)
        return Window(midnight_utc(day.replace(day=1), zone), midnight_utc(following, zone))
    if unit is Unit.DAY:
        day = day if has_day(day, zone) else day + timedelta(days=1)
        return Window(midnight_utc(day, zone), midnight_utc(day + timedelta(days=1), zone))
    local = datetime(day.year, day.month, day.day, hour)  # noqa: DTZ001 (it gets its zone below: the next hour is one of the wall clock)
    start, end = (at.replace(tzinfo=zone).astimezone(UTC) for at in (local, local + timedelta(hours=1)))
    return Window(start, end if end > start else start + timedelta(hours=1))


@lru_cache(maxsize=100)
def _pattern(template: str, names_files: bool) -> re.Pattern[str]:
    """Return a pattern for the part of a path below the root."""
    parts = re.split(r"{(\w+)}", template)
    body = ""
    for i, part in enumerate(parts):
        if i % 2 == 0:
            body += r"[^/]*".join(re.escape(text) for text in part.split("*"))
        else:
            touches = (i > 1 and not parts[i - 1]) or (i + 2 < len(parts) and not parts[i + 1])
            digits = (
                _PATTERNS[part].replace("{1,2}", "{2}") if touches else _PATTERNS[part]
            )  # `{year}{month}{day}` is 20240229
            body += f"(?P<{part}_{i}>{digits})"
    return re.compile(rf"^{body}$" if names_files else rf"^{body}/(?:.*/)?[^/]+$")
