"""The columns of a table, as its spec names them."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator, model_validator

from backfill_assets.core.spec.fields import Strict, unknown

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
        "`address.city`. "
        "Only for tables from JSON files.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        words = value.lower().split()
        nullable = True
        if words[-2:] == ["not", "null"]:
            words, nullable = words[:-2], False
        return {"type": "".join(words), "nullable": nullable}

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


SPARKS_OWN = "_metadata"
"""The name of a hidden column of every file that Spark reads."""


def is_column_name(name: str) -> bool:
    """Say whether Delta takes a text for the name of a column."""
    return bool(name) and not _COLUMN_FORBIDDEN & set(name)


def valid_column_name(name: str) -> str:
    """Return the name of a column, or refuse it."""
    if not is_column_name(name):
        raise ValueError(f"`{name}`: a column name has no space and none of `,;{{}}()=`")
    if name.startswith("_ba_"):
        raise ValueError(f"`{name}`: names that start with `_ba_` are reserved for this project's own columns")
    if name.casefold() == SPARKS_OWN:
        raise ValueError(f"`{name}`: Spark keeps under this name where a row comes from; give the column another one")
    return name
