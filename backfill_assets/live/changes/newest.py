"""The newest change of each partition, kept up to date: only changes that have come since are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.history.audit import ALL_ROWS
from backfill_assets.core.history.changes import COMES, EMPTIES, LEAVES, Order
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.live.changes.table import Reach
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.spark.caching import persist
from backfill_assets.spark.expressions import by_partition, column, looked_up

EMPTIED = "every partition"
"""Stands among the values of the partition column for what empties the whole table."""

_WAS_THERE = "_ba_was_there"


@dataclass(slots=True)
class NewestChanges:
    """What a feed has brought, by partition.

    Changes of before the feed's beginning are those of an older feed: they play no part.

    Args:
        changes: Returns the changes from one position up to another.
    """

    spec: TableSpec
    changes: Callable[[int, int], DataFrame]
    _by_key: dict[str, Order] = field(default_factory=dict[str, Order], init=False)
    _emptied: Order | None = field(default=None, init=False)
    _seen: Reach | None = field(default=None, init=False)

    def until(self, reach: Reach) -> dict[str, Order]:
        """Return the newest change that touched each partition, by key; the newest that emptied the table by no key."""
        if self._seen is None or self._seen.began != reach.began:
            self._by_key, self._emptied = {}, None
            self._look(reach.began, reach)
        elif self._seen.position < reach.position:
            self._look(self._seen.position, reach)
        self._seen = reach
        return {**self._by_key, **({"": self._emptied} if self._emptied else {})}

    def _look(self, since: int, reach: Reach) -> None:
        rows = self.changes(since, reach.position)
        touched = rows.select(
            F.explode(F.array(F.col("partition_before").cast("string"), F.col("partition_after").cast("string"))).alias(
                "value"
            ),
            F.struct("after_position", "number").alias("at"),
            (F.col("op") == EMPTIES).alias("emptied"),
        )
        counted = touched.groupBy("value", "emptied").agg(F.max("at").alias("at")).collect()
        for row in counted:
            at = int(row["at"][0]), int(row["at"][1])
            if row["emptied"]:
                self._emptied = max(self._emptied or at, at)
            elif row["value"] is not None:
                key = self.spec.grid.key_of(row["value"])
                self._by_key[key] = max(self._by_key.get(key, at), at)


def newest_of(key: str, newest: dict[str, Order]) -> Order | None:
    """Return the newest change that touched a partition: one of its rows, or all rows of the table."""
    found = [at for at in (newest.get(key), newest.get("")) if at is not None]
    return max(found, default=None)


def waiting_since(
    grid: Grid, changes_of: Callable[[int, int], DataFrame], lacking: Mapping[str, int], until: int
) -> dict[str, datetime]:
    """Return when the oldest change was committed that each of some partitions lacks, by key.

    Args:
        changes_of: Returns the changes after one position and not after another.
        lacking: Up to where each has every change, by key; all of them lack some.
        until: Position up to which changes are known.
    """
    if not lacking:
        return {}
    positions = {str(grid.partition(key).value): position for key, position in lacking.items()}
    changes = changes_of(min(positions.values()), until)
    ends = F.array(F.col("partition_before").cast("string"), F.col("partition_after").cast("string"))
    every = F.array(*map(F.lit, positions))
    touched = changes.select(
        F.explode(F.when(F.col("op") == EMPTIES, every).otherwise(ends)).alias("value"), "at", "after_position"
    )
    missed = touched.where(F.col("after_position") >= looked_up(positions, F.col("value")))
    oldest = missed.groupBy("value").agg(F.min(F.unix_micros("at")).alias("at")).collect()
    times = {row["value"]: row["at"] for row in oldest if row["at"] is not None}
    return {grid.key_of(value): _EPOCH + timedelta(microseconds=at) for value, at in times.items()}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Left:
    """What has left some partitions by changes that they lack.

    Args:
        keys: Partition column and key columns; None if nothing has left, or if all rows may have.
        rows: How many of them were there before, by the value of the partition column, as text.
    """

    keys: DataFrame | None = None
    rows: Mapping[str, int] = field(default_factory=dict[str, int])

    def release(self) -> None:
        """Keep the keys no longer."""
        if self.keys is not None:
            self.keys.unpersist()


def left_since(
    spec: TableSpec,
    changes_of: Callable[[int, int], DataFrame],
    positions: Mapping[str, int],
    until: int,
    zone: str | None = None,
) -> Left:
    """Return which keys have left which of some partitions by changes that those lack, and have not come back.

    Args:
        changes_of: Returns the changes from one position up to another.
        positions: Up to where a partition has every change, by the value of the partition column, as text.
        zone: Of instants that the feed has without one.
    """
    if not positions:
        return Left()
    changes = changes_of(min(positions.values()), until)
    (last,) = changes.where(F.col("op") == EMPTIES).agg(F.max("after_position")).first() or (None,)
    emptied = dict.fromkeys((value for value, at in positions.items() if last is not None and at <= last), ALL_ROWS)
    positions = {value: at for value, at in positions.items() if value not in emptied}
    if not positions:
        return Left(rows=emptied)
    keys = persist(_gone(spec, changes, positions, zone))
    counted = by_partition(spec, keys, F.count_if(_WAS_THERE).alias("count")).collect()
    if counted:
        return Left(keys, {row["value"]: int(row["count"]) for row in counted} | emptied)
    keys.unpersist()
    return Left(rows=emptied)


def _gone(spec: TableSpec, changes: DataFrame, positions: Mapping[str, int], zone: str | None) -> DataFrame:
    """Return the keys that are not in a partition after changes that it lacks, and whether they were there before."""
    names = [spec.partition_column, *spec.key_columns]
    left, came = (
        changes.where(
            F.col("op").isin(*ops) & (F.col("after_position") >= looked_up(positions, value.cast("string")))
        ).select(
            value.alias(spec.partition_column),
            *(typed_text(F.col(row)[name], spec.columns[name].type, zone).alias(name) for name in spec.key_columns),
            F.struct("after_position", "number", F.lit(step).alias("step")).alias("_ba_at"),
        )
        for row, ops, step, value in (
            ("before", LEAVES, -1, F.col("partition_before")),
            ("after", COMES, 1, F.col("partition_after")),
        )
    )
    ends = [F.min("_ba_at").alias("_ba_first"), F.max("_ba_at").alias("_ba_last")]
    each = left.unionByName(came).groupBy(*map(column, names)).agg(*ends)
    return each.where("_ba_last.step < 0").select(*map(column, names), (F.col("_ba_first.step") < 0).alias(_WAS_THERE))


def touched_by(changes: DataFrame) -> set[str]:
    """Return the values of the partition column that changes touch, as text; and `EMPTIED` if they empty the table."""
    values = changes.select(
        F.explode(
            F.array(
                F.col("partition_before").cast("string"),
                F.col("partition_after").cast("string"),
                F.when(F.col("op") == EMPTIES, F.lit(EMPTIED)),
            )
        ).alias("value")
    )
    return {row["value"] for row in values.where(F.col("value").isNotNull()).distinct().collect()}
