"""Once-flows: named ranges of a table's partitions, each loaded exactly once. Which there are, and what is left of each.

What was done is read from the receipts alone: those that a flow wrote since it was last reset. So a correction by an
ordinary launch changes nothing, a flow that was killed goes on with the rest, and a table that is made again has none.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

from pydantic import Field, WithJsonSchema, field_validator

from backfill_assets.core.spec.files import Strict, in_words
from backfill_assets.core.calendar.partitions import Grid, Partition
from backfill_assets.core.state.receipts import PublishedPartition, Receipt
from backfill_assets.core.calendar.windows import Window, first_day, midnight_utc
from backfill_assets.errors import WindowError

_YEAR = re.compile(r"[12]\d{3}")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
PLACE = "{year}"

FlowState = Literal["never run", "partly", "done"]


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

    name: str | None = Field(default=None, description="Name of a year's flow; it holds `{year}`. Default: the table's name, `_{year}`.")
    years: Annotated[
        list[int],
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}, {"type": "integer"}]}),
    ] = Field(default_factory=list[int], description='Years of local days, one flow for each: `[2023, 2024]`, or one text, `"2024,2023"`.')
    ranges: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Ranges that are no years, by the flow's name: first and last partition, both included, `2022-01-01...2022-06-30`.",
    )
    begin: date | None = Field(default=None, description="First local day that any flow may load: a guard, nothing before it.")

    @field_validator("name")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None and value.count(PLACE) != 1:
            raise ValueError(
                f"`{value}` does not hold `{PLACE}` once, and all years would have one name: write for example `orders_{PLACE}`"
            )
        return value

    @field_validator("years", mode="before")
    @classmethod
    def _years(cls, value: Any) -> list[int]:
        given = cast("list[object]", value) if isinstance(value, list | tuple) else str(value).split(",")  # a template makes a tuple
        texts = [str(year).strip() for year in given]
        if wrong := [text for text in texts if not _YEAR.fullmatch(text)]:
            raise ValueError(f'`{wrong[0]}` is no year: write four digits each, `[2023, 2024]` or `"2024,2023"`')
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
        years = [OnceFlow(f"{layer}/{template.replace(PLACE, str(y))}", tuple(_of_year(y, grid)), "years") for y in self.years]
        ranges = [OnceFlow(f"{layer}/{flow}", tuple(_of_range(flow, text, grid)), "ranges") for flow, text in self.ranges.items()]
        found = sorted([*years, *ranges], key=lambda flow: flow.partitions)
        if not found:
            raise ValueError("once: there is neither a year nor a range; write for example `years: [2023, 2024]`, or leave `once` out")
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
                raise ValueError(f"{where}: `{flow.name}`: a flow's name has small letters, digits and `_`, for example `orders_2023`")
            if flow.key == table:
                raise ValueError(f"{where}: `{flow.name}` is the table's own name; add what makes it different, for example `_{PLACE}`")
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
                f"{where} begins before the table's start, `{grid.start}`; move `start`, or name the part that there is under `ranges`"
            )
        if live_from and last.window.end_utc > live_from:
            raise ValueError(
                f"{where} reaches into what the live stream owns: `live.starts` is `{live_from.astimezone(grid.zone).date()}`; "
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
            f"once.ranges: `{name}`: `{text}` is no range; write first and last partition with three dots between, "
            f"for example `{grid.start}...{grid.start}`"
        )
    try:
        return grid.between(first, last)
    except WindowError as error:
        raise ValueError(f"once.ranges: `{name}`: {error.what} {error.remedy}") from error


# -- what was done -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """What a flow did since it was last reset.

    Args:
        published: What it published of its partitions, by partition key; a later launch by somebody else is not in it.
        reset: The receipt of its newest reset.
    """

    flow: OnceFlow
    published: Mapping[str, PublishedPartition] = field(default_factory=dict[str, PublishedPartition])
    reset: Receipt | None = None

    @property
    def left(self) -> list[Partition]:
        """Partitions that the flow has not published."""
        return [partition for partition in self.flow.partitions if partition.key not in self.published]

    @property
    def state(self) -> FlowState:
        if not self.left:
            return "done"
        return "partly" if self.published else "never run"

    @property
    def rows(self) -> int:
        """Rows that the flow published."""
        return sum(published.partition.rows for published in self.published.values())

    @property
    def newest(self) -> PublishedPartition | None:
        """The last partition that the flow published."""
        return max(self.published.values(), key=lambda published: published.version, default=None)

    def in_words(self) -> str:
        """Return the state in one sentence."""
        if self.newest is None:
            return f"`{self.flow.name}` never ran" + (" since it was reset." if self.reset else ".")
        receipt = self.newest.receipt
        at = f" at {receipt.made_at}" if receipt.made_at else ""
        return (
            f"`{self.flow.name}` has published {len(self.published):,} of its {len(self.flow.partitions):,} partitions with "
            f"{self.rows:,} rows, the last{at} in version {self.newest.version} by run {receipt.run_id}."
        )


def progress_of(flow: OnceFlow, receipts: Mapping[int, Receipt]) -> FlowProgress:
    """Read from a table's receipts what a flow did since it was last reset.

    Args:
        receipts: All of the table, by version.
    """
    mine, reset = {partition.key for partition in flow.partitions}, None
    published: dict[str, PublishedPartition] = {}
    for version in sorted(receipts):
        receipt = receipts[version]
        if receipt.flow != flow.name:
            continue
        if receipt.kind == "reset":
            published, reset = {}, receipt
        for key in mine & receipt.partitions.keys():
            if receipt.kind == "publish":
                published[key] = PublishedPartition(version, receipt, receipt.partitions[key])
            else:
                published.pop(key, None)  # what was published there was lost, and put back
    return FlowProgress(flow, published, reset)


def reset_receipt(flow: OnceFlow, table: str, *, version: int, run_id: str, root_run_id: str, reason: str, now: datetime) -> Receipt:
    """Return the receipt of a commit without rows, from which on a flow counts as one that never ran.

    Args:
        version: Newest version of the table.
        run_id: Empty where no run resets it.
    """
    return Receipt(
        receipt_id=uuid.uuid4().hex,
        table=table,
        run_id=run_id,
        root_run_id=root_run_id,
        staged_from_version=version,
        source={"kind": "none"},
        partitions={},
        reason=reason,
        kind="reset",
        flow=flow.name,
        made_at=now.isoformat(timespec="seconds"),
    )
