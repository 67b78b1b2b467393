"""Events in a feed's files, read as changes of one table: those of a capture of ours, and Debezium's.

What differs is settled here, so that whoever reads `<table>_changes` finds one dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.changes import HALF
from backfill_assets.core.live.feed import CONNECTOR, UNAVAILABLE
from backfill_assets.core.postgres_names import as_typed
from backfill_assets.core.schema.postgres import DatabaseColumn
from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import ChangeFeedError
from backfill_assets.live.changes.texts import typed_text
from backfill_assets.sources.files.listing import literal_path
from backfill_assets.spark.expressions import any_of, collected, looked_up, partition_value

_NO_EVENT: Final = "1 no event"
_ELSEWHERE: Final = "2 elsewhere"
_UNSENT: Final = "3 unsent"
_NO_BEFORE: Final = "4 no before"
_NO_TIME: Final = "5 no time"
_OF_PART: Final = "6 of a part"
"""What may be wrong with a line; of several lines the first of these is told."""

_EVENT = (
    "op string, before map<string,string>, after map<string,string>, source struct<connector string, schema string, "
    "table string, txId bigint, sequence string, ts_us bigint, ts_ms bigint>, transaction struct<total_order bigint>"
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

        Other tables' events are left out by the reader: a filter here would parse each line twice.
        """
        lines = self.spark.read.text([literal_path(str(path)) for path in files])
        begin, end = (
            F.conv(F.substring("_metadata.file_name", at, 16), 16, 10).cast("bigint") for at in (1, 18)
        )  # of the file's name
        event = F.from_json("value", _EVENT, _OF_ANY_LENGTH)
        events = lines.where(F.trim("value") != "").select(
            F.col("value").alias("line"), event.alias("e"), begin.alias("begin"), end.alias("end")
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
            F.col("e.op").alias("op"),
            F.when(is_ours, before).alias("before"),
            F.when(is_ours, after).alias("after"),
            self._partition(before).alias("partition_before"),
            self._partition(after).alias("partition_after"),
            wrong.alias("wrong"),
            F.when(wrong.isNotNull(), F.substring("line", 1, 300)).alias("line"),
            is_ours.alias("is_ours"),
        )

    def without_wrong(self, lines: DataFrame, files: Sequence[Path]) -> DataFrame:
        """Return the table's changes in lines, if all of them are right.

        Raises:
            ChangeFeedError: A line is no event, or what it says of a row cannot be used.
        """
        found = collected(lines.where(F.col("wrong").isNotNull()).orderBy("wrong").select("wrong", "line").limit(1))
        if not found:
            return lines.where("is_ours").drop("wrong", "line", "is_ours")
        raise self._refused(found[0]["wrong"], found[0]["line"], files[0].name)

    # -- how -----------------------------------------------------------------------------------------------------------

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
        whole = [F.col("e.op"), position, F.col("e.source.txId"), F.col("e.transaction.total_order")]
        is_elsewhere = (position < F.col("begin")) | (position >= F.col("end"))
        is_unsent = any_of(
            F.coalesce(F.exists(F.map_values(F.col(f"e.{row}")), lambda value: value.isin(*UNAVAILABLE)), F.lit(False))
            for row in ("before", "after")
        )
        is_of_part = F.concat_ws("\0", "e.source.schema", "e.source.table").isin(*map("\0".join, self.parts))
        is_nothing = F.col("e.op").isin("c", "u") & F.col("e.after").isNull()
        without_time = any_of(self._has_no_time(F.col(f"e.{row}"), is_captured) for row in ("before", "after"))
        return (
            F.when(any_of(part.isNull() for part in whole) | (is_ours & is_nothing), F.lit(_NO_EVENT))
            .when(is_elsewhere, F.lit(_ELSEWHERE))
            .when(is_ours & ~is_captured & is_unsent, F.lit(_UNSENT))
            .when(is_ours & F.col("e.op").isin("u", "d") & F.col("e.before").isNull(), F.lit(_NO_BEFORE))
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

    def _refused(self, wrong: str, line: str, file: str) -> ChangeFeedError:
        """Say what is wrong with a line, and what is to be done."""
        about, state = f"`{self.spec.key}`", "Nothing of its file, and of what follows, was read."
        anew = "take the file away, continue behind it with `backfill-assets live KEY --new-stream`, and launch all "
        if wrong == _NO_EVENT:
            return ChangeFeedError(
                f"{about}: a line of `{file}`, or of a file after it, is no event: {line[:200]}",
                state="Nothing of these files was read.",
                remedy="Events are lines of JSON as Debezium writes them, without their schema.",
            )
        if wrong == _ELSEWHERE:
            return ChangeFeedError(
                f"{about}: an event in `{file}`, or in a file after it, is not of the part of the log that its file's "
                f"name says: {line[:200]}",
                state="Nothing of these files was read.",
                remedy="Whoever lands them names a file after two positions, the first ones in `source.sequence`: its "
                "first event's, and that of the first event behind it.",
            )
        if wrong in {_UNSENT, _NO_BEFORE}:
            table = as_typed(*self.source.schema_and_name)
            what = (
                "a large value that did not change, and has Debezium's placeholder in its place"
                if wrong == _UNSENT
                else "what its row was before, so nobody knows which partition that leaves"
            )
            return ChangeFeedError(
                f"{about}: a change comes without {what}: {line}",
                state=state,
                remedy=f"`ALTER TABLE {table} REPLICA IDENTITY FULL;` holds for changes from then on. Then "
                f"{anew}partitions again.",
            )
        if wrong == _OF_PART:
            return ChangeFeedError(
                f"{about}: `{self.source.table}` is in parts, and a change came under the name of one: {line}",
                state=state,
                remedy="For a partitioned table set `publish.via.partition.root=true`; a table from which others "
                f"inherit is launched without `changes`. Then {anew}partitions again.",
            )
        return ChangeFeedError(
            f"{about}: a change has no `{self.spec.event_time}` that can be read, so nobody knows which partition it "
            f"touches: {line}",
            state=state,
            remedy=f"If the column was renamed, change the spec. If the value is wrong, correct the database, {anew}"
            "partitions again.",
        )
