"""The one way in which history is written: what it promises, what it refuses, and that there is no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.errors import UnsafeWriteError
from backfill_assets.lake.overwrite import REFUSED_SETTINGS, REQUIRED_SETTINGS, overwrite
from backfill_assets.lake.table import LakeTable
from tests.support.shop import (
    content,
    files_by_partition,
    frame_of,
    multiset,
    opened,
    orders,
    orders_spec,
    receipt_for,
)

SPEC = orders_spec()
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
ROWS = {day: orders(day) for day in DAYS}


def partitions(*keys: str) -> list[Partition]:
    return [SPEC.grid.partition(key) for key in keys]


def rows_of(*keys: str) -> list[dict[str, Any]]:
    return [row for key in keys for row in ROWS[key]]


@pytest.fixture
def write(spark: SparkSession, table: LakeTable) -> Callable[..., tuple[int, int]]:
    """Overwrite partitions by their keys."""

    def call(rows: list[dict[str, Any]], *keys: str, receipt_id: str = "r1") -> tuple[int, int]:
        named = partitions(*keys)
        return overwrite(
            spark, SPEC, table.path, frame_of(spark, SPEC, rows), named, receipt=receipt_for(table, named, receipt_id)
        )

    return call


def test_twice_the_same_leaves_the_same_content(table, write):
    """A second call with the same rows leaves the same content, not twice as much."""
    first = write(rows_of(*DAYS), DAYS[0], DAYS[1], DAYS[2])
    second = write(rows_of(*DAYS), DAYS[0], DAYS[1], DAYS[2])

    assert first == second
    assert content(table.path) == multiset(rows_of(*DAYS))


@pytest.mark.prove
def test_rows_outside_of_all_partitions_are_not_replaced(spark, tmp_path):
    """Rows of somebody else in a value between two months, and in a month to come, stay and are told of."""
    spec = orders_spec(grain="monthly", start="2024-01-01")
    months = [spec.grid.partition(key) for key in ("2024-01-01", "2024-02-01")]
    table = LakeTable(spark, spec, f"{tmp_path}/monthly")
    table.create()
    odd = orders("2024-01-15", 2)
    for value in ("2024-01-15", "2934-01-01"):
        theirs = frame_of(spark, spec, odd).withColumn("dt", F.lit(value).cast("date"))
        theirs.write.format("delta").mode("append").save(table.path)
    rows = [*orders("2024-01-03"), *orders("2024-02-03")]
    overwrite(spark, spec, table.path, frame_of(spark, spec, rows), months, receipt=receipt_for(table, months, "r1"))
    assert content(table.path) == multiset([*rows, *odd, *odd])
    assert table.rows_outside_grid() == {"2024-01-15": 2, "2934-01-01": 2}
    assert table.rows_outside_grid(by_log=True) == {"2024-01-15": 2, "2934-01-01": 2}


@pytest.mark.prove
def test_own_rows_before_a_later_start_are_outside(spark, tmp_path):
    """The log alone says that no row was outside before the start was moved."""
    path, rows = f"{tmp_path}/table", orders("2024-01-03", 1)
    table = LakeTable(spark, orders_spec(), path)
    table.create()
    partition = table.spec.grid.partition("2024-01-03")
    frame = frame_of(spark, table.spec, rows)
    overwrite(spark, table.spec, path, frame, [partition], receipt=receipt_for(table, [partition], "r1"))
    assert table.rows_outside_grid(by_log=True) == {}
    outside = LakeTable(spark, orders_spec(start="2024-01-04"), path).rows_outside_grid(by_log=True)
    assert list(outside.values()) == [1]


def test_neighbours_are_not_touched(table, write):
    """Partitions beside the one that is replaced keep their rows and the very same files."""
    write(rows_of(*DAYS), *DAYS)
    before = files_by_partition(table.path)

    write(orders(DAYS[1], 1, customer="somebody else"), DAYS[1])

    after = files_by_partition(table.path)
    assert {day: after[day] for day in (DAYS[0], DAYS[2])} == {day: before[day] for day in (DAYS[0], DAYS[2])}
    assert not after[DAYS[1]] & before[DAYS[1]]
    assert content(table.path) == multiset([*rows_of(DAYS[0], DAYS[2]), *orders(DAYS[1], 1, customer="somebody else")])


def test_a_reader_keeps_the_version_that_it_opened(table, write):
    """A reader that began before an overwrite finds its files; one that begins later reads the new rows."""
    write(rows_of(*DAYS), *DAYS)
    began_before = opened(table.path)

    write(orders(DAYS[1], 1), DAYS[1])

    assert multiset(began_before.to_pyarrow_table().to_pylist()) == multiset(rows_of(*DAYS))
    assert content(table.path) == multiset([*rows_of(DAYS[0], DAYS[2]), *orders(DAYS[1], 1)])


def test_columns_are_matched_by_name(spark, table):
    """Columns in another order, and columns that the spec does not name, change nothing."""
    named = partitions(DAYS[0])
    frame = frame_of(spark, SPEC, ROWS[DAYS[0]])
    shuffled = frame.select("dt", "ordered_at", "customer", F.lit("ignored").alias("_ba_file_id"), "amount", "order_id")

    overwrite(spark, SPEC, table.path, shuffled, named, receipt=receipt_for(table, named))

    assert content(table.path) == multiset(ROWS[DAYS[0]])
    assert opened(table.path).schema().to_arrow().names == [*SPEC.columns, "dt"]


def test_the_table_stays_readable_by_others(table, write):
    """The protocol is reader 1 and writer 2 after a write, as it was at creation."""
    write(rows_of(*DAYS), *DAYS)

    protocol = opened(table.path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features
    assert not protocol.writer_features


# -- sessions that could turn a write loose ----------------------------------------------------------------------------

WRONG = {
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.skipRecordingEmptyCommits": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.databricks.delta.commitValidation.enabled": "false",
    "spark.databricks.delta.duplicateActionCheck.enabled": "false",
    "spark.databricks.delta.write.txnAppId": "somebody",
    "spark.databricks.delta.write.txnVersion": "7",
}


@pytest.fixture(scope="module")
def shared_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeTable:
    made = LakeTable(spark, SPEC, f"{tmp_path_factory.mktemp('unsafe')}/orders")
    made.create()
    return made


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Change a setting of the session for one test."""
    before: dict[str, str | None] = {}

    def change(name: str, value: str) -> None:
        before[name] = spark.conf.get(name, None)
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def test_every_setting_has_its_case():
    """The table of wrong values names every required and every refused setting."""
    assert set(WRONG) == {*REQUIRED_SETTINGS, *REFUSED_SETTINGS}


