"""The columns of a table, as its spec names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from backfill_assets.core.spec.column_formats import ColumnFormat, NumberFormat, PatternFormat, column_format
from backfill_assets.core.spec.fields import Strict, unknown

WITHOUT_STATISTICS = ("boolean", "binary")
"""Types of whose columns Delta keeps no smallest and greatest value."""

PRIMITIVE_TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
)  # fmt: skip


_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


_COLUMN_FORBIDDEN = set(" ,;{}()\n\t=")


class Column(Strict):
    """One column.

    In YAML either a mapping or the short form `bigint not null`.
    """

    type: str = Field(description="Spark SQL type: " + ", ".join([*PRIMITIVE_TYPES, "decimal(p,s)"]) + ".")
    nullable: bool = Field(default=True, description="Whether NULL is allowed. A key column never is.")
    optional: bool = Field(
        default=False,
        description="Whether the source's files may lack the column; its rows are then NULL. Otherwise a file "
        "without it fails.",
    )
    description: str = Field(default="", description="What it holds; shown in Dagster and in editors. Markdown.")
    path: str | None = Field(
        default=None,
        alias="from",
        description="Field of a JSON line that it is read from, if that has another name or lies inside an object: "
        "`address.city`.",
    )
    format: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,  # a table's code version stays what it was before there was a choice
        description="How the texts and numbers of JSON, CSV and live events are written, if it is not the way of ISO "
        "8601: of a `timestamp` or a `date` `epoch_seconds`, `epoch_millis`, `epoch_micros` or `epoch_nanos` since "
        "1970, of a `date` `epoch_days` too, or a pattern such as `dd.MM.yyyy HH:mm`; of a number 1234.56 as it is "
        "written, such as `1.234,56`.",
    )

    @property
    def written(self) -> ColumnFormat | None:
        """How its texts are written, if that is said."""
        return None if self.format is None else column_format(self.format, self.type)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        words = value.lower().split()
        if words[-2:] == ["not", "null"]:
            return {"type": "".join(words[:-2]), "nullable": False}
        return {"type": "".join(words)}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        """Let editors know the short form too."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @field_validator("path")
    @classmethod
    def _path_form(cls, value: str | None) -> str | None:
        if value is not None and not all(is_column_name(part) for part in value.split(".")):
            raise ValueError(
                f"`{value}`: a path is the name of a field, or several with dots between, for example `address.city`"
            )
        return value

    @field_validator("type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        name = {"integer": "int", "long": "bigint"}.get(value.lower().replace(" ", ""), value.lower().replace(" ", ""))
        if name in PRIMITIVE_TYPES:
            return name
        if match := _DECIMAL.fullmatch(name):
            precision, scale = int(match[1]), int(match[2])
            if 1 <= precision <= 38 and scale <= precision:
                return name
            raise ValueError(f"`{value}`: a decimal has 1 to 38 digits, and no more after the point than in total")
        raise ValueError(unknown(value, [*PRIMITIVE_TYPES, "decimal(18,2)"], "type"))

    @model_validator(mode="after")
    def _format_fits(self) -> Column:
        _ = self.written  # refuses what has no meaning
        return self


class Texts(NamedTuple):
    """Where values come as text, of which columns say with `format:` how they are written.

    Args:
        place: The part of the spec: `source`, `live`.
        zone: Of instants that are written without one.
        is_json: Whether numbers may come without quotes.
    """

    place: str
    zone: str | None
    is_json: bool


def format_problems(columns: Mapping[str, Column], texts: Iterable[Texts | None]) -> list[str]:
    """Say which columns' formats would leave a doubt."""
    places = [place for place in texts if place is not None]
    found: list[str] = []
    for name, column in columns.items():
        written, what = column.written, f"`{name}` says `format: {column.format}`"
        if written is None:
            continue
        for place in places:
            is_local = isinstance(written, PatternFormat) and column.type == "timestamp" and not written.has_zone
            if is_local and not place.zone:
                found.append(f"{place.place}.timestamps_without_zone: {what}, which has no zone; say here which")
            if isinstance(written, NumberFormat) and written.thousands == "." and place.is_json:
                found.append(
                    f"columns: {what}, and in JSON ({place.place}) that could also be the number 1.234; have it "
                    "written as a number there"
                )
    return found


SPARKS_OWN = "_metadata"
"""The name of a hidden column of every file that Spark reads."""


def statistics_problems(columns: Mapping[str, Column], named: Iterable[str]) -> list[str]:
    """Say of which columns no statistics can be kept."""
    kinds = {name: columns[name].type for name in named}
    return [
        f"statistics_columns: `{name}` is `{kind}`, of which Delta keeps no smallest and greatest value"
        for name, kind in kinds.items()
        if kind in WITHOUT_STATISTICS
    ]


def path_problems(columns: Mapping[str, Column]) -> list[str]:
    """Return what is wrong with the fields inside objects that columns are read from."""
    paths = {name: column.path for name, column in columns.items() if column.path}
    whole = {name if column.path is None else column.path: name for name, column in columns.items()}
    inside = [
        (name, before)
        for name, parts in ((name, path.split(".")) for name, path in paths.items())
        for before in (".".join(parts[:i]) for i in range(1, len(parts)))
    ]
    return [
        f"columns: `{name}` is read from inside `{before}`, which `{whole[before]}` takes as a whole"
        for name, before in inside
        if before in whole
    ]


def is_column_name(name: str) -> bool:
    """Say whether Delta takes a text for the name of a column."""
    return bool(name) and not _COLUMN_FORBIDDEN & set(name)


def valid_column_name(name: str) -> str:
    """Return the name of a column, or refuse it."""
    if not is_column_name(name):
        raise ValueError(f"`{name}`: a column name has no space and none of `,;{{}}()=`")
    if name.casefold().startswith("_ba_"):
        raise ValueError(f"`{name}`: names that start with `_ba_` are reserved for this project's own columns")
    if name.casefold() == SPARKS_OWN:
        raise ValueError(f"`{name}`: Spark keeps under this name where a row comes from; give the column another one")
    return name
