"""The fold: what partitions hold once changes have happened to what they held.

Of each row of a partition, told by its key, the newest change counts: an insert or an update that leaves it there puts
its row, a delete, or an update that makes it another key's or another partition's, takes it away. So folding the same
changes twice, or in several steps, gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.spark.expressions import all_of, column, partition_value

_IN, _KEY, _ORDER, _STAYS, _EMPTIED = "_ba_in", "_ba_key_", "_ba_order", "_ba_stays", "_ba_emptied"


def visible_in(snapshot: str) -> Column:
    """Return whether a snapshot has seen what a change's transaction did, as `core.live.feed.is_visible` does.

    Args:
        snapshot: `xmin:xmax:open,open`.
    """
    first_open, next_one, still_open = snapshot.split(":")
    xid, pending = F.col("xid"), [int(each) for each in still_open.split(",") if each]
    ended = (xid < F.lit(int(next_one))) & ~xid.isin(pending) if pending else xid < F.lit(int(next_one))
    return (xid < F.lit(int(first_open))) | ended


@dataclass(frozen=True, slots=True)
class Fold:
    """Folds changes into the rows of some partitions.

    Args:
        numbers: What `_ba_file_id` is of a row of each partition.
        zone: Of instants that the feed has without one.
        since: Position up to which the rows of each partition have every change; earlier changes are left out.
    """

    spec: TableSpec
    numbers: Mapping[Partition, int]
    zone: str | None
    since: Mapping[Partition, int] = field(default_factory=dict[Partition, int])

    def of(self, rows: DataFrame, changes: DataFrame) -> DataFrame:
        """Return what the partitions hold after the changes.

        Args:
            rows: Their rows before: the spec's columns, `_ba_file_id` and `_ba_problem`.
            changes: Of `<table>_changes`: those that have happened since, and no others but such as `since` tells.
        """
        emptied = changes.where(F.col("op") == "t").agg(F.max(_order()).alias(_EMPTIED))
        newest = self._newest(changes.where(F.col("op") != "t").crossJoin(F.broadcast(emptied)))
        keys = all_of(column(name).eqNullSafe(F.col(f"{_KEY}{n}")) for n, name in enumerate(self.spec.key_columns))
        here = partition_value(self.spec, column(self.spec.event_time)).eqNullSafe(F.col(_IN))
        named = newest.select(_IN, *(F.col(f"{_KEY}{number}") for number in range(len(self.spec.key_columns))))
        untouched = rows.join(named, here & keys, "left_anti").crossJoin(F.broadcast(emptied))
        position = self._since({number: p for p, number in self.numbers.items()}, F.col("_ba_file_id"))
        is_emptied = F.col(_EMPTIED).isNotNull() & (F.col(f"{_EMPTIED}.after_position") >= position)
        untouched = untouched.where(~is_emptied).select(*(column(name) for name in rows.columns))
        put = newest.where(F.col(_STAYS)).select(*(column(name) for name in rows.columns))
        return untouched.unionByName(put)

    def _since(self, by: Mapping[Any, Partition], value: Column) -> Column:
        """Return the position after which changes have happened to the partition that a value stands for."""
        if not self.since:
            return F.lit(0)
        each = [part for key, p in by.items() for part in (F.lit(str(key)), F.lit(self.since.get(p, 0)))]
        return F.element_at(F.create_map(*each), value.cast("string")).cast("bigint")

    def _newest(self, changes: DataFrame) -> DataFrame:
        """Return for each row that changes touch, told by partition and key, the newest one; with its typed row."""
        after = F.col(_EMPTIED).isNull() | (_order() > F.col(_EMPTIED))
        gone = changes.where(after & F.col("op").isin("u", "d")).select(
            F.col("partition_before").alias(_IN), *self._keys("before"), _order().alias(_ORDER),
            F.lit(0).alias("_ba_last"), F.lit(False).alias(_STAYS), F.col("before").alias("_ba_row"),
        )  # fmt: skip
        put = changes.where(after & F.col("op").isin("c", "u")).select(
            F.col("partition_after").alias(_IN), *self._keys("after"), _order().alias(_ORDER),
            F.lit(1).alias("_ba_last"), F.lit(True).alias(_STAYS), F.col("after").alias("_ba_row"),
        )  # fmt: skip
        keys = [F.col(f"{_KEY}{number}") for number in range(len(self.spec.key_columns))]
        position = self._since({p.value: p for p in self.numbers}, F.col(_IN))
        each = gone.unionByName(put).where(replace_where(_IN, list(self.numbers)))
        each = _without_others_farewells(each.where(F.col(f"{_ORDER}.after_position") >= position), [_IN, *keys])
        newest_first = Window.partitionBy(_IN, *keys).orderBy(F.desc(_ORDER), F.desc("_ba_last"))
        newest = each.withColumn("_ba_rank", F.row_number().over(newest_first)).where("_ba_rank = 1")
        typed = newest.select(_IN, *keys, _STAYS, "_ba_row", *(self._typed(name).alias(name) for name in self._names))
        file_id = self.file_id(F.col(_IN)).alias("_ba_file_id")
        return typed.select("*", file_id, self._problem().alias("_ba_problem")).drop("_ba_row")

    def file_id(self, value: Column) -> Column:
        """Return the `_ba_file_id` of rows that lie in a partition, by the partition column's value."""
        each = F.create_map(*(part for p, n in self.numbers.items() for part in (F.lit(str(p.value)), F.lit(n))))
        return F.element_at(each, value.cast("string")).cast("bigint")

    @property
    def _names(self) -> list[str]:
        return list(self.spec.columns)

    def _keys(self, row: str) -> list[Column]:
        return [
            typed_text(F.col(row)[name], self.spec.columns[name].type, self.zone).alias(f"{_KEY}{number}")
            for number, name in enumerate(self.spec.key_columns)
        ]

    def _typed(self, name: str) -> Column:
        return typed_text(F.col("_ba_row")[name], self.spec.columns[name].type, self.zone)

    def _problem(self) -> Column:
        """Say which value of a row that stays is none of its column's type, or which column it lacks."""
        row = F.col("_ba_row")
        wrong = [
            F.when(
                row[name].isNotNull() & column(name).isNull(),
                F.concat(F.lit(f"`{name}`: "), F.substring(row[name], 1, 60), F.lit(f" is no {spec_column.type}")),
            )
            for name, spec_column in self.spec.columns.items()
        ]
        lacking = [
            F.when(~F.map_contains_key(row, F.lit(name)), F.lit(f"its change has no column `{name}`"))
            for name, spec_column in self.spec.columns.items()
            if not spec_column.optional
        ]
        return F.when(F.col(_STAYS), F.coalesce(*wrong, *lacking))


def _without_others_farewells(effects: DataFrame, row: Sequence[Any]) -> DataFrame:
    """Leave out where a row went away that is not the one that has just come under its key, in the same transaction.

    A transaction may swap two keys, or count all of them up: for a moment a key then has two rows.
    """
    text = F.to_json("_ba_row")
    before = Window.partitionBy(*row).orderBy(_ORDER, "_ba_last").rowsBetween(Window.unboundedPreceding, -1)
    came = F.last(
        F.when(F.col(_STAYS), F.struct(F.col(f"{_ORDER}.after_position").alias("at"), text.alias("row"))), True
    )
    known = effects.withColumn("_ba_came", came.over(before))
    is_another = (F.col("_ba_came.at") == F.col(f"{_ORDER}.after_position")) & (F.col("_ba_came.row") != text)
    return known.where(F.col(_STAYS) | ~F.coalesce(is_another, F.lit(False))).drop("_ba_came")


def _order() -> Column:
    """Return what changes are ordered by: when their transaction ended, and their number in it."""
    return F.struct("after_position", "number")
