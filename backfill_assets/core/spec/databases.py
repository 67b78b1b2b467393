"""`kind: jdbc`: history in a table of a PostgreSQL database, as a spec says it."""

from __future__ import annotations

import re
from datetime import date
from typing import Literal, Self

from pydantic import Field, field_validator

from backfill_assets.core.spec.fields import known_zone
from backfill_assets.core.spec.source_spec import SourceSpec, TableFacts

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class DatabaseSpec(SourceSpec):
    """History in one table of a PostgreSQL database, read in one snapshot for each chunk."""

    kind: Literal["jdbc"] = Field(default="jdbc", description="A table of a PostgreSQL database.")
    connection: str = Field(
        description="Name of the environment variable that holds the database's address, for example "
        "`SHOP_DATABASE` with `postgresql://reader@db.example:5432/shop`. The address itself, and a password in it, "
        "are never written here."
    )
    replica: str | None = Field(
        default=None,
        description="Name of the environment variable that holds the address of a read replica. History is then read "
        "there, once it has replayed what the primary had when the read began.",
    )
    table: str = Field(description="The table, with its schema: `public.customers`. Without a schema `public`.")
    timestamps_without_zone: str | None = Field(
        default=None,
        description="IANA zone in which a `timestamp without time zone` is read. Without it such a column is refused.",
    )
    without_event_time: Literal["refused", "ignored"] = Field(
        default="refused",
        description="What happens if the database has rows without an event time of the years 1 to 9999, which lie in "
        "no partition: `refused` starts no launch, `ignored` leaves them out and says how many there are.",
    )
    complete_until: date | None = Field(
        default=None,
        description="The first local day for which the database does not have all rows yet. Without it, each partition "
        "is complete when it has ended by the database's clock.",
    )
    modified_at: str | None = Field(
        default=None,
        description="A column of the database's table that says when a row was last written, for "
        "`backfill-assets plan --modified-since`. It need not be a column of this table.",
    )
    parallel_reads: int = Field(default=2, ge=1, le=64, description="Connections that read rows at the same time.")
    rows_per_read: int = Field(
        default=500_000, ge=1, description="Rows that one query reads, about: what holds more is cut."
    )
    fetch_rows: int = Field(default=5_000, ge=1, description="Rows that are fetched at once from a query's cursor.")
    statement_timeout_seconds: float | None = Field(
        default=None, gt=0, description="After so long the database ends a query. Without it, never."
    )
    replica_wait_seconds: float = Field(
        default=60.0, ge=0, description="How long a launch waits for a replica that is behind, before it gives up."
    )

    @property
    def description(self) -> str:
        """The table, and the name of the variable that says where."""
        return f"`{self.table}` in the database of `{self.connection}`"

    @property
    def variables(self) -> list[str]:
        """Those that hold the addresses."""
        return [name for name in (self.connection, self.replica) if name]

    @property
    def schema_and_name(self) -> tuple[str, str]:
        """The schema and the table in it."""
        schema, _, name = self.table.rpartition(".")
        return schema or "public", name

    def for_rows(self) -> Self:
        """Leave out where the database is and how fast it is read: no row changes with that."""
        return self.model_construct(
            kind=self.kind, connection="", table=self.table, timestamps_without_zone=self.timestamps_without_zone
        )

    def problems(self, table: TableFacts) -> list[str]:
        """Refuse a day up to which nothing would be complete."""
        if self.complete_until and self.complete_until <= table.start:
            return [f"source.complete_until: `{self.complete_until}` does not lie after the table's start"]
        return []

    @field_validator("connection", "replica")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not _VARIABLE.fullmatch(value):
            raise ValueError(
                "name the environment variable that holds the address, for example `SHOP_DATABASE`; an address may "
                "have a password in it, and does not belong into a file that others read"
            )
        return value

    @field_validator("table")
    @classmethod
    def _has_a_schema_at_most(cls, value: str) -> str:
        if not all(value.split(".")) or value.count(".") > 1:
            raise ValueError(
                f"`{value}`: write `schema.table`, for example `public.customers`, without quotes; a schema or a table "
                "whose name has a dot cannot be named: give it another name in the database (`ALTER SCHEMA ... RENAME "
                "TO ...`), or move the table to another schema (`ALTER TABLE ... SET SCHEMA ...`)"
            )
        return value

    @field_validator("timestamps_without_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else known_zone(value)
