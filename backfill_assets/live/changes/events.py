"""Events in a feed's files, read as changes of one table: those of a capture of ours, and Debezium's.

What differs is settled here, so that whoever reads `<table>_changes` finds one dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from backfill_assets.core.history.changes import COMES, EMPTIES, HALF, LEAVES
from backfill_assets.core.live.feed import CONNECTOR, UNAVAILABLE
from backfill_assets.core.postgres_names import as_typed
from backfill_assets.core.schema.postgres import DatabaseColumn
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.words import shortened
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.spark.expressions import any_of, collected, looked_up, partition_value
from backfill_assets.spark.storage import literal_path

_UNKNOWN: Final = "0 unknown operation"
_NO_EVENT: Final = "1 no event"
_ELSEWHERE: Final = "2 elsewhere"
_UNSENT: Final = "3 unsent"
_NO_BEFORE: Final = "4 no before"
_NO_TIME: Final = "5 no time"
_OF_PART: Final = "6 of a part"
_NOT_AFTER: Final = "7 not after the event before it"
_HOLE: Final = "8 hole"
"""What may be wrong with a line; of several lines the first of these is told."""

_LINE_SHOWN: Final = 300
"""Characters of a line that a message shows."""

_READ: Final = "r"
"""The operation of a row that Debezium has read: it is there, as one that was inserted is."""

_OPERATIONS: Final = (*COMES, *LEAVES, EMPTIES, _READ)

_EVENT = (
    "op string, before map<string,string>, after map<string,string>, source struct<connector string, schema string, "
    "table string, txId bigint, sequence string, ts_us bigint, ts_ms bigint>, "
    "transaction struct<total_order bigint, data_collection_order bigint>"
)


_OF_ANY_LENGTH: Final = {"maxStringLen": str(2**31 - 1)}
"""A `bytea` of 10 MB is more letters than a text in JSON may have by default, and then its line would be no event."""

_NO_NUMBERS: Final = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
"""What Debezium calls a `numeric` that is no number, and what PostgreSQL does."""


@dataclass(frozen=True, slots=True)
class Events:
    """Reads events.

    Args:
        catalog: The database's columns, which tell what others than a capture of ours have written otherwise: a zone
            behind days and times that have none, names of their own for numbers that are none.
        parts: Schema and name of the tables that the table consists of; of what others have written.
    """

    spark: SparkSession
    spec: TableSpec
    source: DatabaseSpec
    catalog: Sequence[DatabaseColumn]
    parts: Sequence[tuple[str, str]] = ()

    def of(self, files: Sequence[Path]) -> DataFrame:
        """Describe the one parse of some files: each line's change, `wrong` and `line` if it is none, and `is_ours`.

        `file` and `place` say where a line is, and `number_in_table` which of the table's events in its transaction.
        Other tables' events are left out by the reader: a filter here would parse each line twice.
        """
        begin, end = (F.conv(F.substring("file", at, 16), 16, 10).cast("bigint") for at in (1, 18))
        event = F.from_json("value", _EVENT, _OF_ANY_LENGTH)
        events = (
            self._lines(files)
            .where(F.trim("value") != "")
            .select(
                F.col("value").alias("line"), event.alias("e"), begin.alias("begin"), end.alias("end"), "file", "place"
            )
        )
        sequence = F.from_json("e.source.sequence", "array<string>")
        is_first = F.get(sequence, F.lit(0)).isNull() & F.get(sequence, F.lit(1)).isNotNull()  # of a new slot
        position = F.when(is_first, F.col("begin")).otherwise(F.get(sequence, F.lit(0)).try_cast("bigint"))
        schema, name = self.source.schema_and_name
        is_ours = (F.col("e.source.schema") == F.lit(schema)) & (F.col("e.source.table") == F.lit(name))
        is_captured = F.coalesce(F.col("e.source.connector") == F.lit(CONNECTOR), F.lit(False))
        before, after = (self._as_captured(F.col(f"e.{row}"), is_captured) for row in ("before", "after"))
        xid = F.col("e.source.txId")
        micros = F.coalesce(F.col("e.source.ts_us"), F.col("e.source.ts_ms") * 1000)
        wrong = self._wrong(position, is_ours, is_captured)
        return events.select(
            position.alias("after_position"),
            F.col("e.transaction.total_order").alias("number"),
            F.when(is_captured | (xid >= HALF), xid).otherwise(-xid).alias("xid"),
            F.timestamp_micros(micros).alias("at"),
            F.when(F.col("e.op") == _READ, F.lit("c")).otherwise(F.col("e.op")).alias("op"),
            F.when(is_ours, before).alias("before"),
            F.when(is_ours, after).alias("after"),
            self._partition(before).alias("partition_before"),
            self._partition(after).alias("partition_after"),
            wrong.alias("wrong"),
            F.when(wrong.isNotNull(), F.substring("line", 1, _LINE_SHOWN + 1)).alias("line"),
            is_ours.alias("is_ours"),
            F.col("e.transaction.data_collection_order").alias("number_in_table"),
            "file",
            "place",
        )

    def without_wrong(self, lines: DataFrame, files: Sequence[Path]) -> DataFrame:
        """Return the table's changes in lines, if all of them are right.

        A file has whole transactions. So the table's events in a transaction are 1, 2, 3 and so on of the table, by
        `data_collection_order`. By `total_order` each event only comes after the one before it: the file may have any
        other tables' events, or none. A table that joins a capture in the midst of a transaction has 1 first, too:
        whoever writes the events counts those that are sent.

        Raises:
            ChangeFeedError: A line is no event, or what it says of a row cannot be used; or events are missing.
        """
        transaction = Window.partitionBy("file", "after_position").orderBy("place")
        of_table = Window.partitionBy("file", "after_position", "is_ours").orderBy("place")
        numbered = lines.select(
            "wrong", "line", "is_ours", "file", "place", "number", "number_in_table",
            F.coalesce(F.lag("number").over(transaction), F.lit(0)).alias("number_before"),
            F.row_number().over(of_table).alias("expected"),
        )  # fmt: skip
        not_after = F.when(F.col("number") <= F.col("number_before"), F.lit(_NOT_AFTER))
        hole = F.when(F.col("is_ours") & (F.col("number_in_table") != F.col("expected")), F.lit(_HOLE))
        found = numbered.withColumn("wrong", F.coalesce("wrong", not_after, hole)).where("wrong IS NOT NULL")
        if first := collected(found.orderBy("wrong", "file", "place").limit(1)):
            raise self._refused(first[0], f"line {self._line_number(files, first[0])} of `{first[0]['file']}`")
        return lines.where("is_ours").drop("wrong", "line", "is_ours", "number_in_table", "file", "place")

    # -- how -----------------------------------------------------------------------------------------------------------

    def _lines(self, files: Sequence[Path]) -> DataFrame:
        """Describe the lines of some files, each with its file's name and its place in it."""
        place = F.struct(
            F.col("_metadata.file_block_start").alias("block"), F.monotonically_increasing_id().alias("id")
        )
        lines = self.spark.read.text([literal_path(str(path)) for path in files])
        return lines.select("value", F.col("_metadata.file_name").alias("file"), place.alias("place"))

    def _line_number(self, files: Sequence[Path], found: Row) -> int:
        """Return the number of a line in its file, from 1; without a filter, so that places are what they were."""
        place = F.struct(F.lit(found["place"]["block"]).alias("block"), F.lit(found["place"]["id"]).alias("id"))
        is_up_to_it = (F.col("file") == found["file"]) & (F.col("place") <= place)
        return self._lines(files).agg(F.count_if(is_up_to_it)).head(1)[0][0]

    def _as_captured(self, row: Column, is_captured: Column) -> Column:
        """Return a row with the texts that a capture of ours would have."""
        without_zone = [column.name for column in self.catalog if column.has_no_zone]
        numbers = [column.name for column in self.catalog if column.is_number_of_any_size]
        if not without_zone and not numbers:
            return row

        def text(name: Column, value: Column) -> Column:
            without = F.regexp_replace(value, r"^([0-9:. T+-]+)Z$", "$1")
            number = F.coalesce(looked_up(_NO_NUMBERS, value), value)
            return F.when(name.isin(*without_zone), without).when(name.isin(*numbers), number).otherwise(value)

        return F.when(is_captured, row).otherwise(F.transform_values(row, text))

    def _wrong(self, position: Column, is_ours: Column, is_captured: Column) -> Column:
        """Say what is wrong with a line; NULL if nothing is."""
        order = [F.col(f"e.transaction.{name}") for name in ("total_order", "data_collection_order")]
        whole = [F.col("e.op"), position, *(F.col(f"e.source.{name}") for name in ("txId", "schema", "table")), *order]
        is_elsewhere = (position < F.col("begin")) | (position >= F.col("end"))
        is_unsent = any_of(
            F.coalesce(F.exists(F.map_values(F.col(f"e.{row}")), lambda value: value.isin(*UNAVAILABLE)), F.lit(False))
            for row in ("before", "after")
        )
        is_of_part = F.concat_ws("\0", "e.source.schema", "e.source.table").isin(*map("\0".join, self.parts))
        is_nothing = F.col("e.op").isin(*COMES, _READ) & F.col("e.after").isNull()
        without_time = any_of(self._has_no_time(F.col(f"e.{row}"), is_captured) for row in ("before", "after"))
        return (
            F.when(~F.col("e.op").isin(*_OPERATIONS), F.lit(_UNKNOWN))
            .when(any_of(part.isNull() for part in whole) | (is_ours & is_nothing), F.lit(_NO_EVENT))
            .when(is_elsewhere, F.lit(_ELSEWHERE))
            .when(is_ours & ~is_captured & is_unsent, F.lit(_UNSENT))
            .when(is_ours & F.col("e.op").isin(*LEAVES) & F.col("e.before").isNull(), F.lit(_NO_BEFORE))
            .when(is_ours & without_time, F.lit(_NO_TIME))
            .when(is_of_part, F.lit(_OF_PART))
        )

    def _has_no_time(self, row: Column, is_captured: Column) -> Column:
        """Say whether a row has an event time that cannot be read.

        Those of no day at all, and before the year 1 or after the year 9999, lie in no partition.
        """
        name, kind = self.spec.event_time, self.spec.columns[self.spec.event_time].type
        text = self._as_captured(row, is_captured)[name]
        is_nowhere = text.isNull() | text.rlike(r"^-?infinity$| BC$|^\d{5,}|^[+-]\d{4,}-|^0000-")
        is_read = typed_text(text, kind, self.source.timestamps_without_zone).isNotNull()
        return row.isNotNull() & (~F.map_contains_key(row, F.lit(name)) | ~(is_nowhere | is_read))

    def _partition(self, row: Column) -> Column:
        """Return the partition column's value of a row; NULL if there is no row, or no time in it."""
        spec = self.spec
        when = typed_text(row[spec.event_time], spec.columns[spec.event_time].type, self.source.timestamps_without_zone)
        return partition_value(spec, when)

    def _refused(self, found: Row, where: str) -> ChangeFeedError:
        """Say what is wrong with a line, and what is to be done."""
        table, event_time = as_typed(*self.source.schema_and_name), self.spec.event_time
        anew = "take the file away, continue behind it with `backfill-assets live KEY --new-stream`, and launch all "
        lost = f"Land the file again, with all that it is to have. If that is gone, {anew}partitions again."
        full = (
            f"`ALTER TABLE {table} REPLICA IDENTITY FULL;` holds for changes from then on. Then {anew}partitions again."
        )
        what, remedy = {
            _UNKNOWN: (
                "its `op` is none of `c`, `u`, `d`, `t` and `r`",
                "Land the file again without that line, if it is no change of a row. If it is one, and nobody knows of "
                f"which kind, {anew}partitions again.",
            ),
            _NO_EVENT: (
                "it is no event",
                "Events are lines of JSON as Debezium writes them, without their schema, and with "
                f"`provide.transaction.metadata=true`. {lost}",
            ),
            _ELSEWHERE: (
                "its event is not of the part of the log that its file's name says",
                "Whoever lands a file names it after two positions, the first ones in `source.sequence`: its first "
                "event's, and that of the first event behind it.",
            ),
            _UNSENT: (
                "its change comes without a large value that did not change, and has Debezium's placeholder in its "
                "place",
                full,
            ),
            _NO_BEFORE: (
                "its change comes without what its row was before, so nobody knows which partition that leaves",
                full,
            ),
            _NO_TIME: (
                f"its change has no `{event_time}` that can be read, so nobody knows which partition it touches",
                f"If the column was renamed, change the spec. If the value is wrong, correct the database, {anew}"
                "partitions again.",
            ),
            _OF_PART: (
                f"`{self.source.table}` is in parts, and its change came under the name of one",
                "For a partitioned table set `publish.via.partition.root=true`; a table from which others inherit is "
                f"launched without `changes`. Then {anew}partitions again.",
            ),
            _NOT_AFTER: (
                f"its `total_order` is {found['number']}, which does not come after the {found['number_before']} of "
                "the event before it in the same transaction",
                lost,
            ),
            _HOLE: (
                f"its `data_collection_order` is {found['number_in_table']}, and it is event {found['expected']} of "
                f"`{table}` in its transaction: events are missing, or are out of order",
                lost,
            ),
        }[found["wrong"]]
        said = f": {shortened(found['line'], _LINE_SHOWN)}" if found["line"] else ""
        return ChangeFeedError(
            f"`{self.spec.key}`: {where} cannot be used: {what}{said}.",
            state="Nothing of its file, and of what follows, was read; what was folded in before stays.",
            remedy=remedy,
        )
