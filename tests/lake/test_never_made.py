"""A table that was never made, with something else in its folder: every look at it works, finds nothing, and makes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.state.surveys import NO_LATE
from backfill_assets.errors import UnsafeWriteError
from backfill_assets.lake.evolution import columns_of
from backfill_assets.lake.table import LakeTable
from tests.support.shop import orders_spec

SPEC = orders_spec()
PARTITIONS = [SPEC.grid.partition("2024-01-01")]

LOOKS: dict[str, tuple[Callable[[LakeTable, list[Partition]], Any], Any]] = {
    "exists": (lambda table, _: table.exists(), False),
    "schema": (lambda table, _: table.schema(), None),
    "columns_of": (lambda table, _: columns_of(table), None),
    "schema_problems": (lambda table, _: table.schema_problems(), []),
    "version": (lambda table, _: table.version(), -1),
    "published": (lambda table, _: table.published(), {}),
    "history.receipts": (lambda table, _: table.history.receipts(), {}),
    "history.in_log": (lambda table, _: table.history.in_log(newest=5), {}),
    "read": (lambda table, _: table.read().collect(), []),
    "rows_now": (lambda table, named: table.rows_now(named), {}),
    "tally": (lambda table, named: table.tally(named), {}),
    "versions_writing": (lambda table, named: table.versions_writing(-1, 5, named), []),
    "late": (lambda table, named: table.late(named), NO_LATE),
    "history.operations": (lambda table, _: table.history.operations(), []),
    "history.attempts": (lambda table, _: table.history.attempts(), []),
    "late_table.columns": (lambda table, _: table.late_table.columns(), None),
    "late_table.counts": (lambda table, _: table.late_table.counts(), {}),
    "late_table.rows_of": (lambda table, named: table.late_table.rows_of(named), None),
}


def test_looking_at_history_makes_nothing(spark: SparkSession, tmp_path: Path):
    """Each read of the table's history finds nothing, and leaves what is in the folder as it is."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "note.txt").write_text("not a table")
    before = set(tmp_path.rglob("*"))
    table = LakeTable(spark, SPEC, f"{tmp_path}/orders")

    found = {name: look(table, PARTITIONS) for name, (look, _) in LOOKS.items()}

    assert found == {name: nothing for name, (_, nothing) in LOOKS.items()}
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("left", ["note.txt", "_delta_log/.tmp"])
def test_no_table_is_made_among_other_files(spark: SparkSession, tmp_path: Path, left: str):
    """Whoever launches is told what is in the way, since no further launch would make the table."""
    other = tmp_path / "orders" / left
    other.parent.mkdir(parents=True)
    other.write_text("not a table")
    with pytest.raises(UnsafeWriteError, match="the folder has files, but no Delta table"):
        LakeTable(spark, SPEC, f"{tmp_path}/orders").create()
    assert other.read_text() == "not a table"
