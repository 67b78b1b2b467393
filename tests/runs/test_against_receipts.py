"""The table held against its receipts, as the check inside of a launch does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.state.tallies import Tally
from backfill_assets.lake.table import LakeTable
from backfill_assets.runs.comparisons import compare_with_receipts
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import folder_of, launch, orders, orders_spec, write_parquet

pytestmark = pytest.mark.spark

DAY_1, DAY_2, DAY_3 = DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


class Overtaken(LakeTable):
    """A table of which another launch publishes other rows just before it is read back."""

    def tally(self, partitions: Sequence[Partition], **asked: Any) -> dict[str, Tally]:
        root = Path(self.path).parent / "landing"
        write_parquet(folder_of(root, DAY_1), orders(DAY_1, 5))
        source = FilesSource(self.spark, self.spec, self.spec.source, str(root))
        launch(LakeTable(self.spark, self.spec, self.path), source, self.spec.grid.between(DAY_1, DAY_1))
        return super().tally(partitions, **asked)


@pytest.mark.prove
def test_receipts_and_rows_are_of_one_version(spark, tmp_path):
    """A launch that commits between two looks of a check makes no difference: both are right, and neither is reported."""
    spec = orders_spec()
    for day in (DAY_1, DAY_2):
        write_parquet(folder_of(tmp_path / "landing", day), orders(day))
    table = Overtaken(spark, spec, f"{tmp_path}/table")
    table.create()
    source = FilesSource(spark, spec, spec.source, f"{tmp_path}/landing")
    launch(LakeTable(spark, spec, table.path), source, spec.grid.between(DAY_1, DAY_2))

    compared, unpublished = compare_with_receipts(spec.grid.between(DAY_1, DAY_3), table, "")

    assert [(c.partition.key, c.passed, c.table_rows) for c in compared] == [(DAY_1, True, 3), (DAY_2, True, 3)]
    assert [partition.key for partition in unpublished] == [DAY_3]
    assert table.version() == 2
