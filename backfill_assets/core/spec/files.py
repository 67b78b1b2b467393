"""`kind: files`: history in files, as a spec says it."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from backfill_assets.core.calendar.layouts import FIELDS, FLAT, LAYOUTS, parts_missing
from backfill_assets.core.calendar.windows import first_day
from backfill_assets.core.spec.columns import Texts
from backfill_assets.core.spec.encodings import encoding
from backfill_assets.core.spec.fields import Strict, in_words, known_zone, path_without_password, unknown
from backfill_assets.core.spec.source_spec import SourceSpec, TableFacts


class CsvForm(Strict):
    """How the records of CSV files are written. One record is one line."""

    header: bool = Field(
        default=True,
        description="Whether each file's first line names its columns: they are found by name, in any order. "
        "`false`: the columns of the "
        "spec, in their order.",
    )
    delimiter: str = Field(default=",", description="The character between fields.")
    quote: str = Field(
        default='"', description="The character around a field that holds a delimiter. Empty: there is none."
    )
    escape: str = Field(
        default='"',
        description="The character before a quote inside a quoted field; the quote itself where it is doubled.",
    )
    null_value: str = Field(
        default="",
        description='The field that stands for NULL. Empty: a field without anything; a quoted one (`""`) is an '
        "empty text in a text "
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
            raise ValueError(
                f"csv.delimiter: `{self.delimiter}` is the quote or the escape too; each needs a character of its own"
            )
        return self


class FilesSpec(SourceSpec):
    """History in files, whose folders or names say when their rows happened; or do not."""

    kind: Literal["files"] = Field(default="files", description="Files below dated folders.")
    path: str = Field(
        description="Folder, below `landing/` of the lakehouse root; or an absolute path or URI that Spark reads."
    )
    format: Literal["parquet", "json", "csv"] = Field(
        description="`json` means one JSON object a line, `csv` one record a line. Both may be packed: `.gz`, `.zst`."
    )
    csv: CsvForm | None = Field(default=None, description="How CSV records are written.")
    encoding: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,  # as for `nanoseconds`
        description="Encoding of files that are not UTF-8: `latin1`, `windows-1252` or another one with "
        "one byte for each character. A line with a byte that it does not have is refused.",
    )
    layout: str = Field(
        default="year/month/day",
        validate_default=True,  # the name becomes its template
        description="How folders and files are named: `year/month/day` (2024/02/29), `hive` "
        "(year=2024/month=02/day=29), or a template "
        "with `{year}`, `{month}`, `{day}`, `{hour}` or `{date}` (2024-02-29) and `*` for any other text, for "
        "example `dt={date}`, "
        "`{year}/{month}` or `orders_{date}.csv.gz`: a last part with a `.` or a `*` is a file's name. `flat`: "
        "names say nothing, any "
        "file may hold rows of any partition.",
    )
    path_time_zone: str | None = Field(
        default=None,
        description="IANA zone of the days and hours in the names. Without it they are those of the table's "
        "`time_zone`.",
    )
    gaps: Literal["refused", "allowed"] = Field(
        default="refused",
        description="Whether there may be no folder, or no file, for an hour, a day, a month or a year that the layout "
        "names. Such a gap has no rows; "
        "`refused` fails its partition.",
    )
    timestamps_without_zone: str | None = Field(
        default=None,
        description="IANA zone in which timestamps without a zone are read. Without it such timestamps are refused.",
    )
    nanoseconds: Literal["refused", "cut"] = Field(
        default="refused",
        exclude_if=lambda value: (
            value == "refused"
        ),  # a table's code version stays what it was before there was a choice
        description="What happens to a Parquet timestamp that is no whole microsecond, which is the finest that a "
        "table holds: `refused` fails its partition and names the row, `cut` takes the microsecond that has begun.",
    )
    complete_when: Literal["folder_exists", "success_marker"] = Field(
        default="folder_exists",
        description="What says that a folder's time is complete: the folder (or a later one) is there; or its own "
        "`_SUCCESS` file. "
        "Of folders that hold several partitions the newest is not complete by being there.",
    )
    complete_until: date | None = Field(
        default=None,
        description="The first local day for which the files are not complete, said by you instead of the folders. "
        "`flat` needs it.",
    )
    begin: date | None = Field(
        default=None,
        description="First local day of this history, the first day of a partition: rows and folders before it do "
        "not belong to it, and "
        "launches of partitions before it are refused. Without it the table's `start`.",
    )
    modified_after: datetime | None = Field(
        default=None,
        description="Only files that were last modified at this instant or later. This is the file's own time, not "
        "when its rows happened: "
        "a file that is copied or written again gets a new one.",
    )
    modified_before: datetime | None = Field(
        default=None,
        description="Only files that were last modified before this instant. This is the file's own time, not when "
        "its rows happened.",
    )

    @property
    def csv_form(self) -> CsvForm:
        """How CSV records are written."""
        return self.csv or CsvForm()

    @property
    def description(self) -> str:
        """Where the files lie."""
        return f"files below `{self.path}`"

    @property
    def landing_folder(self) -> str:
        """The folder that `path` names."""
        return self.path

    def for_rows(self) -> Self:
        """Leave out where the files lie and until when they are complete: no row changes with that."""
        return self.model_copy(update={"path": "", "complete_until": None})

    @property
    def knows_bytes(self) -> bool:
        """As they are stored."""
        return True

    @property
    def has_objects(self) -> bool:
        """Whether a record may hold objects: only JSON's do."""
        return self.format == "json"

    @property
    def texts(self) -> Texts | None:
        """The zone of instants without one; a Parquet file says the type of each column."""
        return (
            None if self.format == "parquet" else Texts("source", self.timestamps_without_zone, self.format == "json")
        )

    def begins(self, start: date) -> date:
        """Return `begin`, if it says one."""
        return self.begin or start

    def problems(self, table: TableFacts) -> list[str]:
        """Hold the days that the spec names, and the zone of the names, against the table."""
        begin = self.begins(table.start)
        found: list[str] = []
        if (on_grain := first_day(begin, table.grain)) != begin:
            found.append(
                f"source.begin: `{begin}` is not the first day of a {table.grain} partition; the one that holds it "
                f"starts on `{on_grain}`"
            )
        if begin < table.start:
            found.append(f"source.begin: `{begin}` lies before the table's start, `{table.start}`")
        if self.complete_until and self.complete_until <= begin:
            found.append(
                f"source.complete_until: `{self.complete_until}` does not lie after the history's first day, `{begin}`"
            )
        if self.path_time_zone not in (None, table.time_zone) and table.columns[table.event_time].type == "date":
            found.append(
                f"source.path_time_zone: `{self.path_time_zone}` is not the table's zone (`{table.time_zone}`), and "
                f"`{table.event_time}` is a `date`: no row could say on which of two days it lies"
            )
        return found

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
                f"`{value}` says no time: use `year/month/day`, `hive`, a template such as `dt={{date}}`, or `flat` "
                "where names say nothing"
            )
        if lacking := parts_missing(fields):
            raise ValueError(
                f"`{value}` does not say the {lacking}, without which {in_words(sorted(fields))} could be any"
            )
        return template

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        return value if value is None else encoding(value)

    @field_validator("path")
    @classmethod
    def _without_password(cls, value: str) -> str:
        return path_without_password(value)

    @field_validator("timestamps_without_zone", "path_time_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else known_zone(value)

    @field_validator("modified_after", "modified_before")
    @classmethod
    def _instant(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(
                f"`{value.isoformat()}` has no time zone; write it with one, for example `{value.isoformat()}Z`"
            )
        return value

    @model_validator(mode="after")
    def _holds_together(self) -> FilesSpec:
        if self.modified_after and self.modified_before and self.modified_before <= self.modified_after:
            raise ValueError(
                f"modified_before: `{self.modified_before.isoformat()}` does not lie after "
                f"`modified_after`, `{self.modified_after.isoformat()}`, so there could be no file"
            )
        if self.layout == FLAT and self.complete_until is None:
            raise ValueError(
                "complete_until: `layout: flat` needs it, since no name says up to which day the files are complete"
            )
        return self
