"""Where a table's rows come from, as a spec says it: files, other tables, a live stream."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_FOLDER_FIELDS = {"year", "month", "day", "date"}
LAYOUTS = {
    "year/month/day": "{year}/{month}/{day}",
    "hive": "year={year}/month={month}/day={day}",
}


class Strict(BaseModel):
    """A part of a spec: a field that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, serialize_by_alias=True)


class FilesSource(Strict):
    """History in files below dated folders."""

    kind: Literal["files"] = "files"
    path: str = Field(description="Folder, below `landing/` of the lakehouse root; or an absolute path or URI that Spark reads.")
    format: Literal["parquet", "json"] = Field(description="`json` means one JSON object a line.")
    layout: str = Field(
        default="year/month/day",
        validate_default=True,  # the name becomes its template
        description="How folders are named: `year/month/day` (2024/02/29), `hive` (year=2024/month=02/day=29), or a template "
        "with `{year}`, `{month}`, `{day}` or `{date}`, for example `dt={date}`. Days are days of the table's time zone.",
    )
    gaps: Literal["refused", "allowed"] = Field(
        default="refused", description="Whether a day may have no folder. Such a day has no rows; `refused` fails its partition."
    )
    timestamps_without_zone: str | None = Field(
        default=None,
        description="IANA zone in which timestamps without a zone are read. Without it such timestamps are refused.",
    )
    complete_when: Literal["folder_exists", "success_marker"] = Field(
        default="folder_exists",
        description="What says that a day is complete: its folder (or a later one) is there; or the latest folder with a `_SUCCESS` file.",
    )

    @field_validator("layout")
    @classmethod
    def _template(cls, value: str) -> str:
        template = LAYOUTS.get(value, value).strip("/")
        fields = set(re.findall(r"{(.*?)}", template))
        if strange := fields - _FOLDER_FIELDS:
            raise ValueError(unknown(sorted(strange)[0], sorted(_FOLDER_FIELDS), "field"))
        if "date" not in fields and not {"year", "month", "day"} <= fields:
            raise ValueError(f"`{value}` does not say the day: use `year/month/day`, `hive`, or a template such as `dt={{date}}`")
        return template

    @field_validator("timestamps_without_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else known_zone(value)


class Input(Strict):
    """One table that another is made of.

    Offsets widen what is read, in partitions of the table that is made: `start_offset: -1` also reads the one before.
    """

    table: str = Field(description="Key of the other table, for example `bronze/orders`.")
    start_offset: int = Field(default=0, le=0, description="So many partitions before the one that is made are read too: `-1` is one.")
    end_offset: int = Field(default=0, ge=0, description="So many partitions after the one that is made are read too.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        """Let editors know the short form too."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"table": value} if isinstance(value, str) else value


class DeltaSource(Strict):
    """History in other tables of this lakehouse, read at pinned versions.

    With one table and no transform it is a copy of that table's columns.
    """

    kind: Literal["delta"] = "delta"
    tables: list[Input] = Field(min_length=1, description="The tables, in the order in which the transform takes them.")
    transform: str | None = Field(
        default=None,
        description="Dotted path of a function that takes one DataFrame for each table, in order, and returns the rows. "
        "A path that starts with a dot is relative to the folder of the YAML file.",
    )


class LiveStream(Strict):
    """Events that land as files of JSON lines, and are appended to the table while they come."""

    path: str = Field(description="Folder of the events, below `landing/` of the lakehouse root; or an absolute path or URI.")
    starts: date = Field(
        description="First local day that belongs to the stream when the table is made: the first fence. Later `backfill-assets fence` "
        "moves it forward."
    )
    late: Literal["fold", "keep", "ignore"] = Field(
        default="fold",
        description="What becomes of an event from before the fence. `fold`: it is kept in `<table>_late` and is part of its partition "
        "from the next launch on. `keep`: it is kept there and reported. `ignore`: it is counted, and let go.",
    )
    trigger_seconds: float = Field(default=10, gt=0, description="How often new files are looked for.")
    max_files_per_trigger: int = Field(default=100, ge=1, description="Files in one batch: what is read at most after an outage.")
    max_future_seconds: int = Field(
        default=3600, ge=0, description="Events from further in the future than this are quarantined: a wrong clock, not a sale."
    )
    silent_after_seconds: int = Field(default=900, ge=1, description="Without a batch for so long the check `live_is_writing` fails.")
    closed_after_seconds: int = Field(
        default=900, ge=0, description="So long after its end a live partition is held against the events that landed."
    )
    timestamps_without_zone: str | None = Field(
        default=None, description="IANA zone in which timestamps without a zone are read. Without it such events are quarantined."
    )
    max_publish_seconds: float = Field(
        default=20, gt=0, description="On a local disk a batch waits while a chunk is saved; chunks are cut so that this takes no longer."
    )

    @field_validator("timestamps_without_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else known_zone(value)


def known_zone(name: str) -> str:
    """Return the name of a time zone, or refuse it."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise ValueError(unknown(name, sorted(zoneinfo.available_timezones()), "time zone")) from error
    return name


def unknown(value: str, known: list[str], noun: str) -> str:
    """Say that a name is unknown, and which one may have been meant."""
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    if close:
        return f"there is no {noun} `{value}`; did you mean `{close[0]}`?"
    return f"there is no {noun} `{value}`; there are {in_words(known[:12])}" + (" and more" if len(known) > 12 else "")


def in_words(names: list[str]) -> str:
    """Return names, quoted, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)
