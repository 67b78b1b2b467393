"""Where a table's rows come from, as a spec says it: files, other tables, a live stream."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from backfill_assets.core.calendar.layouts import FIELDS, FLAT, LAYOUTS, Layout, Unit, parts_missing


class Strict(BaseModel):
    """A part of a spec: a field that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, serialize_by_alias=True)


class CsvForm(Strict):
    """How the records of CSV files are written. One record is one line, UTF-8."""

    header: bool = Field(
        default=True,
        description="Whether each file's first line names its columns: they are found by name, in any order. `false`: the columns of the "
        "spec, in their order.",
    )
    delimiter: str = Field(default=",", description="The character between fields.")
    quote: str = Field(default='"', description="The character around a field that holds a delimiter. Empty: there is none.")
    escape: str = Field(
        default='"', description="The character before a quote inside a quoted field; the quote itself where it is doubled."
    )
    null_value: str = Field(
        default="",
        description='The field that stands for NULL. Empty: a field without anything; a quoted one (`""`) is an empty text in a text '
        "column, and NULL in any other.",
    )

    @model_validator(mode="after")
    def _characters(self) -> CsvForm:
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote), ("escape", self.escape)):
            if len(value) != 1 and not (name == "quote" and not value):
                raise ValueError(f"csv.{name}: `{value}` is not one character")
            if value in ("\n", "\r"):
                raise ValueError(f"csv.{name}: a line's end parts records, not fields")
        if self.delimiter in (self.quote, self.escape):
            raise ValueError(f"csv.delimiter: `{self.delimiter}` is the quote or the escape too; each needs a character of its own")
        return self


class FilesSource(Strict):
    """History in files, whose folders or names say when their rows happened; or do not."""

    kind: Literal["files"] = "files"
    path: str = Field(description="Folder, below `landing/` of the lakehouse root; or an absolute path or URI that Spark reads.")
    format: Literal["parquet", "json", "csv"] = Field(
        description="`json` means one JSON object a line, `csv` one record a line. Both may be packed: `.gz`, `.zst`."
    )
    csv: CsvForm | None = Field(default=None, description="How CSV records are written; only with `format: csv`.")
    layout: str = Field(
        default="year/month/day",
        validate_default=True,  # the name becomes its template
        description="How folders and files are named: `year/month/day` (2024/02/29), `hive` (year=2024/month=02/day=29), or a template "
        "with `{year}`, `{month}`, `{day}`, `{hour}` or `{date}` (2024-02-29) and `*` for any other text, for example `dt={date}`, "
        "`{year}/{month}` or `orders_{date}.csv.gz`: a last part with a `.` or a `*` is a file's name. `flat`: names say nothing, any "
        "file may hold rows of any partition.",
    )
    path_time_zone: str | None = Field(
        default=None,
        description="IANA zone of the days and hours in the names. Without it they are those of the table's `time_zone`.",
    )
    gaps: Literal["refused", "allowed"] = Field(
        default="refused",
        description="Whether there may be no folder, or no file, for a stretch of time that the layout names. Such a stretch has no rows; "
        "`refused` fails its partition.",
    )
    timestamps_without_zone: str | None = Field(
        default=None,
        description="IANA zone in which timestamps without a zone are read. Without it such timestamps are refused.",
    )
    complete_when: Literal["folder_exists", "success_marker"] = Field(
        default="folder_exists",
        description="What says that a folder's time is complete: the folder (or a later one) is there; or the latest one with a `_SUCCESS` "
        "file. Of folders that hold several partitions the newest is not complete by being there.",
    )
    complete_until: date | None = Field(
        default=None,
        description="The first local day for which the files are not complete, said by you instead of the folders. `flat` needs it.",
    )
    begin: date | None = Field(
        default=None,
        description="First local day of this history, the first day of a partition: rows and folders before it do not belong to it, and "
        "launches of partitions before it are refused. Without it the table's `start`.",
    )
    modified_after: datetime | None = Field(
        default=None,
        description="Only files that were last modified at this instant or later. This is the file's own time, not when its rows happened: "
        "a file that is copied or written again gets a new one.",
    )
    modified_before: datetime | None = Field(
        default=None,
        description="Only files that were last modified before this instant. This is the file's own time, not when its rows happened.",
    )

    @property
    def csv_form(self) -> CsvForm:
        """How CSV records are written."""
        return self.csv or CsvForm()

    @field_validator("layout")
    @classmethod
    def _template(cls, value: str) -> str:
        template = LAYOUTS.get(value, value).strip("/")
        if template == FLAT:
            return template
        fields = set(re.findall(r"{(.*?)}", template))
        if strange := fields - set(FIELDS):
            raise ValueError(unknown(sorted(strange)[0], list(FIELDS), "field"))
        if not fields:
            raise ValueError(
                f"`{value}` says no time: use `year/month/day`, `hive`, a template such as `dt={{date}}`, or `flat` where names say nothing"
            )
        if lacking := parts_missing(fields):
            raise ValueError(f"`{value}` does not say the {lacking}, without which {in_words(sorted(fields))} could be any")
        return template

    @field_validator("timestamps_without_zone", "path_time_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else known_zone(value)

    @field_validator("modified_after", "modified_before")
    @classmethod
    def _instant(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(f"`{value.isoformat()}` has no time zone; write it with one, for example `{value.isoformat()}Z`")
        return value

    @model_validator(mode="after")
    def _holds_together(self) -> FilesSource:
        layout = Layout(self.layout, "UTC")
        if self.csv is not None and self.format != "csv":
            raise ValueError(f"csv: is for `format: csv`, and the format is `{self.format}`")
        if self.modified_after and self.modified_before and self.modified_before <= self.modified_after:
            raise ValueError(
                f"modified_before: `{self.modified_before.isoformat()}` does not lie after "
                f"`modified_after`, `{self.modified_after.isoformat()}`, so there could be no file"
            )
        if self.complete_until and self.complete_when == "success_marker":
            raise ValueError("complete_until: and `complete_when: success_marker` both say what is complete; give one")
        if layout.unit is Unit.ANY:
            if self.complete_when == "success_marker":
                raise ValueError("complete_when: with `layout: flat` a `_SUCCESS` file names no time; give `complete_until`, a date")
            if self.complete_until is None:
                raise ValueError("complete_until: `layout: flat` needs it, since no name says up to which day the files are complete")
            if self.path_time_zone:
                raise ValueError("path_time_zone: with `layout: flat` names have no days that could lie in a zone")
        if layout.dates_files and self.complete_when == "success_marker":
            raise ValueError(
                f"complete_when: the time is in the files' names (`{self.layout}`), so a `_SUCCESS` file beside them says nothing of one; "
                "use `folder_exists` or `complete_until`"
            )
        return self


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
