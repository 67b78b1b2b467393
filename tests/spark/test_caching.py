"""Rows that are held belong to one launch: no other takes them for the source's, whatever became of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import tally_rows
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import content, folder_of, launch, multiset, orders, orders_spec, write_parquet

DAY = "2024-01-01"
SPEC = orders_spec()


@pytest.mark.prove
def test_rows_that_nobody_released(spark: SparkSession, tmp_path: Path):
    """A launch that was killed leaves its rows in the server; the next one reads the corrected file, which has the same path."""
    folder = folder_of(tmp_path / "landing", DAY)
    write_parquet(folder, orders(DAY, customer="wrong"))
    table = LakeTable(spark, SPEC, f"{tmp_path}/orders")
    table.create()
    source = FilesSource(spark, SPEC, SPEC.source, f"{tmp_path}/landing")
    partitions = [SPEC.grid.partition(DAY)]
    left_behind = table.stage(source.scan(partitions, source.survey(partitions)))

    write_parquet(folder, orders(DAY, customer="right"))
    launch(table, source, partitions)

    assert content(table.path) == multiset(orders(DAY, customer="right"))
    assert tally_rows(SPEC, left_behind.rows, left_behind.partition_by_file) == left_behind.tallies
    left_behind.release()
