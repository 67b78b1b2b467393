"""A launch that waits between chunks: for the off-peak hours of its table, and to spare its source."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dagster._utils.schedules import cron_string_iterator, reverse_cron_string_iterator

from backfill_assets.core.history.outcomes import NextChunk
from backfill_assets.core.spec.pace import LaunchPace, OffPeak
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.words import seconds_in_words

_NAP_SECONDS = 5.0
"""A stop comes through at once, and a clock that was set is seen as soon."""


def opens_at(off_peak: OffPeak, zone_name: str, now_utc: datetime) -> datetime:
    """Return when a chunk may begin: now, or when the next off-peak hours begin.

    Args:
        zone_name: In which `cron` is read.
    """
    lasts = timedelta(hours=off_peak.hours)
    began = next(iter(reverse_cron_string_iterator(now_utc.timestamp(), off_peak.cron, zone_name))).astimezone(UTC)
    if began <= now_utc < began + lasts:
        return now_utc
    return next(iter(cron_string_iterator(now_utc.timestamp(), off_peak.cron, zone_name))).astimezone(UTC)


def wait_in_words(spec: TableSpec, now_utc: datetime) -> str:
    """Return in one sentence until when a launch that begins now waits; empty if it does not."""
    if spec.pace.off_peak is None or (opens := opens_at(spec.pace.off_peak, spec.time_zone, now_utc)) <= now_utc:
        return ""
    return (
        f"The launch waits for the off-peak hours of `{spec.key}`, which begin at {opens:%Y-%m-%d %H:%M} UTC; "
        "`ignore_off_peak: true` in a launch's config does not wait."
    )


@dataclass(slots=True)
class Pacing:
    """Waits before each chunk of one launch as long as its table's spec asks for.

    Args:
        say: Called with one sentence when a wait begins that a person would notice, and what is waited for in short.
        waited_seconds: So far, by what was waited for.
    """

    pace: LaunchPace
    zone_name: str
    say: Callable[[str, str], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    waited_seconds: dict[str, float] = field(default_factory=dict[str, float])
    _began: float | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to wait for."""
        return self.pace != LaunchPace()

    def wait(self, chunk: NextChunk) -> None:
        """Return when a chunk may begin."""
        if self._began is None:
            self._began = self.clock()
        self._wait_for_rate(chunk)
        if self.pace.off_peak is not None:
            self._wait_for_hours(chunk, self.pace.off_peak)

    def _wait_for_rate(self, chunk: NextChunk) -> None:
        """Wait until what was read before is no more than may be read in that time; off-peak waits do not count."""
        pace, rows, files = self.pace, chunk.rows, chunk.files
        needed = {
            "max_rows_per_second": rows / pace.max_rows_per_second if pace.max_rows_per_second else 0.0,
            "max_files_per_second": files / pace.max_files_per_second if pace.max_files_per_second else 0.0,
        }
        what = max(needed, key=lambda name: needed[name])
        reading = self.clock() - (self._began or 0.0) - self.waited_seconds.get(OFF_PEAK, 0.0)
        if (left := needed[what] - reading) > 0:
            if left >= _NAP_SECONDS:
                self.say(f"Chunk {chunk.number} waits {seconds_in_words(left)} for `{what}`.", f"waiting for {what}")
            self._until(self.clock() + left, f"`{what}`")

    def _wait_for_hours(self, chunk: NextChunk, off_peak: OffPeak) -> None:
        opens, said = opens_at(off_peak, self.zone_name, self.now()), False
        while (left := (opens - self.now()).total_seconds()) > 0:
            if not said:
                at = f"{opens:%Y-%m-%d %H:%M} UTC"
                self.say(
                    f"Chunk {chunk.number} waits for the off-peak hours, which begin at {at}. Nothing is held "
                    "meanwhile; `ignore_off_peak: true` in a launch's config does not wait.",
                    f"waiting until {at}",
                )
                said = True
            self._until(self.clock() + min(left, _NAP_SECONDS), OFF_PEAK)

    def _until(self, end: float, what: str) -> None:
        while (left := end - (before := self.clock())) > 0:
            self.sleep(min(left, _NAP_SECONDS))
            self.waited_seconds[what] = self.waited_seconds.get(what, 0.0) + self.clock() - before


OFF_PEAK = "off-peak hours"
