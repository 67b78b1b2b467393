"""The clocks of a zone as Java has them, held against Python's: each has rules of its own, and of its own age."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.windows import Grain, midnight_utc
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError
from backfill_assets.spark.failures import ANSWERED_FAILURES

_STEP = timedelta(days=15)
"""No clock was ever put forward and back again within so short a time, but for a few in the first half of the 20th
century."""

_REMEDY = (
    "Renew the older of the two: Java's rules come with its release, Python's with the system's package `tzdata`, or "
    "the one of the same name on PyPI."
)


def refuse_other_clocks(spark: SparkSession, spec: TableSpec, now: datetime) -> None:
    """Refuse a table in whose zone Spark would put rows into other partitions than Python's calendar names.

    Raises:
        ConfigurationError: At an instant between the table's start and now, Java shows another time than Python; or it
            does not know the zone; or clocks went back over a midnight that had passed.
    """
    if spec.time_zone == "UTC" or spec.grain is Grain.HOURLY or spec.columns[spec.event_time].type != "timestamp":
        return  # hours are kept in UTC, and days have no clocks
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if returns := _first_return(spec.grid.zone, spec.grid.start_utc, day):
        raise ConfigurationError(
            f"`{spec.key}`: at {returns:%Y-%m-%d %H:%MZ} the clocks of `{spec.time_zone}` show the day before once "
            "more, after midnight: a day would not be one stretch of time.",
            state=NOTHING_WRITTEN,
            remedy="Let the table start later, keep hours instead, or name a zone without such a day.",
        )
    try:
        other = _first_difference(spark, spec.grid.zone, spec.grid.start_utc, day)
    except ANSWERED_FAILURES as error:
        if "INVALID_TIMEZONE" not in str(error):
            raise
        raise ConfigurationError(
            f"`{spec.key}`: Java does not know the zone `{spec.time_zone}`, which Python knows.",
            state=NOTHING_WRITTEN,
            remedy=f"{_REMEDY} Or name a zone with the same clocks that both know.",
        ) from error
    if other is None:
        return
    at, seconds = other
    java = (at + timedelta(seconds=seconds)).replace(tzinfo=None)
    python = at.astimezone(spec.grid.zone).replace(tzinfo=None)
    raise ConfigurationError(
        f"`{spec.key}`: at {at:%Y-%m-%d %H:%M:%SZ} the clocks of `{spec.time_zone}` show {java} by Java's rules, and "
        f"{python} by Python's: rows would be kept in other partitions than the calendar says.",
        state=NOTHING_WRITTEN,
        remedy=_REMEDY,
    )


@lru_cache(maxsize=32)
def _first_return(zone: ZoneInfo, since_utc: datetime, until_utc: datetime) -> datetime | None:
    """Return the first instant of a day, to the minute, at which clocks show the day before once more."""
    day = since_utc.astimezone(zone).date()
    while (begins := midnight_utc(day, zone)) < until_utc:
        hours_later = begins + timedelta(hours=3)
        if hours_later.astimezone(zone).utcoffset() != begins.astimezone(zone).utcoffset():
            for minutes in range(180):
                if (at := begins + timedelta(minutes=minutes)).astimezone(zone).date() < day:
                    return at
        day += timedelta(days=1)
    return None


@lru_cache(maxsize=32)
def _first_difference(
    spark: SparkSession, zone: ZoneInfo, since_utc: datetime, until_utc: datetime
) -> tuple[datetime, int] | None:
    """Return the first instant at which Java's offset from UTC is another one than Python's, and Java's, in seconds."""
    instants = list(_instants(zone, since_utc, until_utc))
    for at, seconds in zip(instants, _by_java(spark, str(zone), instants), strict=True):
        if at.astimezone(zone).utcoffset() != timedelta(seconds=seconds):
            return at, seconds
    return None


def _by_java(spark: SparkSession, zone: str, instants: Sequence[datetime]) -> list[int]:
    """Return the offsets of a zone from UTC, in seconds."""
    unix = F.split(F.lit(" ".join(str(int(at.timestamp())) for at in instants)), " ").cast("array<bigint>")
    offsets = F.transform(
        unix, lambda at: F.unix_seconds(F.from_utc_timestamp(F.timestamp_seconds(at), F.lit(zone))) - at
    )
    (row,) = spark.range(1).select(offsets.alias("offsets")).collect()
    return list(row["offsets"])


def _instants(zone: ZoneInfo, since_utc: datetime, until_utc: datetime) -> Iterator[datetime]:
    """Return instants at short intervals, and the two seconds between which Python's clocks are put forward or back."""
    at = since_utc
    while at <= until_utc:
        yield at
        later = at + _STEP
        if at.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            yield from _seconds_around_change(zone, at, later)
        at = later


def _seconds_around_change(zone: ZoneInfo, before: datetime, after: datetime) -> tuple[datetime, datetime]:
    old = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return before, after
