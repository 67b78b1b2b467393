"""The copy of a table's receipts, one row for each partition and publish, that people can query.

It is never the truth: it is filled from the log's receipts, after each launch and whenever it lacks some, and can be
deleted at any time within the log's retention. Beyond that it is the only place where old receipts live on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.receipts import PartitionReceipt, Receipt
from backfill_assets.core.tallies import instant_of
from backfill_assets.lake.commits import quoted_path, receipts_after
from backfill_assets.lake.locks import table_lock

_COLUMNS = (
    "version bigint, partition string, kind string, rows bigint, checksum string, first_event_time timestamp, "
    "last_event_time timestamp, superseded_rows bigint, fingerprint string, receipt_id string, run_id string, "
    "root_run_id string, staged_from_version bigint, source string, reason string, code_version string, "
    "checksum_encoding int"
)
_SUFFIX = "_receipts"


@dataclass(frozen=True, slots=True)
class ReceiptsTable:
    """The receipts of one table: `<table>_receipts` beside it, and the log for what that lacks."""

    spark: SparkSession
    table: str
    table_path: str

    @property
    def path(self) -> str:
        return self.table_path.rstrip("/") + _SUFFIX

    def all(self) -> dict[int, Receipt]:
        """Return every receipt there is, by version of the table."""
        copied = self._copied()
        return copied | receipts_after(self.spark, self.table_path, max(copied, default=-1))

    def in_log(self, *, newest: int = 1_000) -> dict[int, Receipt]:
        """Return the receipts among the newest commits of the log, by version of the table."""
        return receipts_after(self.spark, self.table_path, -1, newest=newest)

    def fill(self) -> int:
        """Copy what the log has and the copy lacks; return how many receipts that were."""
        with table_lock(self.path, timeout_seconds=60):
            newest = self._newest_copied()
            if newest is None:
                self.spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {quoted_path(self.path)} ({_COLUMNS}) USING DELTA "
                    "TBLPROPERTIES ('delta.minReaderVersion' = '1', 'delta.minWriterVersion' = '2', "
                    "'delta.checkpointInterval' = '100', 'delta.enableDeletionVectors' = 'false')"
                )
                newest = -1
            lacking = receipts_after(self.spark, self.table_path, newest)
            rows = [row for version, receipt in sorted(lacking.items()) for row in _rows_of(version, receipt)]
            if rows:
                frame = self.spark.createDataFrame(rows, _COLUMNS).coalesce(1)
                frame.write.format("delta").mode("append").save(self.path)
            return len(lacking)

    def _newest_copied(self) -> int | None:
        """Return the newest version that was copied; -1 for an empty copy, None if there is no copy."""
        try:
            (row,) = self.spark.read.format("delta").load(self.path).agg(F.max("version").alias("newest")).collect()
        except AnalysisException:
            return None
        return -1 if row["newest"] is None else int(row["newest"])

    def _copied(self) -> dict[int, Receipt]:
        try:
            copied = self.spark.read.format("delta").load(self.path)
            rows = copied.select(
                "*",
                F.unix_micros("first_event_time").alias("first_micros"),
                F.unix_micros("last_event_time").alias("last_micros"),
            ).collect()
        except AnalysisException:
            return {}
        by_version: dict[int, list[Row]] = {}
        for row in rows:
            by_version.setdefault(int(row["version"]), []).append(row)
        return {version: _receipt_of(self.table, group) for version, group in by_version.items()}


def _rows_of(version: int, receipt: Receipt) -> list[tuple[Any, ...]]:
    """Return one row for each partition, in the order of the columns."""
    return [
        (
            version, key, receipt.kind, p.rows, p.checksum, instant_of(p.first_event_micros),
            instant_of(p.last_event_micros), p.superseded_rows, p.fingerprint, receipt.receipt_id, receipt.run_id,
            receipt.root_run_id, receipt.staged_from_version, json.dumps(receipt.source), receipt.reason,
            receipt.code_version, receipt.checksum_encoding,
        )
        for key, p in receipt.partitions.items()
    ]  # fmt: skip


def _receipt_of(table: str, rows: list[Row]) -> Receipt:
    """Join the rows of one commit again."""
    first = rows[0]
    return Receipt(
        receipt_id=first["receipt_id"],
        table=table,
        run_id=first["run_id"],
        root_run_id=first["root_run_id"],
        staged_from_version=first["staged_from_version"],
        source=json.loads(first["source"]),
        partitions={row["partition"]: _partition_of(row) for row in rows},
        reason=first["reason"],
        code_version=first["code_version"],
        kind=first["kind"],
        checksum_encoding=first["checksum_encoding"],
    )


def _partition_of(row: Row) -> PartitionReceipt:
    return PartitionReceipt(
        row["rows"], row["checksum"], row["first_micros"], row["last_micros"], row["fingerprint"], row["superseded_rows"]
    )
