"""The two tables beside a table with a live stream: `<table>_late` and `<table>_quarantine`. Both are only appended to.

`<table>_late` holds every event that came from before the fence, with the columns of the table. Its rows are part of
their partition's content from the next launch on (`late: fold`), always all of them, so that folding twice is the same.
`<table>_quarantine` holds what cannot be read as an event of the table, as it landed, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core import sql
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.lake.paths import late_path, quarantine_path
from backfill_assets.lake.rows_now import rows_of_all
from backfill_assets.spark.expressions import column, partition_type
from backfill_assets.table.commit_files import file_options
from backfill_assets.table.log import TableLog
from backfill_assets.table.readers import log_of, open_table

_PROPERTIES = {
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.checkpointInterval": "100",
    "delta.enableDeletionVectors": "false",
    "delta.writePartitionColumnsToParquet": "false",
}
_ARRIVAL = {"_ba_stream": "string", "_ba_batch": "bigint", "_ba_arrived_at": "timestamp"}
"""Which batch of which stream brought a row, and when; `carried` for rows that a seal carried over from the table."""

QUARANTINE_COLUMNS = {"line": "string", "reason": "string", "file": "string", **_ARRIVAL}


@dataclass(frozen=True, slots=True)
class LateTable:
    """`<table>_late`."""

    spark: SparkSession
    spec: TableSpec
    table_path: str

    @property
    def path(self) -> str:
        return late_path(self.table_path)

    @property
    def log(self) -> TableLog:
        return log_of(self.spark, self.path)

    def columns(self) -> list[str] | None:
        """Return the names of the columns that the table has; None if it was not made."""
        now = self.log.snapshot()
        return None if now is None else [field["name"] for field in now.schema["fields"]]

    def create(self) -> None:
        """Make the table if it is not there; give it the columns that it lacks, as one that an older spec made does."""
        own = {name: c.type for name, c in self.spec.columns.items()}
        columns = own | {self.spec.partition_column: partition_type(self.spec)} | _ARRIVAL
        have = _create(self.spark, self.path, columns, self.spec.partition_column)
        if lacking := {name: (kind, "") for name, kind in own.items() if name not in have}:
            self.spark.sql(sql.add_columns(self.path, lacking))

    def append(self, rows: DataFrame, *, stream: str, batch: int, transaction: tuple[str, int] | None = None) -> None:
        """Append rows of the spec's columns and the partition column.

        Args:
            transaction: One that was committed before does nothing.
        """
        names = [*self.spec.columns, self.spec.partition_column]
        arrived = _arrived(rows.select(*(column(name) for name in names)), stream, batch)
        _append(arrived, self.path, transaction)

    def late(self, partitions: Sequence[Partition]) -> Late:
        """Return how many rows there are now, by partition, and at which version."""
        version = self.log.version()
        return NO_LATE if version < 0 else Late(version, self.counts(partitions, version=version))

    def counts(self, partitions: Sequence[Partition] | None = None, *, version: int | None = None) -> dict[str, int]:
        """Count rows by partition key; of all partitions if none are named."""
        counts = rows_of_all(self.spark, self.spec, self.log, version=version)
        found = {self.spec.grid.key_of(value): rows for value, rows in counts.items() if rows}
        wanted = found.keys() if partitions is None else {partition.key for partition in partitions}
        return {key: rows for key, rows in found.items() if key in wanted}

    def rows_of(self, partitions: Sequence[Partition], *, version: int | None = None) -> DataFrame | None:
        """Return the rows of some partitions, without how they arrived; None if there is no such table.

        A column that the table lacks is NULL: an older spec made it, and nothing late came since.
        """
        rows = self._rows(version)
        if rows is None:
            return None
        lacking = {name: c.type for name, c in self.spec.columns.items() if name not in rows.columns}
        rows = rows.where(replace_where(self.spec.partition_column, partitions))
        added = [F.lit(None).cast(kind).alias(name) for name, kind in lacking.items()]
        rows = rows.select("*", *added)  # unlike `withColumns`, a Connect server takes it for no columns too
        return rows.select(*(column(name) for name in [*self.spec.columns, self.spec.partition_column]))

    def _rows(self, version: int | None) -> DataFrame | None:
        return open_table(self.spark, self.path, version)


@dataclass(frozen=True, slots=True)
class QuarantineTable:
    """`<table>_quarantine`."""

    spark: SparkSession
    table_path: str

    @property
    def path(self) -> str:
        return quarantine_path(self.table_path)

    def create(self) -> None:
        """Make the table if it is not there."""
        _create(self.spark, self.path, QUARANTINE_COLUMNS, None)

    def append(self, rows: DataFrame, *, stream: str, batch: int, transaction: tuple[str, int]) -> None:
        """Append rows of `line`, `reason` and `file`; a transaction that was committed before does nothing."""
        _append(_arrived(rows.select("line", "reason", "file"), stream, batch), self.path, transaction)

    def rows(self) -> DataFrame | None:
        """Return all that is in it; None if there is no such table."""
        return open_table(self.spark, self.path)

    def reasons(self) -> dict[str, int]:
        """Return how many rows there are for each reason, the most frequent first: a few for each column."""
        rows = log_of(self.spark, self.path).rows(["reason"]) or []
        counted = Counter(row["reason"].partition(":")[0] for row in rows)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def kind_of_reason() -> Column:
    """Return why a row is in quarantine, without the value, which follows a colon."""
    return F.regexp_replace("reason", r"(?s):.*$", "")


def _create(spark: SparkSession, path: str, columns: Mapping[str, str], partition_column: str | None) -> Sequence[str]:
    """Make a table if it is not there; return the names of the columns that it has."""
    rows = open_table(spark, path)
    if rows is not None:
        return rows.columns
    spark.sql(sql.create_table(path, columns, partitioned_by=partition_column, properties=_PROPERTIES))
    return list(columns)


def _arrived(rows: DataFrame, stream: str, batch: int) -> DataFrame:
    return rows.withColumns(
        {"_ba_stream": F.lit(stream), "_ba_batch": F.lit(batch).cast("bigint"), "_ba_arrived_at": F.current_timestamp()}
    )


def _append(rows: DataFrame, path: str, transaction: tuple[str, int] | None) -> None:
    once = {} if transaction is None else {"txnAppId": transaction[0], "txnVersion": str(transaction[1])}
    rows.coalesce(1).write.format("delta").mode("append").options(**file_options(rows.sparkSession, path), **once).save(
        path
    )
