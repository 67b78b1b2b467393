"""Once-flows: named ranges of a table's partitions, each loaded exactly once.

What was done is read from the receipts alone: those that a flow wrote since it was last reset. So a correction by an
ordinary launch changes nothing, a flow that was killed continues with the rest, and a table made again has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import pairwise
from typing import Annotated, Any, cast

from pydantic import Field, WithJsonSchema, field_validator

from backfill_assets.core.calendar.partitions import Grid, Partition
from backfill_assets.core.calendar.windows import Window, first_day, midnight_utc
from backfill_assets.core.spec.fields import Strict, in_words
from backfill_assets.errors import WindowError

_YEAR = re.compile(r"[12]\d{3}")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
PLACE = "{year}"


@dataclass(frozen=True, slots=True)
class OnceFlow:
    """One range of a table's partitions that is loaded once.

    Args:
        key: `layer/name` of the asset that stands for it.
        partitions: In order, at least one.
        field: Of the spec, which names it: `years` or `ranges`.
    """

    key: str
    partitions: tuple[Partition, ...]
    field: str

    @property
    def name(self) -> str:
        return self.key.split("/")[1]

    @property
    def range(self) -> str:
        """First and last partition, both included, as Dagster writes it."""
        return f"{self.partitions[0].key}...{self.partitions[-1].key}"


class OnceFlows(Strict):
    """Ranges of history that are loaded exactly once, each by a flow of its own."""

    name: str | None = Field(
        default=None, description="Name of a year's flow; it holds `{year}`. Default: the table's name, `_{year}`."
    )
    years: Annotated[
        list[int],
        WithJsonSchema(
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}, {"type": "integer"}]}
        ),
    ] = Field(
        default_factory=list[int],
        description='Years of local days, one flow for each: `[2023, 2024]`, or one text, `"2024,2023"`.',
    )
    ranges: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Other ranges, by the flow's name: first and last partition, both included, "
        "`2022-01-01...2022-06-30`.",
    )
    begin: date | None = Field(
        default=None, description="First local day that any flow may load: a guard, nothing before it."
    )

    @field_validator("name")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None and value.count(PLACE) != 1:
            raise ValueError(
                f"`{value}` does not contain `{PLACE}` exactly once, so years would share a name: write for example "
                f"`orders_{PLACE}`"
            )
        return value

    @field_validator("years", mode="before")
    @classmethod
    def _years(cls, value: Any) -> list[int]:
        given = (
            cast("list[object]", value) if isinstance(value, list | tuple) else str(value).split(",")
        )  # a template makes a tuple
        texts = [str(year).strip() for year in given]
        if wrong := [text for text in texts if not _YEAR.fullmatch(text)]:
            raise ValueError(f'`{wrong[0]}` is not a year: write four digits each, `[2023, 2024]` or `"2024,2023"`')
        if twice := sorted({text for text in texts if texts.count(text) > 1}):
            raise ValueError(f"{in_words(twice)} comes twice; a year has one flow")
        return [int(text) for text in texts]

    def flows(self, table: str, grid: Grid, live_from: datetime | None) -> tuple[OnceFlow, ...]:
        """Return the flows, in the order of their partitions.

        Args:
            table: Key of the table.
            live_from: Start of the first partition that a live stream owns when the table is made.

        Raises:
            ValueError: A range does not exist, reaches where it must not, or two share a partition or a name.
        """
        layer, name = table.split("/")
        template = self.name or f"{name}_{PLACE}"
        years = [
            OnceFlow(f"{layer}/{template.replace(PLACE, str(y))}", tuple(_of_year(y, grid)), "years")
            for y in self.years
        ]
        ranges = [
            OnceFlow(f"{layer}/{flow}", tuple(_of_range(flow, text, grid)), "ranges")
            for flow, text in self.ranges.items()
        ]
        found = sorted([*years, *ranges], key=lambda flow: flow.partitions)
        if not found:
            raise ValueError(
                "once: there is neither a year nor a range; write for example `years: [2023, 2024]`, or leave "
                "`once` out"
            )
        self._refuse_names(found, table)
        for flow in found:
            self._refuse_bounds(flow, grid, live_from)
        for before, after in pairwise(found):
            if after.partitions[0] <= before.partitions[-1]:
                raise ValueError(
                    f"once.{after.field}: `{after.name}` ({after.range}) overlaps `{before.name}` ({before.range}); "
                    "a partition belongs to one flow, so let one end before the other begins"
                )
        return tuple(found)

    def _refuse_names(self, flows: Sequence[OnceFlow], table: str) -> None:
        seen = set[str]()
        for flow in flows:
            where = "once.name" if flow.field == "years" else "once.ranges"
            if not _NAME.fullmatch(flow.name):
                raise ValueError(
                    f"{where}: `{flow.name}`: a flow's name has small letters, digits and `_`, for example "
                    "`orders_2023`"
                )
            if flow.key == table:
                raise ValueError(
                    f"{where}: `{flow.name}` is the table's own name; add what makes it different, for example "
                    f"`_{PLACE}`"
                )
            if flow.key in seen:
                raise ValueError(f"{where}: two flows have the name `{flow.name}`; give one another name")
            seen.add(flow.key)

    def _refuse_bounds(self, flow: OnceFlow, grid: Grid, live_from: datetime | None) -> None:
        first, last = flow.partitions[0], flow.partitions[-1]
        where = f"once.{flow.field}: `{flow.name}` ({flow.range})"
        if self.begin and first.window.start_utc < midnight_utc(self.begin, grid.zone):
            raise ValueError(f"{where} begins before `begin`, `{self.begin}`; take it out, or move `begin`")
        if first.window.start_utc < grid.start_utc:
            raise ValueError(
                f"{where} begins before the table's start, `{grid.start}`; move `start`, or name the part that exists "
                "under `ranges`"
            )
        if live_from and last.window.end_utc > live_from:
            raise ValueError(
                f"{where} reaches into what the live stream owns: `live.starts` is "
                f"`{live_from.astimezone(grid.zone).date()}`; "
                "a flow ends before it, so name the part before it under `ranges`"
            )


def _of_year(year: int, grid: Grid) -> list[Partition]:
    """Return the partitions that begin in a year of local days, whether the table begins before them or not."""
    january = date(year, 1, 1)
    window = Window(midnight_utc(january, grid.zone), midnight_utc(date(year + 1, 1, 1), grid.zone))
    whole = replace(grid, start=first_day(january, grid.grain))
    return [partition for partition in whole.covering(window) if partition.window.start_utc >= window.start_utc]


def _of_range(name: str, text: str, grid: Grid) -> list[Partition]:
    first, dots, last = (part.strip() for part in text.partition("..."))
    if not dots:
        raise ValueError(
            f"once.ranges: `{name}`: `{text}` is not a range; write first and last partition with three dots between, "
            f"for example `{grid.start}...{grid.start}`"
        )
    try:
        return grid.between(first, last)
    except WindowError as error:
        raise ValueError(f"once.ranges: `{name}`: {error.what} {error.remedy}") from error


# -- what was done -----------------------------------------------------------------------------------------------------
