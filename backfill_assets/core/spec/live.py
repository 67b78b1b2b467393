"""The live stream of a table, as its spec says it."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field, field_validator

from backfill_assets.core.spec.columns import Texts
from backfill_assets.core.spec.fields import Strict, known_zone, path_without_password


class LiveStream(Strict):
    """Events that land as files of JSON lines, and are appended to the table while they come."""

    path: str = Field(
        description="Folder of the events, below `landing/` of the lakehouse root; or an absolute path or URI."
    )
    starts: date = Field(
        description="First local day that belongs to the stream when the table is made: the first fence. Later "
        "`backfill-assets fence` "
        "moves it forward."
    )
    late: Literal["fold", "keep", "ignore"] = Field(
        default="fold",
        description="What happens to an event from before the fence. `fold`: it is stored in `<table>_late` and is "
        "part of its partition from the next launch on. `keep`: it is stored there and reported. `ignore`: it is "
        "counted and discarded.",
    )
    trigger_seconds: float = Field(default=10, gt=0, description="How often new files are looked for.")
    max_files_per_trigger: int = Field(
        default=100, ge=1, description="At most this many files in one batch, for example after an outage."
    )
    max_future_seconds: int = Field(
        default=3600,
        ge=0,
        description="Events from further in the future than this are quarantined: a wrong clock, not a sale.",
    )
    silent_after_seconds: int = Field(
        default=900,
        ge=120,
        description="The check `live_is_writing` fails when there was no batch for this long, and an alert is posted "
        "within this time. Batches are told of every 30 seconds, and looked at every 30: so no less than 120.",
    )
    max_lag_seconds: float | None = Field(
        default=None,
        gt=0,
        description="How long what landed may wait until it is in the table; longer is an alert. Without it nobody is "
        "told.",
    )
    closed_after_seconds: int = Field(
        default=900,
        ge=0,
        description="How long after its end a live partition is compared with the events that landed.",
    )
    timestamps_without_zone: str | None = Field(
        default=None,
        description="IANA zone in which timestamps without a zone are read. Without it such events are quarantined.",
    )

    @property
    def texts(self) -> Texts:
        """How the values of events are read."""
        return Texts("live", self.timestamps_without_zone, is_json=True)

    @field_validator("path")
    @classmethod
    def _without_password(cls, value: str) -> str:
        return path_without_password(value)

    @field_validator("timestamps_without_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else known_zone(value)
