"""The fold: what partitions hold once changes have happened to what they held, as `core.history.changes.fold` says.

Of each row of a partition, told by its key, the newest transaction counts that did anything to it: what came with it
and did not leave again is there. So folding the same changes twice, or in several steps, gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Finding, unreadable_rows
from backfill_assets.core.history.changes import COMES, EMPTIES, HALF, LEAVES, DatabaseSnapshot
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.lake.row_examples import EXAMPLES, first_of_each, in_text, values_of
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.sources.files.text_values import preview
from backfill_assets.spark.expressions import all_of, any_of, collected, column, looked_up, partition_value

_IDS_COME_ROUND = timedelta(days=1)
"""No database has so many transactions that it takes less; and none waits so long between its end and being seen."""

_IN, _KEY, _STAYS, _EMPTIED, _HAD, _AT = "_ba_in", "_ba_key_", "_ba_stays", "_ba_emptied", "_ba_had", "_ba_at"


def visible_in(snapshot: str, taken_at: datetime) -> Column:
    """Return whether a snapshot has seen what a change's transaction did, as `DatabaseSnapshot.sees` says.

    Of half an id the nearest one counts, as `DatabaseSnapshot.whole_xid` says; so old changes, between which and the
    snapshot ids may have come round, are told by when they were committed.

    Args:
        snapshot: `xmin:xmax:open,open`.
        taken_at: When it was, by the database's clock.
    """
    seen, known = DatabaseSnapshot.parse(snapshot), F.col("xid")
    nearest = F.lit(seen.next_one - HALF // 2) + F.pmod(F.lit(HALF // 2 - seen.next_one) - known, F.lit(HALF))
    xid = F.when(known < 0, nearest).otherwise(known)
    is_old = (known < 0) & (F.col("at") < F.lit(taken_at - _IDS_COME_ROUND))
    ended = xid < F.lit(seen.next_one)
    if seen.still_open:
        ended &= ~xid.isin(sorted(seen.still_open))
    return F.coalesce(is_old, F.lit(False)) | (xid < F.lit(seen.first_open)) | ended


@dataclass(frozen=True, slots=True)
class Fold:
    """Folds changes into the rows of some partitions.

    Args:
        numbers: What `_ba_file_id` is of a row of each partition.
        zone: Of instants that the feed has without one.
        since: Position up to which the rows of each partition have every change; earlier changes are left out.
        accepted: Position up to which changes were in each partition when it was published: such changes need not have
            columns that the spec has got since.
        may_be_older: Whether a change need not have a column either that a later one has.
    """

    spec: TableSpec
    numbers: Mapping[Partition, int]
    zone: str | None
    since: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    accepted: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    may_be_older: bool = False

    def of(self, rows: DataFrame, changes: DataFrame) -> DataFrame:
        """Return what the partitions hold after the changes.

        Args:
            rows: Their rows before: the spec's columns, `_ba_file_id` and `_ba_problem`.
            changes: Of `<table>_changes`: those that have happened since, and no others but such as `since` tells.
        """
        emptied = changes.where(F.col("op") == EMPTIES).agg(F.max(_order()).alias(_EMPTIED))
        newest = self._newest(changes.where(F.col("op") != EMPTIES).crossJoin(F.broadcast(emptied)))
        keys = all_of(column(name) == F.col(f"{_KEY}{n}") for n, name in enumerate(self.spec.key_columns))
        here = partition_value(self.spec, column(self.spec.event_time)).eqNullSafe(F.col(_IN))
        named = newest.select(_IN, *self._key_names)
        untouched = rows.join(named, here & keys, "left_anti").crossJoin(F.broadcast(emptied))
        position = _of(self.since, {number: p for p, number in self.numbers.items()}, F.col("_ba_file_id"))
        is_emptied = F.col(_EMPTIED).isNotNull() & (F.col(f"{_EMPTIED}.after_position") >= position)
        untouched = untouched.where(~is_emptied).select(*(column(name) for name in rows.columns))
        put = newest.where(F.col(_STAYS)).select(*(column(name) for name in rows.columns))
        return untouched.unionByName(put)

    def _newest(self, changes: DataFrame) -> DataFrame:
        """Return what the newest transaction that did anything left of each row, told by partition and key; typed."""
        after = F.col(_EMPTIED).isNull() | (_order() > F.col(_EMPTIED))
        gone, put = (
            changes.where(after & F.col("op").isin(*ops)).select(
                F.col(f"partition_{row}").alias(_IN), *self._keys(row), "after_position", "number",
                F.lit(count).alias("_ba_count"), F.col(row).alias("_ba_row"),
            )
            for row, ops, count in (("before", LEAVES, -1), ("after", COMES, 1))
        )  # fmt: skip
        keys = [F.col(name) for name in self._key_names]
        position = self._in(self.since)
        each = gone.unionByName(put).where(replace_where(_IN, list(self.numbers)))
        each = each.where(F.col("after_position") >= position).repartition(_IN, *keys)  # one shuffle for both windows
        same = Window.partitionBy(_IN, *keys, "after_position", self._content())
        transaction = Window.partitionBy(_IN, *keys, "after_position")
        place = F.struct("number", "_ba_count")
        counted = each.withColumn("_ba_left", F.sum("_ba_count").over(same))
        is_as_before = F.max(F.abs("_ba_left")).over(transaction) == 0
        was_there = is_as_before & (F.col("_ba_count") < 0) & (place == F.min(place).over(transaction))
        counted = counted.withColumn("_ba_left", F.when(was_there, F.lit(1)).otherwise(F.col("_ba_left")))
        newest_first = Window.partitionBy(_IN, *keys).orderBy(F.desc("after_position"), F.desc("_ba_left"))
        newest = (
            counted.where("_ba_left != 0")
            .withColumn("_ba_rank", F.row_number().over(newest_first))
            .where("_ba_rank = 1")
        )
        stays = (F.col("_ba_left") > 0).alias(_STAYS)
        named = (self._typed(name).alias(name) for name in self._names)
        typed = newest.select(_IN, *keys, _order().alias(_AT), stays, "_ba_row", *named)
        if self.may_be_older:
            typed = typed.crossJoin(F.broadcast(self._had(changes)))
        file_id = self.file_id(F.col(_IN)).alias("_ba_file_id")
        typed = typed.select("*", file_id, self._problem().alias("_ba_problem"))
        return typed.drop("_ba_row", _AT, _HAD)

    def _had(self, changes: DataFrame) -> DataFrame:
        """Return up to where some change has each column, in the spec's order: one before that may be older than it."""
        last = (F.max(F.when(F.map_contains_key("after", F.lit(name)), _order())) for name in self._names)
        return changes.agg(F.array(*last).alias(_HAD))

    def _in(self, positions: Mapping[Partition, int]) -> Column:
        """Return the position of the partition that a change is in."""
        return _of(positions, {partition.value: partition for partition in self.numbers}, F.col(_IN))

    def _content(self) -> Column:
        """Return what is in a row, of the spec's columns: two rows with the same are one as good as the other."""
        return F.sha2(F.to_json(F.array(*(F.col("_ba_row")[name] for name in self._names))), 256)

    def file_id(self, value: Column) -> Column:
        """Return the `_ba_file_id` of rows that lie in a partition, by the partition column's value."""
        numbers = {str(partition.value): number for partition, number in self.numbers.items()}
        return looked_up(numbers, value.cast("string")).cast("bigint")

    @property
    def _names(self) -> list[str]:
        return list(self.spec.columns)

    @property
    def _key_names(self) -> list[str]:
        return [f"{_KEY}{number}" for number in range(len(self.spec.key_columns) + 1)]

    def _keys(self, row: str) -> list[Column]:
        """Return a row's key, typed; and what tells rows apart of whose keys the type can hold only NULL: the texts."""
        texts = [F.col(row)[name] for name in self.spec.key_columns]
        typed = [
            typed_text(text, self.spec.columns[name].type, self.zone)
            for text, name in zip(texts, self.spec.key_columns, strict=True)
        ]
        apart = F.when(any_of(key.isNull() for key in typed), F.to_json(F.array(*texts)))
        return [key.alias(name) for key, name in zip([*typed, apart], self._key_names, strict=True)]

    def _typed(self, name: str) -> Column:
        return typed_text(F.col("_ba_row")[name], self.spec.columns[name].type, self.zone)

    def _problem(self) -> Column:
        """Say which value of a row that stays is none of its column's type, or which column it lacks."""
        row = F.col("_ba_row")
        wrong = [
            F.when(
                row[name].isNotNull() & column(name).isNull(),
                F.concat(F.lit(f"`{name}`: "), preview(row[name]), F.lit(f" is no {spec_column.type}")),
            )
            for name, spec_column in self.spec.columns.items()
        ]
        lacking = [
            F.when(
                ~self._may_lack(number) & ~F.map_contains_key(row, F.lit(name)),
                F.lit(f"its change has no column `{name}`, which is not `optional`"),
            )
            for number, (name, spec_column) in enumerate(self.spec.columns.items())
            if not spec_column.optional
        ]
        return F.when(F.col(_STAYS), F.coalesce(*wrong, *lacking))

    def _may_lack(self, number: int) -> Column:
        """Say whether a change may lack a column, told by its place in the spec."""
        is_accepted = F.col(f"{_AT}.after_position") < self._in(self.accepted)
        return (
            is_accepted | F.coalesce(F.col(_AT) < F.col(_HAD)[number], F.lit(False))
            if self.may_be_older
            else is_accepted
        )


