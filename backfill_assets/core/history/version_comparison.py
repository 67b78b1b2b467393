"""Two versions of a table held against each other: what is compared, and what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from backfill_assets.core.calendar.windows import Grain, Window
from backfill_assets.core.spec.columns import Column
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import columns_from

DAY = "_ba_day"
NO_DAY = "no day"
"""Where rows of the version before are found that say of none when it happened, as the new version tells it."""

NOT_CARRIED_OVER = "what the new types cannot hold"
"""A column that both have when they are compared: in words, of a row of the version before, what is lost of it."""

FOR_EVER = datetime(9999, 1, 1, tzinfo=UTC)
"""The end of what has none."""


def as_compared(new: TableSpec) -> TableSpec:
    """Return the spec of the rows that both versions have: the columns that are not new, by local day of the new one.

    Whatever grains the two have, a day is what both can be cut into.
    """
    assert new.version_of is not None, "only a version of something is compared"  # noqa: S101 (the caller has it)
    origin = columns_from(new, new.version_of)
    columns = {name: kind for name, kind in new.columns.items() if name in origin}
    columns[NOT_CARRIED_OVER] = Column(type="string")
    keys = new.key_columns if all(name in columns for name in new.key_columns) else []
    by_day: dict[str, Any] = {"grain": Grain.DAILY, "partition_column": DAY, "live": None, "version_of": None}
    return new.model_copy(update={"columns": columns, "key_columns": keys, "latest_wins_by": [], **by_day})


def not_compared(new: TableSpec, old: TableSpec, window: Window | None = None, left: int = 0) -> list[str]:
    """Return in words what is not compared.

    Args:
        window: What is.
        left: Rows that the old version has behind that.
    """
    assert new.version_of is not None, "only a version of something is compared"  # noqa: S101 (the caller has it)
    said = [f"`{name}` is new" for name in new.version_of.new]
    said += [f"`{name}` of `{old.key}` is dropped" for name in new.version_of.dropped]
    if old.grid.start_utc < new.grid.start_utc:
        said.append(f"what `{old.key}` has before {new.start}, where `{new.key}` starts")
    if new.grid.start_utc < old.grid.start_utc and not (window and window.start_utc < old.grid.start_utc):
        said.append(f"what `{new.key}` has before {old.start}, where `{old.key}` starts")
    if window and window.end_utc < FOR_EVER:
        said.append(f"what `{new.key}` has from {window.end_utc:%Y-%m-%d %H:%M} UTC on, which is held against nothing")
        said += [f"{left:,} rows that `{old.key}` has from then on: `{new.key}` may lack them"] if left else []
    return said


def has_same_event_time(new: TableSpec, old: TableSpec) -> bool:
    """Say whether a row of a new version happens when that of the version before does, if only by another name."""
    origin = columns_from(new, new.version_of).get(new.event_time) if new.version_of else None
    return origin is not None and origin.how != "computed" and origin.text == old.event_time


def since_utc(new: TableSpec, old: TableSpec) -> datetime:
    """Return the instant from which on both versions have rows."""
    return max(new.grid.start_utc, old.grid.start_utc)


@dataclass(frozen=True, slots=True)
class DayDifference:
    """A day on which two versions have not the same rows.

    Args:
        only_before: Rows that only the version before has; the same row twice counts twice.
        only_new: Rows that only the new one has.
        examples: A few of both, by key.
    """

    day: str
    only_before: int
    only_new: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Rows that one of two versions has before the other one starts, and which that lacks.

    Args:
        before: Rows of the version before.
        new: Likewise of the new one.
        start: When the other one starts.
        is_moved: Whether those of the version before lie before its own start too.
    """

    start: datetime
    before: int = 0
    new: int = 0
    is_moved: bool = False

    def in_words(self, before: str, new: str) -> str:
        """Say it; empty if neither has any."""
        if not self.before and not self.new:
            return ""
        has, lacks = (before, new) if self.before else (new, before)
        both = f"; a copy has them if that of `{before}` is as early" if self.before and self.is_moved else ""
        return (
            f"`{has}` has {self.before or self.new:,} rows before {self.start:%Y-%m-%d %H:%M} UTC, where `{lacks}` "
            f"starts: with an earlier `start` that would have them{both}"
        )


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """What came of comparing two versions of a table.

    Args:
        before_version: Of the log of the version before, that was read.
        new_version: Likewise of the new one.
        days: On which either has rows.
        rows: That the new one has on them.
        differing: Days that are not the same; none if both are equal.
        came_later: Rows that one of both had not got yet when they were read, and has by now.
        left_over: Rows that the version before has behind what was compared; the last of `not_compared` says so.
        is_bounded: Whether somebody has chosen what is compared, and so which rows are left over.
        too_early: Rows before the start of one of both.
        not_followed: Partitions of the new one into which no change of the database comes, though it comes into the one
            before. Their rows may be the same today.
        not_followed_before: Likewise the other way round.
        lagging: Partitions of the new one that changes have not come into which had landed when they were waited for.
        lagging_before: Likewise of the one before.
    """

    before: str
    new: str
    before_version: int
    new_version: int
    days: int
    rows: int
    differing: tuple[DayDifference, ...] = ()
    came_later: int = 0
    not_compared: tuple[str, ...] = field(default_factory=tuple)
    left_over: int = 0
    is_bounded: bool = False
    too_early: TooEarly = TooEarly(FOR_EVER)
    not_followed: tuple[str, ...] = ()
    not_followed_before: tuple[str, ...] = ()
    lagging: tuple[str, ...] = ()
    lagging_before: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether both have the same rows, as far as they can be compared, and the new one lacks none, nor will."""
        return not (self.differing or self.too_early.before or self.strays or self.not_followed or self.lagging)

    @property
    def strays(self) -> str:
        """Which rows of the version before lie behind its newest partition, in words; empty if there are none."""
        if self.is_bounded or not self.left_over:
            return ""
        rows = f"{self.left_over:,} rows that happened after its newest partition"
        return f"`{self.before}` has {rows}: `{self.new}` may lack them"

    @property
    def has_more(self) -> bool:
        """Whether the new version has rows that the one before lacks: whoever goes back would lose them."""
        is_left = bool(self.too_early.new or self.not_followed_before or self.lagging_before)
        return is_left or any(day.only_new for day in self.differing)

    @property
    def outside(self) -> str:
        """What one of both has before the other one starts, in words; empty if that is nothing."""
        return self.too_early.in_words(self.before, self.new)

    @property
    def without_changes(self) -> str:
        """Which partitions of either lack changes, or will, in words; empty if there are none."""
        comes_not = "no change of the database comes into", "until they are launched, or their feed can be read on"
        came_not = "changes that have landed did not come into", "while they were waited for; `live` says why"
        each = (
            (self.new, comes_not, self.not_followed),
            (self.before, comes_not, self.not_followed_before),
            (self.new, came_not, self.lagging),
            (self.before, came_not, self.lagging_before),
        )
        return "; ".join(
            f"{what} {len(keys):,} partitions of `{key}`, `{keys[0]}` to `{keys[-1]}`, {until}"
            for key, (what, until), keys in each
            if keys
        )

    def __str__(self) -> str:
        pinned = f"`{self.before}` at version {self.before_version} and `{self.new}` at version {self.new_version}"
        if not self.differing:
            same = f"{pinned} have the same {self.rows:,} rows on {self.days:,} days"
            more = "; ".join(filter(None, [self.outside, self.strays, self.without_changes]))
            return f"{same}, but {more}" if more else same
        first = self.differing[0]
        said = f"{pinned} differ on {len(self.differing):,} of {self.days:,} days, first on {first.day}: "
        said += f"{first.only_before:,} rows only in the former, {first.only_new:,} only in the latter"
        return said + (f" ({'; '.join(first.examples)})" if first.examples else "")
