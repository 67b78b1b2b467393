"""What a table is: its specification, read from YAML or made in Python, and refused when it contradicts itself.

The messages here are what a person reads in `dg check defs`. Each names the value and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.calendar.windows import Grain, first_day, hours_stay_put, midnight_utc
from backfill_assets.core.spec.changes import ChangeFeed, feed_problems, source_said
from backfill_assets.core.spec.checks import Checks
from backfill_assets.core.spec.columns import (
    Column,
    format_problems,
    path_problems,
    statistics_problems,
    valid_column_name,
)
from backfill_assets.core.spec.expectations import Expectation, expectation_problems
from backfill_assets.core.spec.fields import Strict, in_words, known_zone, unknown
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.no_effect import refuse_without_effect
from backfill_assets.core.spec.once import OnceFlow, OnceFlows
from backfill_assets.core.spec.pace import LaunchPace
from backfill_assets.core.spec.source_spec import Input
from backfill_assets.core.spec.sources import AnySource
from backfill_assets.core.spec.versions import VersionOf, key_problems

_NAME = re.compile(r"[a-z][a-z0-9_]*")
MAX_PARTITIONS_PER_COMMIT = 2_000
"""A commit's receipt holds the tally of every partition it publishes; more would make the log heavy."""


class ChunkSize(Strict):
    """How much one commit publishes: what a crash, a conflict or a stop can cost."""

    max_partitions: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PARTITIONS_PER_COMMIT,
        description="Partitions in one commit. Without it 1,464 of hours, and of files, whose bytes bound it; 366 of "
        "other sources, and of files with a `pace`; 31 where a transform is called for each partition.",
    )
    max_source_bytes: int = Field(default=4 << 30, ge=1, description="Bytes of source files, as stored.")


class CatchUp(Strict):
    """A schedule that launches what is missing, a piece at a time, while nobody needs the machines."""

    cron: str = Field(
        description="When, in the table's time zone, for example `*/30 1-5 * * *`: every half hour from 1:00 to "
        "5:30. Each time a run is launched for what was never asked for, and one for what is due again, unless one "
        "of the table is in progress or nothing is missing."
    )
    max_partitions: int = Field(
        default=200, ge=1, le=MAX_PARTITIONS_PER_COMMIT, description="Partitions in one run, at most."
    )
    newest_first: bool = Field(default=False, description="Whether the newest missing partitions come first.")


