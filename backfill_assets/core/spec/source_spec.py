"""What every kind of source says of itself in a spec. Each kind has a class of its own below `SourceSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Protocol, Self

from pydantic import Field, model_validator

from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.spec.columns import Column, Texts
from backfill_assets.core.spec.fields import Strict
from backfill_assets.errors import AddressMissingError


class TableFacts(Protocol):
    """What a source may ask of the table that it fills: a part of `TableSpec`."""

    @property
    def key(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, Column]: ...
    @property
    def event_time(self) -> str: ...
    @property
    def grain(self) -> Grain: ...
    @property
    def start(self) -> date: ...
    @property
    def time_zone(self) -> str: ...


class Input(Strict):
    """One table that another is made of.

    Offsets widen what is read, in partitions of the table that is made: `start_offset: -1` also reads the one before.
    """

    table: str = Field(description="Key of the other table, for example `bronze/orders`.")
    start_offset: int = Field(
        default=0, le=0, description="So many partitions before the one that is made are read too: `-1` is one."
    )
    end_offset: int = Field(default=0, ge=0, description="So many partitions after the one that is made are read too.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        """Let editors know the short form too."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"table": value} if isinstance(value, str) else value


class SourceSpec(Strict):
    """What a table's `source:` says, of any kind. A kind overrides what it has something to say of.

    A class below it declares `kind: Literal["..."] = "..."` and is made known with `register_source`.
    """

    @classmethod
    def kind_name(cls) -> str | None:
        """Return the `kind` that YAML says; None if the class does not say it."""
        field = cls.model_fields.get("kind")
        return field.default if field and isinstance(field.default, str) else None

    @property
    def description(self) -> str:
        """Where history comes from, in a few words of Markdown."""
        return f"`{self.kind_name()}`"

    @property
    def inputs(self) -> Sequence[Input]:
        """Tables of the lakehouse that this one is made of."""
        return ()

    @property
    def variables(self) -> Sequence[str]:
        """Environment variables without which it cannot be read."""
        return ()

    @property
    def landing_folder(self) -> str | None:
        """Folder whose files are its history, below `landing/` unless it is absolute; None if it reads no files."""
        return None

    @property
    def is_of_version(self) -> bool:
        """Whether the rows are those of an earlier version of the table, by what its `version_of` says."""
        return False

    @property
    def transform_path(self) -> str | None:
        """Dotted path of the function that makes the rows from the inputs; None if there is none."""
        return None

    @property
    def modules_of_code(self) -> Sequence[str]:
        """The modules beside the transform's own whose text is part of the code version."""
        return ()

    @property
    def sets_code_version(self) -> bool:
        """Whether the spec says the version of the transform."""
        return False

    def for_rows(self) -> Self:
        """Return it as far as it decides what the rows are: the code version has that, and nothing else of it.

        What says only when something may be launched, or how fast, is as if it was not given.
        """
        return self

    @property
    def partitions_at_once(self) -> int | None:
        """How many partitions may be read together before it gets slow; None where more of them are no slower."""
        return None

    def begins(self, start: date) -> date:
        """Return the first local day of its history, which is the table's start or lies after it."""
        return start

    @property
    def knows_bytes(self) -> bool:
        """Whether its surveys say how many bytes a partition has, so that these bound a chunk of many."""
        return False

    @property
    def has_objects(self) -> bool:
        """Whether a record may hold objects, so that columns may look into them with `from:`."""
        return False

    @property
    def texts(self) -> Texts | None:
        """How values are read that come as text, so that columns may say `format:`; None where they have types."""
        return None

    def problems(self, table: TableFacts) -> Sequence[str]:
        """Say in which points the source contradicts the table that it fills.

        Returns:
            Sentences that start with the field, for example ``source.begin: `2024-02-30` is ...``.
        """
        del table
        return ()


def refuse_unset(about: str, variables: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise if a variable that a source needs is not set.

    Args:
        about: Whose source it is, for messages.

    Raises:
        AddressMissingError: The first of those that are not.
    """
    for variable in variables:
        if not environment.get(variable, "").strip():
            raise AddressMissingError(
                f"`{about}`: the environment variable `{variable}` is to hold the address of its database, and is not "
                "set.",
                state="Nothing was read.",
                remedy=f"Set it where launches run, for example `{variable}=postgresql://reader@db.example/shop`; "
                "a password may be in it, in `PGPASSWORD`, or in `~/.pgpass`.",
                variable=variable,
            )
