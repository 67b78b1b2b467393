"""How fast a table's launches may read their source, and in which hours."""

from __future__ import annotations

from pydantic import Field

from backfill_assets.core.spec.fields import Strict


class OffPeak(Strict):
    """Hours in which chunks may begin, because the source has little else to do then."""

    cron: str = Field(
        description="When they begin, in the table's time zone: `0 22 * * *` is every evening at ten, `0 0 * * 6` "
        "every Saturday."
    )
    hours: float = Field(gt=0, le=168, description="How long they last.")


class LaunchPace(Strict):
    """What a launch must not ask too much of: it waits between chunks, and never holds rows or a lock meanwhile."""

    off_peak: OffPeak | None = Field(
        default=None,
        description="Chunks begin in these hours only. A launch that is under way when they end waits for the next "
        "ones, unless its config has `ignore_off_peak: true`.",
    )
    max_rows_per_second: int | None = Field(
        default=None,
        ge=1,
        description="Rows of the source that a launch reads in a second, on average.",
    )
    max_files_per_second: float | None = Field(
        default=None, gt=0, description="Files of the source that a launch reads in a second, on average."
    )