class TableSpec(Strict):
    """One table of the lakehouse."""

    key: str = Field(
        description="`layer/name`, for example `bronze/orders`: Dagster's asset key and the folder below `tables/`."
    )
    description: str = Field(
        default="", description="What a row is and where it comes from; shown in Dagster. Markdown."
    )
    columns: dict[str, Column] = Field(
        min_length=1,
        description="Columns by name: a type, with `not null` behind it where NULL is refused (`bigint not null`), "
        "or a mapping. `backfill-assets schema KEY` proposes new ones.",
    )
    key_columns: list[str] = Field(
        default_factory=list[str], description="Columns that together name a row. Empty: rows have no key."
    )
    event_time: str = Field(
        description="Column that says when it happened; it decides the partition. A timestamp or a date."
    )
    grain: Grain = Field(description="How long a partition is: `hourly`, `daily`, `weekly` (from Monday) or `monthly`.")
    start: date = Field(description="First local day of the first partition.")
    time_zone: str = Field(default="UTC", description="IANA zone whose days the partitions are.")
    partition_column: str = Field(default="dt", description="Physical partition column; it is added to the columns.")
    source: AnySource = Field(
        default=None,  # pyright: ignore[reportAssignmentType] (a spec without one gets its feed's, or is refused)
        description="Where history is read from: `kind: files` below dated folders, `kind: delta`, other tables of "
        "this lakehouse, `kind: jdbc`, a table of a database, or `kind: version`, an earlier version of the table. A "
        "table whose `changes` say `backfill: excluded` may do without.",
    )
    version_of: VersionOf | None = Field(default=None, description="What it is a new version of, if it is one.")
    latest_wins_by: list[str] = Field(
        default_factory=list[str],
        description="Of rows with the same key the largest wins. Empty: a key that comes twice fails.",
    )
    empty: Literal["refused", "allowed"] = Field(
        default="refused", description="Whether a launch may leave a partition without rows that has rows now."
    )
    max_shrink: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="How much of the rows that the table has a partition may lose, whoever wrote them: 0.5 is half of "
        "them; `empty` is about the last one. A launch that would lose more is refused, unless its config has "
        "`allow_shrink: true`.",
    )
    expect: list[Expectation] = Field(
        default_factory=list[Expectation],
        description="What measures of a partition must be before it is published, for example "
        "`{measure: sum(amount), by: currency, within: 0.1}`. What is not so is refused, unless the launch's "
        "config has `allow_unexpected: true`.",
    )
    reason: Literal["optional", "required"] = Field("optional", description="Whether each launch must say why.")
    once: OnceFlows | None = Field(default=None, description="Ranges that flows of their own load exactly once.")
    live: LiveStream | None = Field(
        default=None, description="The stream that writes the table's newest partitions, if there is one."
    )
    changes: ChangeFeed | None = Field(None, description="The change feed of the source's database, if there is one.")
    catch_up: CatchUp | None = Field(
        default=None, description="A schedule, off until it is switched on, that launches what is missing."
    )
    follow: bool = Field(
        default=False,
        description="Whether a sensor launches the partitions whose inputs were published.",
    )
    pace: LaunchPace = Field(
        default=LaunchPace(), description="In which hours, and how fast, launches read the source."
    )
    chunk: ChunkSize = Field(default=ChunkSize(), description="How much one commit publishes.")
    checks: Checks = Field(default=Checks(), description="How the reconciliation shows in Dagster.")
    owners: list[str] = Field(default_factory=list[str], description="`team:name` or an e-mail address.")
    tags: dict[str, str] = Field(
        default_factory=dict[str, str], description="Dagster's tags of the asset, `name: value`."
    )
    statistics_columns: list[str] = Field(
        default_factory=list[str],
        description="Columns that Delta keeps minimum and maximum of. Empty: the event time and the key columns.",
    )

    @property
    def inputs(self) -> Sequence[Input]:
        """Tables of the lakehouse that it reads; a version that copied one which is retired reads it no more."""
        return () if self.version_of and self.version_of.retired and self.source.is_of_version else self.source.inputs

    @property
    def layer(self) -> str:
        return self.key.split("/")[0]

    @property
    def name(self) -> str:
        return self.key.split("/")[1]

    @property
    def grid(self) -> Grid:
        return Grid(self.grain, self.start, self.time_zone)

    def field_of(self, name: str) -> str:
        """Return the field, or the path of fields, that the source has a column in."""
        return self.columns[name].path or name

    @property
    def max_partitions_per_chunk(self) -> int:
        """How many partitions one commit publishes at most."""
        waits_between = self.pace != LaunchPace()  # a launch of one chunk would never wait
        is_bounded = self.source.knows_bytes and not waits_between
        most = 1_464 if self.grain is Grain.HOURLY or is_bounded else 366
        return self.chunk.max_partitions or min(most, self.source.partitions_at_once or most)

    @property
    def once_flows(self) -> tuple[OnceFlow, ...]:
        """The once-flows of the table, in the order of their partitions."""
        live_from = midnight_utc(self.live.starts, self.grid.zone) if self.live else None
        return self.once.flows(self.key, self.grid, live_from) if self.once else ()

    @property
    def required_columns(self) -> list[str]:
        """Columns in which NULL is refused."""
        return [
            name for name, column in self.columns.items()
            if not column.nullable or name in self.key_columns or name == self.event_time
        ]  # fmt: skip

    def way_to_lack(self, name: str) -> str:
        """Return what would let the source lack a column, as the end of a sentence; empty where NULL is refused."""
        return "" if name in self.required_columns else "; `optional: true` would read it as NULL"

    @field_validator("key")
    @classmethod
    def _key_form(cls, value: str) -> str:
        parts = value.split("/")
        if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
            raise ValueError(
                f"`{value}`: a key is `layer/name`, both of small letters, digits and `_`, for example `bronze/orders`"
            )
        return value

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        return known_zone(value)

    @field_validator("partition_column")
    @classmethod
    def _partition_column_name(cls, value: str) -> str:
        return valid_column_name(value)

    @field_validator("columns")
    @classmethod
    def _column_names(cls, columns: dict[str, Column]) -> dict[str, Column]:
        for name in columns:
            valid_column_name(name)
        folded = [name.casefold() for name in columns]
        if twice := [name for name in columns if folded.count(name.casefold()) > 1]:
            raise ValueError(f"{in_words(twice)} differ only in case; Delta takes them for one column")
        return columns

    @model_validator(mode="before")
    @classmethod
    def _has_a_source(cls, facts: Any) -> Any:
        return source_said(facts) if isinstance(facts, Mapping) else facts  # pyright: ignore[reportUnknownArgumentType] (whatever a YAML says)

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        named: list[tuple[str, list[str]]] = [
            ("key_columns", self.key_columns),
            ("event_time", [self.event_time]),
            ("latest_wins_by", self.latest_wins_by),
            ("statistics_columns", self.statistics_columns),
        ]
        for field, names in named:
            for name in names:
                if name not in self.columns:
                    raise ValueError(f"{field}: {unknown(name, list(self.columns), 'column')}")
            if len(set(names)) < len(names):
                raise ValueError(f"{field}: {in_words(names)} names a column twice")
        self._event_time_fits(self.columns[self.event_time].type)
        if self.partition_column.casefold() in {name.casefold() for name in self.columns}:
            raise ValueError(
                f"partition_column: `{self.partition_column}` is among the columns; "
                "it is added by itself, so rename one, for example `partition_column: partition_day`"
            )
        if (on_grain := first_day(self.start, self.grain)) != self.start:
            raise ValueError(
                f"start: `{self.start}` is not the first day of a {self.grain} partition; the one that holds it "
                f"starts on `{on_grain}`"
            )
        if self.live is not None:
            self._live_fits(self.live)
        _ = self.once_flows  # refuses what cannot be
        texts = (self.source.texts, self.live and self.live.texts)
        expected = expectation_problems(self.expect, self.columns, self.grain)
        others = [name for name in ("live", "once", "latest_wins_by") if getattr(self, name)]
        fed = feed_problems(self.changes, self.source.kind_name(), self.key_columns, others)
        versioned = key_problems(self.key, self.version_of, is_needed=self.source.is_of_version)
        paths = path_problems(self.columns)
        paths += statistics_problems(self.columns, self.statistics_columns)
        read = [*paths, *self.source.problems(self), *format_problems(self.columns, texts)]
        if problems := [*versioned, *read, *expected, *fed]:
            raise ValueError(problems[0])
        return self

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        refuse_without_effect(self)
        return self

    def _event_time_fits(self, kind: str) -> None:
        if kind not in ("timestamp", "date"):
            raise ValueError(f"event_time: `{self.event_time}` is a `{kind}`; it must be a `timestamp` or a `date`")
        if self.grain is not Grain.HOURLY:
            return
        if kind == "date":
            raise ValueError(
                f"event_time: `{self.event_time}` is a `date`, which does not say the hour; use a `timestamp` or "
                "`grain: daily`"
            )
        if not hours_stay_put(self.grid.zone, self.start):
            raise ValueError(
                f"time_zone: the clocks of `{self.time_zone}` move by part of an hour, and an hour of it is not "
                "always an hour long; "
                "use `time_zone: UTC`, or `grain: daily`"
            )

    def _live_fits(self, live: LiveStream) -> None:
        if (on_grain := first_day(live.starts, self.grain)) != live.starts:
            raise ValueError(
                f"live.starts: `{live.starts}` is not the first day of a {self.grain} partition; "
                f"the one that holds it starts on `{on_grain}`"
            )
        if live.starts < self.start:
            raise ValueError(f"live.starts: `{live.starts}` lies before the table's start, `{self.start}`")
        if live.late == "fold" and not (self.key_columns and self.latest_wins_by):
            raise ValueError(
                "live.late: `fold` needs `key_columns` and `latest_wins_by`, else an event that is in the source "
                "too would count twice; "
                "use `late: keep` (reported) or `late: ignore`"
            )
        if self.columns[self.event_time].type != "timestamp":
            raise ValueError(f"live: the event time `{self.event_time}` must be a `timestamp`")