@pytest.mark.parametrize(("name", "value"), WRONG.items(), ids=[name.rsplit(".", 1)[-1] for name in WRONG])
def test_an_unsafe_setting_stops_the_write(spark, shared_table, setting, name, value):
    """A setting under which an overwrite would do more or less than it says is named, and nothing is written."""
    named = partitions(DAYS[0])
    frame, receipt = frame_of(spark, SPEC, ROWS[DAYS[0]]), receipt_for(shared_table, named)
    setting(name, value)

    with pytest.raises(UnsafeWriteError, match=re.escape(f"`{name}` is")):
        overwrite(spark, SPEC, shared_table.path, frame, named, receipt=receipt)

    assert opened(shared_table.path).version() == 0


@pytest.mark.prove
def test_a_setting_that_nobody_set_counts_with_its_default(spark, table, setting):
    """A session whose overwrite mode was set back to Spark's own default is safe: the default is what is looked at."""
    named = partitions(DAYS[0])
    frame, receipt = frame_of(spark, SPEC, []), receipt_for(table, named)
    setting("spark.sql.sources.partitionOverwriteMode", "dynamic")
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

    assert overwrite(spark, SPEC, table.path, frame, named, receipt=receipt) == (0, 0)


def test_a_write_without_a_partition_cannot_be_expressed(spark, shared_table):
    """An overwrite of no partitions at all is an error, not an overwrite of everything."""
    with pytest.raises(ValueError, match="at least one partition"):
        overwrite(spark, SPEC, shared_table.path, frame_of(spark, SPEC, []), [], receipt=receipt_for(shared_table, []))
