"""Two versions of a table compared: counts and checksums by day, then the rows of the days that differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.windows import Window
from backfill_assets.core.history.version_comparison import (
    FOR_EVER,
    NO_DAY,
    NOT_CARRIED_OVER,
    DayDifference,
    TooEarly,
    VersionComparison,
    as_compared,
    not_compared,
)
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import before, since
from backfill_assets.errors import NOTHING_COMPARED, SameTableError, VersionError
from backfill_assets.lake.compare import compare
from backfill_assets.lake.compared_window import compared_window
from backfill_assets.lake.latest_wins import winners
from backfill_assets.lake.paths import lies_below
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import contents, duplicate_keys_by_partition, rows_by_partition
from backfill_assets.spark.expressions import column, joined_by, partition_value
from backfill_assets.spark.failures import translated
from backfill_assets.spark.version_rows import PROBLEM, rows_as

_LOOK_AGAIN_SECONDS = 1.0
_SIDE = "_ba_side"
_DAYS_LOOKED_INTO = 31


def compare_versions(
    before: LakeTable,
    new: LakeTable,
    *,
    patience_seconds: float = 0.0,
    window: Window | None = None,
    until: Literal["before", "both"] | datetime = "before",
    sleep: Callable[[float], None] = time.sleep,
    read: Callable[[LakeTable, int], DataFrame] | None = None,
) -> VersionComparison:
    """Compare two versions of a table, both at the version of their logs that they have now.

    Of history every row counts as often as it is there. Behind a fence, where events are appended as they come, of rows
    with the same key the newest counts, as it will once they are history.

    Two streams that write the same events are never at the same event. So of what differs both are read again: each
    row that one had must be in the other within the time that is waited.

    Args:
        patience_seconds: How long rows may be missing that a stream is still to bring.
        window: What is compared; without it what `until` says.
        until: `before`: all that the version before has; what the new one has beyond is no difference, since nothing
            says what it should be. `both`: all that either has, as whoever goes back would lose it. An instant: all
            that happened before it.
        read: Returns the rows of either as of one moment of what both follow; then nothing is waited for.

    Raises:
        SameTableError: Both are one table.
        VersionError: One of them was not made.
        TableFactsError: One is another table than its spec describes, for example with a stream that is not in it.
        SchemaMismatchError: What `version_of` says cannot be done.
    """
    refuse_same_table(before, new)
    for table in (before, new):
        table.refuse_other_facts()
    with translated(new.spec.key):
        is_bounded = window is not None or isinstance(until, datetime)
        window = window or compared_window(before, new, until)
        return _Comparison(before, new, window, read, is_bounded).run(patience_seconds, sleep)


def refuse_same_table(before: LakeTable, new: LakeTable) -> None:
    """Raise if two versions are one table, which is always equal to itself, or if one was never made."""
    for table in (before, new):
        if not table.exists():
            raise VersionError(
                f"`{table.spec.key}` was not made: there is no table at `{table.path}`.",
                state=NOTHING_COMPARED,
                remedy=f"Make it, with `backfill-assets version deploy {table.spec.key}`."
                if table.spec.version_of
                else "Launch it: a new version is held against what the one before has.",
            )
    ids = [table.table_log.table_id() for table in (before, new)]
    if lies_below(new.path, before.path) or ids[0] == ids[1]:
        raise SameTableError(
            f"`{before.spec.key}` and `{new.spec.key}` are one table, at `{new.path}`: it is always equal to itself.",
            state=NOTHING_COMPARED,
            remedy="Compare the new version with the one before it.",
        )


@dataclass(slots=True)
class _Comparison:
    before: LakeTable
    new: LakeTable
    window: Window
    read: Callable[[LakeTable, int], DataFrame] | None
    is_bounded: bool
    spec: TableSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = as_compared(self.new.spec)

    def run(self, patience_seconds: float, sleep: Callable[[float], None]) -> VersionComparison:
        tables = (self.before, self.new)
        is_written = not self.read and any(table.spec.live or table.spec.changes for table in tables)
        until = time.monotonic() + (patience_seconds if is_written else 0.0)
        pinned = self._versions()
        sides = self._sides(pinned)
        of_before, of_new = (contents(self.spec, rows) for rows in sides)
        days = sorted(of_before.keys() | of_new.keys())
        differing = [day for day in days if of_before.get(day) != of_new.get(day)]
        is_copy = self.new.spec.source.is_of_version and any(table.spec.changes for table in tables)
        apart = _RowsApart(self.spec, self.new if is_copy and not self.read else None, pinned[1])
        found = first = apart.look(*(self._on(differing, rows) for rows in sides)) if differing else {}
        seen = pinned
        while found:
            now = seen if self.read else self._versions()
            if now != seen:
                found, seen = apart.look(*self._sides(now)), now
            if not found or time.monotonic() >= until:
                break
            sleep(_LOOK_AGAIN_SECONDS)
        named = self._examples(list(found)[:_DAYS_LOOKED_INTO], apart) if found else {}
        left_over = self._left_over(pinned[0])
        return VersionComparison(
            self.before.spec.key,
            self.new.spec.key,
            *pinned,
            days=len(days),
            rows=sum(rows for rows, _ in of_new.values()),
            differing=tuple(DayDifference(day, *counts, named.get(day, ())) for day, counts in found.items()),
            came_later=max(0, sum(map(sum, first.values())) - sum(map(sum, found.values()))),
            not_compared=tuple(not_compared(self.new.spec, self.before.spec, self.window, left_over)),
            left_over=left_over,
            is_bounded=self.is_bounded,
            too_early=self._too_early(*pinned),
        )

    def _examples(self, days: list[str], apart: _RowsApart) -> dict[str, tuple[str, ...]]:
        before, new = (self._on(days, rows) for rows in apart.sides)
        names = self.before.spec.key, self.new.spec.key
        with compare(self.spec, before, new, rows=before.count(), sides=names) as compared:
            return {day: one.examples for day, one in compared.differences().items()}

    # -- both sides, in the same columns -------------------------------------------------------------------------------

    def _versions(self) -> tuple[int, int]:
        return self.before.version(), self.new.version()

    def _sides(self, versions: tuple[int, int]) -> tuple[DataFrame, DataFrame]:
        return self._rows_before(versions[0]), self._rows_new(versions[1])

    def _rows_before(self, version: int) -> DataFrame:
        return self._compared(self._carried_over(version), lost=F.col(PROBLEM))

    def _rows_new(self, version: int) -> DataFrame:
        return self._compared(_as_history(self.new, version, self.read), lost=F.lit(None).cast("string"))

    def _left_over(self, version: int) -> int:
        """Return how many rows the version before has behind what is compared."""
        if (end := self.window.end_utc) >= FOR_EVER:
            return 0
        return self._carried_over(version).where(F.expr(since(self.spec, end))).count()

    def _too_early(self, version: int, new: int) -> TooEarly:
        """Return how many rows either version has before the other one starts.

        The one before may have some from before its own start too, which was moved: its readers are given them.
        """
        old, later = self.before.spec.grid.start_utc, self.new.spec.grid.start_utc
        of_before = self._carried_over(version).where(F.expr(before(self.spec, later))).count()
        is_beyond = later < old <= self.window.start_utc  # else it is compared
        of_new = self.new.read(new).where(F.expr(before(self.spec, old))).count() if is_beyond else 0
        return TooEarly(later if of_before else old, before=of_before, new=of_new, is_moved=later <= old)

    def _carried_over(self, version: int) -> DataFrame:
        """Return the rows of the version before as those of the new one, whenever they happened."""
        return rows_as(self.new.spec, self.before.spec, _as_history(self.before, version, self.read))

    def _compared(self, rows: DataFrame, *, lost: Column) -> DataFrame:
        """Return rows in the columns that are compared, with their day; those that have none are compared too.

        Args:
            lost: Which values of a row cannot be carried over; the same as NULL on the other side they are not.
        """
        when = column(self.spec.event_time)
        day = F.coalesce(partition_value(self.spec, when).cast("string"), F.lit(NO_DAY))
        is_inside = F.expr(since(self.spec, self.window.start_utc))
        if self.window.end_utc < FOR_EVER:
            is_inside &= F.expr(before(self.spec, self.window.end_utc))
        rows = rows.where(is_inside | when.isNull()).withColumn(NOT_CARRIED_OVER, lost)
        return rows.select(*map(column, self.spec.columns), day.alias(self.spec.partition_column))

    def _on(self, days: list[str], rows: DataFrame) -> DataFrame:
        return rows.where(column(self.spec.partition_column).isin(days))


@dataclass(slots=True)
class _RowsApart:
    """Looks at two tables again and again, each time only at the rows that differed at the look before.

    Each table is written in its own turn, so under load they are never at the same event, and rows are replaced or
    deleted meanwhile. But if both follow a row correctly, it is the same in both at some look. Rows are found by their
    key; in a table without one, by all their values.

    A copy that nobody copies any more would be the same at some look too, if a value changes to and fro. So each
    partition of a copy that differed must be written again meanwhile, as a copy is after each change of its origin.

    Args:
        copy: The table that copies the other one, if it does.
        since: Its version at the first look.
        sides: The rows of both at the newest look, of those that differed at the look before.
    """

    spec: TableSpec
    copy: LakeTable | None
    since: int
    sides: tuple[DataFrame, DataFrame] = field(init=False)
    _rows: DataFrame | None = field(default=None, init=False)
    _first: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]], init=False)
    _lies_in: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]], init=False)

    def look(self, before: DataFrame, new: DataFrame) -> dict[str, tuple[int, int]]:
        """Return the number of rows that only one side has, by day, among those that differed at each look so far."""
        seen, names = self._rows, self.spec.key_columns or list(self.spec.columns)
        if seen is not None:
            before, new = (joined_by(rows, seen, names, "left_semi") for rows in (before, new))
        self.sides = before, new
        only = [before.exceptAll(new), new.exceptAll(before)]
        marked = [rows.withColumn(_SIDE, F.lit(side)) for side, rows in enumerate(only)]
        self._rows = marked[0].unionByName(marked[1]).localCheckpoint()  # else each look repeats all earlier ones
        counts = [rows_by_partition(self.spec, self._rows.where(F.col(_SIDE) == side)) for side in (0, 1)]
        found = {day: (counts[0].get(day, 0), counts[1].get(day, 0)) for day in {*counts[0], *counts[1]}}
        if seen is None and self.copy is not None:
            self._first, self._lies_in = dict(found), self._partitions_of(self.copy, self._rows)
        return dict(sorted((self._not_copied_since() | found).items()))

    def _partitions_of(self, copy: LakeTable, rows: DataFrame) -> set[tuple[str, str]]:
        """Return the day of each row, with the copy's partition that contains it."""
        days, here = column(self.spec.partition_column), partition_value(copy.spec, column(self.spec.event_time))
        pairs = rows.where(here.isNotNull()).select(days.cast("string"), here.cast("string")).distinct().collect()
        return {(day, copy.spec.grid.key_of(value)) for day, value in pairs}

    def _not_copied_since(self) -> dict[str, tuple[int, int]]:
        """Return the days that differed at the first look and whose partitions were not all copied again since."""
        published = self.copy.published() if self.copy and self._lies_in else {}
        written = {key for key, one in published.items() if one.version > self.since}
        return {day: self._first[day] for day, key in self._lies_in if key not in written and day in self._first}


def _as_history(table: LakeTable, version: int, read: Callable[[LakeTable, int], DataFrame] | None) -> DataFrame:
    """Return a table's rows; of those behind its fence that have the same key, the newest, as a launch would."""
    spec, rows, fence = table.spec, (read or LakeTable.read)(table, version), table.fence()
    if fence is None or not spec.key_columns or not spec.latest_wins_by:
        return rows
    is_live = column(spec.partition_column) >= F.lit(spec.grid.partition_of(fence.at_utc).value)
    is_live = F.coalesce(is_live, F.lit(False))  # a row without a partition is on one side too
    live = rows.where(is_live)
    if not duplicate_keys_by_partition(spec, live):
        return rows
    return rows.where(~is_live).unionByName(winners(spec, live))
