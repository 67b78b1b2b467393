"""The newest change of each partition, kept up to date: only changes that have come since are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from backfill_assets.core.history.changes import EMPTIES, Order
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.live.changes.table import Reach
from backfill_assets.spark.expressions import all_of, looked_up

EMPTIED = "every partition"
"""Stands among the values of the partition column for what empties the whole table."""


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


def waiting_since(changes: DataFrame, positions: Mapping[str, int]) -> dict[str, datetime]:
    """Return when the oldest change was committed that each of some partitions lacks.

    Args:
        changes: All since the smallest of the positions.
        positions: Up to where a partition has every change, by the value of the partition column, as text.
    """
    ends = F.array(F.col("partition_before").cast("string"), F.col("partition_after").cast("string"))
    every = F.array(*map(F.lit, positions))
    touched = changes.select(
        F.explode(F.when(F.col("op") == EMPTIES, every).otherwise(ends)).alias("value"), "at", "after_position"
    )
    lacking = touched.where(F.col("after_position") >= looked_up(positions, F.col("value")))
    oldest = lacking.groupBy("value").agg(F.min(F.unix_micros("at")).alias("at")).collect()
    return {row["value"]: _EPOCH + timedelta(microseconds=row["at"]) for row in oldest if row["at"] is not None}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def left_since(spec: TableSpec, changes: DataFrame, positions: Mapping[str, int]) -> set[str]:
    """Return which of some partitions a key has left by changes that they lack, by the value of the partition column.

    Args:
        changes: All since the smallest of the positions.
        positions: Up to where a partition has every change, by the value of the partition column, as text.
    """
    if changes.where(F.col("op") == EMPTIES).limit(1).count():
        return {*positions}
    before, after, value = F.col("before"), F.col("after"), F.col("partition_before").cast("string")
    same = [F.col("partition_before").eqNullSafe(F.col("partition_after"))]
    same += [before[name].eqNullSafe(after[name]) for name in spec.key_columns]
    leaves = (F.col("op") == "d") | ((F.col("op") == "u") & ~all_of(same))
    gone = changes.where(leaves & (F.col("after_position") >= looked_up(positions, value)))
    return {row["value"] for row in gone.select(value.alias("value")).distinct().collect()}


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
