"""Rows that differ between a table which follows changes and one that follows it, told by key."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import rows_by_partition
from backfill_assets.spark.expressions import column, joined_by, partition_value

_SIDE = "_ba_side"


@dataclass(slots=True)
class KeysApart:
    """Looks at two tables again and again, each time only at the keys that differed at the look before.

    Each is written in its own turn, so under load they never have come equally far; rows are replaced and deleted
    meanwhile. But a key that both follow is the same on both sides at some look, and then was followed rightly.

    A copy that nobody copies any more would be the same at some look, too, where a value goes to and fro. So of a day
    that differed the copy has to be written anew meanwhile, as it is after each change of what it copies.

    Args:
        spec: As what both are compared: its key columns tell rows.
        copy: The table that copies the other one, if it does.
        since: Its version at the first look.
        rows: Those that differed at the newest look.
    """

    spec: TableSpec
    copy: LakeTable | None
    since: int
    _first: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]], init=False)
    _lies_in: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]], init=False)
    rows: DataFrame | None = field(default=None, init=False)

    def look(self, days: list[str], here: DataFrame, there: DataFrame) -> dict[str, tuple[int, int]]:
        """Return how many rows only one side has, by day, of the keys that differed at each look so far.

        Args:
            days: Those that the first look is about; later a key may have got to any other.
        """
        seen = self.rows
        if seen is None:
            sides = [rows.where(column(self.spec.partition_column).isin(days)) for rows in (here, there)]
        else:
            sides = [joined_by(rows, seen, self.spec.key_columns, "left_semi") for rows in (here, there)]
        only = sides[0].exceptAll(sides[1]), sides[1].exceptAll(sides[0])
        marked = [rows.withColumn(_SIDE, F.lit(side)) for side, rows in enumerate(only)]
        self.rows = marked[0].unionByName(marked[1]).localCheckpoint()  # the plan of `seen` is in it four times
        counts = [rows_by_partition(self.spec, self.rows.where(F.col(_SIDE) == side)) for side in (0, 1)]
        found = {day: (counts[0].get(day, 0), counts[1].get(day, 0)) for day in {*counts[0], *counts[1]}}
        if seen is None and self.copy is not None:
            self._first, self._lies_in = dict(found), self._partitions_of(self.copy, self.rows)
        return dict(sorted((self._not_copied_since() | found).items()))

    def _partitions_of(self, copy: LakeTable, rows: DataFrame) -> set[tuple[str, str]]:
        """Return the day of each row, with the partition of the copy that it lies in there."""
        days, here = column(self.spec.partition_column), partition_value(copy.spec, column(self.spec.event_time))
        pairs = rows.where(here.isNotNull()).select(days.cast("string"), here.cast("string")).distinct().collect()
        return {(day, copy.spec.grid.key_of(value)) for day, value in pairs}

    def _not_copied_since(self) -> dict[str, tuple[int, int]]:
        """Return the days that differed at the first look, and of which the copy was not written whole since."""
        published = self.copy.published() if self.copy and self._lies_in else {}
        written = {key for key, one in published.items() if one.version > self.since}
        return {day: self._first[day] for day, key in self._lies_in if key not in written and day in self._first}
