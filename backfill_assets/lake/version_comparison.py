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
from backfill_assets.core.history.row_difference import RowDifference
from backfill_assets.core.history.version_comparison import (
    FOR_EVER,
    NO_DAY,
    NOT_CARRIED_OVER,
    SINCE_EVER,
    DayDifference,
    TooEarly,
    VersionComparison,
    as_compared,
    not_compared,
)
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import between
from backfill_assets.errors import SameTableError, VersionError
from backfill_assets.lake.compared_window import compared_window
from backfill_assets.lake.keys_apart import KeysApart
from backfill_assets.lake.latest_wins import winners
from backfill_assets.lake.paths import lies_below
from backfill_assets.lake.row_differences import KIND, PARTITION, difference_of, one_sided, values_in_text
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, named_by_key, values_of
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import contents, duplicate_keys_by_partition, rows_by_partition
from backfill_assets.spark.expressions import all_of, collected, column, partition_value
from backfill_assets.spark.failures import translated
from backfill_assets.spark.version_rows import PROBLEM, rows_as

NOTHING_COMPARED = "Nothing was compared, and nothing was changed."
_LOOK_AGAIN_SECONDS = 1.0
_DAYS_LOOKED_INTO = 31


def compare_versions(
    before: LakeTable,
    new: LakeTable,
    *,
    wait_seconds: float = 0.0,
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
        wait_seconds: For how long rows may be missing that a stream is still to bring.
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
        return _Comparison(before, new, window or compared_window(before, new, until), read).run(wait_seconds, sleep)


def refuse_same_table(before: LakeTable, new: LakeTable) -> None:
    """Raise if two versions are one table, which is always equal to itself, or if one was never made."""
    for table in (before, new):
        if not table.exists():
            raise VersionError(
                f"`{table.spec.key}` was not made: there is no table at `{table.path}`.",
                state=NOTHING_COMPARED,
                remedy=f"Make it, with `backfill-assets version make {table.spec.key}`."
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
    spec: TableSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = as_compared(self.new.spec)

    def run(self, wait_seconds: float, sleep: Callable[[float], None]) -> VersionComparison:
        is_written = any(table.spec.live or table.spec.changes for table in (self.before, self.new))
        until = time.monotonic() + (wait_seconds if is_written and not self.read else 0.0)
        pinned = self.before.version(), self.new.version()
        of_before, of_new = contents(self.spec, self._before(pinned[0])), contents(self.spec, self._new(pinned[1]))
        days = sorted(of_before.keys() | of_new.keys())
        differing = [day for day in days if of_before.get(day) != of_new.get(day)]
        is_fed = bool(self.spec.key_columns) and any(table.spec.changes for table in (self.before, self.new))
        copy = self.new if self.new.spec.source.is_of_version else None
        apart = KeysApart(self.spec, copy, pinned[1]) if is_fed and not self.read else None
        found, first, seen = (self._left(differing, pinned, pinned, apart) if differing else {}), None, pinned
        while found:
            first = first or sum(map(sum, found.values()))
            now = seen if self.read else (self.before.version(), self.new.version())
            if now != seen:
                found, seen = self._left(list(found), pinned, now, apart), now
            if not found or time.monotonic() >= until:
                break
            sleep(_LOOK_AGAIN_SECONDS)
        named = self._examples(list(found)[:_DAYS_LOOKED_INTO], seen if apart else pinned) if found else {}
        left_over = self._left_over(pinned[0])
        return VersionComparison(
            self.before.spec.key,
            self.new.spec.key,
            *pinned,
            days=len(days),
            rows=sum(rows for rows, _ in of_new.values()),
            differing=tuple(DayDifference(day, *counts, named.get(day, ())) for day, counts in sorted(found.items())),
            came_later=(first or 0) - sum(map(sum, found.values())),
            not_compared=tuple(not_compared(self.new.spec, self.before.spec, self.window, left_over)),
            left_over=left_over,
            too_early=self._too_early(*pinned),
        )

    def _left(
        self, days: list[str], pinned: tuple[int, int], now: tuple[int, int], apart: KeysApart | None
    ) -> dict[str, tuple[int, int]]:
        """Return, by day, the rows that one side had when it was pinned and the other has not got by now."""
        here, there = self._before(now[0]), self._new(now[1])
        if apart:
            return apart.look(days, here, there)
        here_then, there_then = self._before(pinned[0]), self._new(pinned[1])
        only_before = self._on(days, here_then).exceptAll(self._on(days, there))
        only_new = self._on(days, there_then).exceptAll(self._on(days, here))
        if now != pinned:
            only_before = self._without_replaced(only_before, self._on(days, here), there)
            only_new = self._without_replaced(only_new, self._on(days, there), here)
        of_before, of_new = rows_by_partition(self.spec, only_before), rows_by_partition(self.spec, only_new)
        return {day: (of_before.get(day, 0), of_new.get(day, 0)) for day in sorted(of_before.keys() | of_new.keys())}

    def _without_replaced(self, rows: DataFrame, own: DataFrame, others: DataFrame) -> DataFrame:
        """Leave out rows that their own side has no more, and of which the other one has a newer one by now.

        What its own side has still was replaced by nothing that came since.
        """
        return rows.intersectAll(own).unionByName(self._without_older(rows.exceptAll(own), others))

    def _without_older(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Leave out rows of which the other side has a newer one by now, in the same partition of the new version.

        In another partition the same key is another row. Whether what is newer is right is seen next time.
        """
        newest = self.new.spec.latest_wins_by
        if not self.spec.key_columns or not newest or not set(newest) <= self.spec.columns.keys():
            return rows
        names = list(dict.fromkeys([*self.spec.key_columns, *newest]))
        here = partition_value(self.new.spec, column(self.spec.event_time))
        named = [column(name).alias(f"_ba_{at}") for at, name in enumerate(names)]
        other = others.select(here.alias("_ba_here"), *named)
        by_name = {name: F.col(f"_ba_{at}") for at, name in enumerate(names)}
        same = all_of(column(name).eqNullSafe(by_name[name]) for name in self.spec.key_columns)
        same &= here.eqNullSafe(F.col("_ba_here"))
        ours = F.struct(*(column(name).alias(f"_{at}") for at, name in enumerate(newest)))
        theirs = F.struct(*(by_name[name].alias(f"_{at}") for at, name in enumerate(newest)))
        return rows.join(other, same & (theirs > ours), "left_anti")

    def _examples(self, days: list[str], pinned: tuple[int, int]) -> dict[str, tuple[str, ...]]:
        sides = self._on(days, self._before(pinned[0])), self._on(days, self._new(pinned[1]))
        named: dict[str, list[str]] = {}
        with one_sided(self.spec, *sides, rows=sides[0].count()) as (_, _, pairs):
            few = first_of_each(pairs, [F.col(PARTITION), F.col(KIND)], EXAMPLES)
            for row in collected(values_in_text(self.spec, few)):
                named.setdefault(self.spec.grid.key_of(row[PARTITION]), []).append(
                    self._named(difference_of(self.spec, row))
                )
        return {day: tuple(texts) for day, texts in named.items()}

    def _named(self, found: RowDifference) -> str:
        shows = self.spec.checks.show_values
        filled = [name for name, value in found.either.items() if name != NOT_CARRIED_OVER or value is not None]
        row = values_of(found.either, filled) if shows else named_by_key(self.spec, found.either)
        match found.kind:
            case "missing":
                return f"only in {self.before.spec.key}: {row}"
            case "extra":
                return f"only in {self.new.spec.key}: {row}"
            case "repeated":
                return f"{found.source_times:,} and {found.table_times:,} times: {row}"
            case "different":
                return f"differs in {', '.join(found.columns)}: {row}"

    # -- both sides, in the same columns -------------------------------------------------------------------------------

    def _before(self, version: int) -> DataFrame:
        return self._compared(self._carried_over(version), lost=F.col(PROBLEM))

    def _new(self, version: int) -> DataFrame:
        return self._compared(_as_history(self.new, version, self.read), lost=F.lit(None).cast("string"))

    def _left_over(self, version: int) -> int:
        """Return how many rows the version before has behind what is compared."""
        if (end := self.window.end_utc) >= FOR_EVER:
            return 0
        return self._count(self._carried_over(version), Window(end, FOR_EVER))

    def _too_early(self, before: int, new: int) -> TooEarly:
        """Return how many rows either version has before the other one starts.

        The one before may have some from before its own start too, which was moved: its readers are given them.
        """
        old, later = self.before.spec.grid.start_utc, self.new.spec.grid.start_utc
        of_before = self._count(self._carried_over(before), Window(SINCE_EVER, later))
        is_beyond = later < old <= self.window.start_utc  # else it is compared
        of_new = self._count(self.new.read(new), Window(SINCE_EVER, old)) if is_beyond else 0
        return TooEarly(later if of_before else old, before=of_before, new=of_new, is_moved=later <= old)

    def _carried_over(self, version: int) -> DataFrame:
        """Return the rows of the version before as those of the new one, whenever they happened."""
        return rows_as(self.new.spec, self.before.spec, _as_history(self.before, version, self.read))

    def _count(self, rows: DataFrame, window: Window) -> int:
        return rows.where(F.expr(between(self.spec, window))).count()

    def _compared(self, rows: DataFrame, *, lost: Column) -> DataFrame:
        """Return rows in the columns that are compared, with their day; those that have none are compared too.

        Args:
            lost: Which values of a row cannot be carried over; the same as NULL on the other side they are not.
        """
        when = column(self.spec.event_time)
        day = F.coalesce(partition_value(self.spec, when).cast("string"), F.lit(NO_DAY))
        rows = rows.where(F.expr(between(self.spec, self.window)) | when.isNull()).withColumn(NOT_CARRIED_OVER, lost)
        return rows.select(*map(column, self.spec.columns), day.alias(self.spec.partition_column))

    def _on(self, days: list[str], rows: DataFrame) -> DataFrame:
        return rows.where(column(self.spec.partition_column).isin(days))


def _as_history(table: LakeTable, version: int, read: Callable[[LakeTable, int], DataFrame] | None) -> DataFrame:
    """Return a table's rows; of those behind its fence that have the same key, the newest, as a launch would."""
    spec, rows, fence = table.spec, (read or LakeTable.read)(table, version), table.fence()
    if fence is None or not spec.key_columns or not spec.latest_wins_by:
        return rows
    here, first = column(spec.partition_column), F.lit(spec.grid.partition_of(fence.at_utc).value)
    live = rows.where(here >= first)
    if not duplicate_keys_by_partition(spec, live):
        return rows
    return rows.where(here < first).unionByName(winners(spec, live))