def unreadable_in(spec: TableSpec, rows: DataFrame, keys: Mapping[int, str]) -> dict[str, list[Finding]]:
    """Name rows that cannot be what the spec says, a few of each partition.

    Args:
        rows: As a fold gives them.
        keys: Of the partitions, by `_ba_file_id`.
    """
    here = F.col("_ba_file_id")
    wrong = rows.where("_ba_problem IS NOT NULL")
    counted = wrong.withColumn("_ba_rows", F.count(F.lit(1)).over(Window.partitionBy(here)))
    examples: dict[tuple[str, int], list[str]] = {}
    for row in collected(in_text(spec, first_of_each(counted, here, EXAMPLES))):
        named = f"{values_of(row, spec.key_columns)}: {row['_ba_problem']}"
        examples.setdefault((keys[row["_ba_file_id"]], row["_ba_rows"]), []).append(named)
    return {key: [unreadable_rows(count, named)] for (key, count), named in examples.items()}


def _of(positions: Mapping[Partition, int], by: Mapping[Any, Partition], value: Column) -> Column:
    """Return the position of the partition that a value stands for; 0 where it has none."""
    if not positions:
        return F.lit(0)
    found = {str(key): positions.get(partition, 0) for key, partition in by.items()}
    return looked_up(found, value.cast("string")).cast("bigint")


def _order() -> Column:
    """Return what changes are ordered by: when their transaction ended, and their number in it."""
    return F.struct("after_position", "number")
