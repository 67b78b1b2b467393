"""The one way in which history is written."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import replace_where
from backfill_assets.core.state.receipts import Receipt
from backfill_assets.core.state.tallies import checksum_of
from backfill_assets.errors import NOTHING_WRITTEN, UnsafeWriteError
from backfill_assets.spark.expressions import checksum_lanes, column, row_hash
from backfill_assets.table.commit_files import file_options

REQUIRED_SETTINGS = {
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": (
        "true",
        "rows outside the predicate must be refused",
    ),
    "spark.databricks.delta.schema.autoMerge.enabled": ("false", "a write must not change the schema"),
    "spark.databricks.delta.stats.collect": ("true", "row counts are read from the commit's own statistics"),
    "spark.databricks.delta.skipRecordingEmptyCommits": ("false", "a partition without rows must be recorded too"),
    "spark.sql.sources.partitionOverwriteMode": ("static", "a stray row must not replace another partition"),
    "spark.sql.session.timeZone": ("UTC", "days are cut in UTC"),
    "spark.sql.ansi.enabled": ("true", "a value that does not fit must raise, not turn into NULL"),
    "spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MICROS", "instants have microseconds"),
    "spark.databricks.delta.commitValidation.enabled": ("true", "Delta must check what it commits"),
    "spark.databricks.delta.duplicateActionCheck.enabled": ("true", "Delta must check what it commits"),
    "spark.sql.files.ignoreCorruptFiles": ("false", "what cannot be read must raise, not count for nothing"),
    "spark.sql.files.ignoreMissingFiles": ("false", "a file that is gone must raise, not count for nothing"),
}
"""Settings of the session under which an overwrite is exactly what it says; looked at before each write."""

REFUSED_SETTINGS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
"""Settings under which Delta skips a write that it takes for a repetition, without a word."""


def overwrite(
    spark: SparkSession,
    spec: TableSpec,
    path: str,
    rows: DataFrame,
    partitions: Sequence[Partition],
    *,
    receipt: Receipt,
) -> tuple[int, int]:
    """Replace every row of some partitions with `rows`, in one Delta commit that carries the receipt.

    A second call with the same rows leaves the same content. No rows leave the partitions empty. Nothing outside the
    partitions is touched: their files are the same afterwards.

    Args:
        path: An existing Delta table that is partitioned by the spec's partition column.
        rows: The spec's columns and the partition column, in any order; every row lies in one of the partitions.
        partitions: At least one, whole.
        receipt: Stored in the commit.

    Returns:
        Rows and checksum, as they passed through the write.

    Raises:
        UnsafeWriteError: The session's settings could make the write do more than it says. The table is unchanged.
        pyspark.errors.PySparkException: The write failed; whether it was committed is to be looked up by the receipt's
            id.

    Source: Delta Lake documentation, "Selective overwrite": `replaceWhere` with literals on partition columns.
    """
    predicate = replace_where(spec.partition_column, partitions)
    refuse_unsafe_session(spark, spec.key)
    passing = Observation()
    high, low = checksum_lanes(F.col("_ba_hash"))
    (
        rows.select(
            *(column(name) for name in [*spec.columns, spec.partition_column]), row_hash(spec).alias("_ba_hash")
        )
        .observe(passing, F.count(F.lit(1)).alias("rows"), high.alias("high"), low.alias("low"))
        .drop("_ba_hash")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", predicate)
        .option("userMetadata", receipt.to_json())
        .options(**file_options(spark, path))
        .save(path)
    )
    seen = passing.get
    return int(seen["rows"]), checksum_of(int(seen["high"] or 0), int(seen["low"] or 0))


def refuse_unsafe_session(spark: SparkSession, table: str) -> None:
    """Raise if a setting of the session could turn an overwrite loose."""
    wrong = [
        f"`{name}` is `{found}`, not `{right}` ({why})"
        for name, (right, why) in REQUIRED_SETTINGS.items()
        if (found := _setting(spark, name, right)).casefold() != right.casefold()
    ]
    wrong += [
        f"`{name}` is set (Delta would skip the write as a repetition)"
        for name in REFUSED_SETTINGS
        if spark.conf.get(name, None)
    ]
    if wrong:
        raise UnsafeWriteError(
            f"`{table}`: the Spark session is not safe to write with: {'; '.join(wrong)}.",
            state=NOTHING_WRITTEN,
            remedy="Use a session made by this project, or set these back.",
            settings=wrong,
        )


def _setting(spark: SparkSession, name: str, unknown: str) -> str:
    """Return a setting as it is in force, which is Spark's own default where nobody set it."""
    try:
        return str(spark.conf.get(name))
    except PySparkException:  # Delta has not said its defaults yet; they are the right ones
        return unknown
