"""What the tests of the lake share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import Tally
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import tally_rows
from tests.support.shop import frame_of, orders_spec


@pytest.fixture(scope="session")
def made_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeTable:
    """A table of orders that was just made, to be copied."""
    made = LakeTable(spark, orders_spec(), str(tmp_path_factory.mktemp("made") / "orders"))
    made.create()
    return made


@pytest.fixture
def table(made_table: LakeTable, tmp_path: Path) -> LakeTable:
    """A table of orders that was just made."""
    shutil.copytree(made_table.path, tmp_path / "orders")
    return replace(made_table, path=f"{tmp_path}/orders")


@pytest.fixture
def tallies(spark: SparkSession) -> Callable[..., dict[str, Tally]]:
    """Tally sets of rows of one day side by side, in one pass: each set is kept in a home of its own."""

    def call(spec: TableSpec, **sets: list[dict[str, Any]]) -> dict[str, Tally]:
        frames = [frame_of(spark, spec, rows).withColumn("_ba_file_id", F.lit(name)) for name, rows in sets.items()]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionByName(frame)
        return tally_rows(spec, rows, {name: name for name in sets})

    return call
