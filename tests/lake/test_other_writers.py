"""Writers that are not ours: what they changed is known from the log, and launched again where only what is missing is."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.spark.expressions import is_no_partition
from tests.support.shop import (
    content,
    folder_of,
    frame_of,
    launch,
    multiset,
    orders,
    orders_spec,
    published_keys,
    receipt_for,
    write_parquet,
)

SPEC = orders_spec()
DAY, NEXT, LAST = "2024-01-01", "2024-01-02", "2024-01-03"
DAYS = (DAY, NEXT, LAST)


def named(*keys: str) -> list[Partition]:
    return [SPEC.grid.partition(key) for key in keys]


def source_of(table: LakeTable, root: Path) -> FilesSource:
    assert isinstance(SPEC.source, FilesSpec)
    return FilesSource(table.spark, SPEC, SPEC.source, str(root))


@pytest.fixture
def published(table: LakeTable, tmp_path: Path) -> tuple[LakeTable, FilesSource]:
    """Three days, published in one commit, in two files each."""
    for day in DAYS:
        write_parquet(folder_of(tmp_path / "in", day), orders(day, 4))
    source = source_of(table, tmp_path / "in")
    launch(table, source, named(*DAYS))
    return table, source


@pytest.mark.prove
def test_what_somebody_else_changed_is_not_published(published):
    """As many rows after an UPDATE are not the rows that were published: only that day is launched again, and right then."""
    table, source = published
    deltalake.DeltaTable(table.path).update(
        {"customer": "'else'"}, predicate=f"dt = '{NEXT}' AND customer = 'customer 1'"
    )
    assert table.rows_now(named(NEXT)) == {NEXT: 4}

    assert published_keys(launch(table, source, named(*DAYS), only="missing")) == [NEXT]

    assert content(table.path) == multiset(row for day in DAYS for row in orders(day, 4))
    assert published_keys(launch(table, source, named(*DAYS), only="missing")) == []


def test_storing_files_otherwise_is_no_write(table):
    """A commit that joins files and changes no row is no write: nobody was overtaken by it, and nothing is somebody else's."""
    rows = frame_of(table.spark, SPEC, orders(DAY, 4)).repartition(2)
    table.overwrite(StagedChunk(rows, {}, {}, None, lambda: None), named(DAY), receipt_for(table, named(DAY)))
    done = deltalake.DeltaTable(table.path).optimize.compact()
    assert (done["numFilesAdded"], done["numFilesRemoved"], table.version()) == (1, 2, 2)

    assert table.versions_writing(0, 3, named(DAY)) == [1]
    assert table.written_by_others(table.published()) == {}


def test_values_that_are_no_partition_are_counted(spark):
    """The condition in Spark says of every value what the grid says of its key, for all grains; the year 9999 is left to it."""
    days = ["2023-12-31", "2024-01-01", "2024-01-02", "2024-01-08", "2024-02-01", "2024-02-29", "9999-12-31", None]
    hours = [
        "2023-12-31-23",
        "2024-01-01-00",
        "2024-02-29-23",
        "2024-02-30-00",
        "2024-01-01-24",
        "2024-01-01",
        "2024-01-01-5",
        "2024-1-1-05",
        "٢٠٢٤-01-01-05",
        "x",
        "",
        None,
    ]
    for grain, values in (("daily", days), ("weekly", days), ("monthly", days), ("hourly", hours)):
        spec = orders_spec(grain=grain)
        kind = "string" if grain == "hourly" else "date"
        rows = spark.createDataFrame([(value,) for value in values], "value string").withColumn(
            spec.partition_column, F.col("value").cast(kind)
        )
        found = rows.withColumn("is_outside", is_no_partition(spec)).collect()
        assert {row["value"]: row["is_outside"] for row in found} == {
            value: value is None or value.startswith("9999") or not spec.grid.is_key(spec.grid.key_of(value))
            for value in values
        }, grain
