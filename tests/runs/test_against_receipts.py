"""The table held against its receipts, as the check inside of a launch does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.core.state.tallies import Tally
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import duplicate_keys_by_partition
from backfill_assets.runs.comparisons import compare_with_receipts
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import folder_of, frame_of, launch, opened, orders, orders_spec, write_parquet

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


@pytest.mark.prove
def test_keys_are_counted_again_where_rows_are_others(spark, tmp_path, monkeypatch):
    """Rows that an audit by this very code let through need no second count of their keys; any others are counted."""
    spec = orders_spec()
    for day in DAYS:
        write_parquet(folder_of(tmp_path / "landing", day), orders(day))
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    source = FilesSource(spark, spec, spec.source, f"{tmp_path}/landing")
    named = spec.grid.between(DAY_1, DAY_3)
    launch(table, source, named, code_version="this")
    frame_of(spark, spec, orders(DAY_2, 2)).write.format("delta").mode("append").save(table.path)
    looked_at: list[list[str]] = []

    def counted(of: TableSpec, rows: DataFrame) -> dict[str, int]:
        looked_at.append(sorted(str(row["dt"]) for row in rows.select("dt").distinct().collect()))
        return duplicate_keys_by_partition(of, rows)

    monkeypatch.setattr("backfill_assets.lake.table.duplicate_keys_by_partition", counted)

    of_this, _ = compare_with_receipts(named, table, "this")
    of_other, _ = compare_with_receipts(named, table, "other")

    assert looked_at == [[DAY_2], list(DAYS)]
    assert [[str(v.rule) for v in c.failures] for c in of_this] == [[], ["rows_match_source", "keys_are_unique"], []]
    assert [c.failures for c in of_other] == [c.failures for c in of_this]


def test_what_was_put_back_is_not_known_to_equal_its_source(spark, tmp_path):
    """It has the rows that its receipt says, and nobody has held those against the source."""
    spec = orders_spec()
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()
    source = FilesSource(spark, spec, spec.source, f"{tmp_path}/landing")
    named = spec.grid.between(DAY_1, DAY_1)
    for count in (3, 5):
        write_parquet(folder_of(tmp_path / "landing", DAY_1), orders(DAY_1, count))
        (outcome,) = launch(table, source, named)
    assert isinstance(outcome, Published)
    part = PartitionReceipt.of(table.tally(named, version=1)[DAY_1], fingerprint="")
    how = {
        "receipt_id": "back",
        "kind": "put_back",
        "staged_from_version": 2,
        "source": {"kind": "version", "version": 1},
    }
    table.restore(named, version=1, receipt=replace(outcome.receipt, partitions={DAY_1: part}, **how))
    assert compare_with_receipts(named, table, "") == ([], named)
    (first, *_) = orders(DAY_1)
    opened(table.path).delete(f"order_id = {first['order_id']}")
    ((compared,), unknown) = compare_with_receipts(named, table, "")
    assert (compared.passed, unknown) == (False, [])
