"""A table that was never made: every look at it works, finds nothing, and makes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.guards import LIVE_ROWS
from backfill_assets.core.history.ports import Difference, Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.state.fence import first_fence
from backfill_assets.core.state.surveys import NO_LATE
from backfill_assets.errors import UnsafeWriteError
from backfill_assets.lake.evolution import columns_of
from backfill_assets.lake.once_flows import record_reset
from backfill_assets.lake.table import LakeTable
from backfill_assets.live.live_table import LiveTable
from tests.support.live_shop import live_spec
from tests.support.shop import frame_of, orders, orders_spec, receipt_for

DAY = "2024-01-01"
SPEC, LIVE = orders_spec(), live_spec()
PARTITIONS = [SPEC.grid.partition(DAY)]

LOOKS: dict[str, tuple[Callable[[LakeTable, list[Partition]], Any], Any]] = {
    "exists": (lambda table, _: table.exists(), False),
    "schema": (lambda table, _: table.schema(), None),
    "columns_of": (lambda table, _: columns_of(table), None),
    "schema_problems": (lambda table, _: table.schema_problems(), []),
    "version": (lambda table, _: table.version(), -1),
    "published": (lambda table, _: table.published(), {}),
    "receipts.all": (lambda table, _: table.receipts.all(), {}),
    "receipts.in_log": (lambda table, _: table.receipts.in_log(newest=5), {}),
    "read": (lambda table, _: table.read().collect(), []),
    "read before it was made": (lambda table, _: table.read(-1).collect(), []),
    "rows_now": (lambda table, named: table.rows_now(named), {}),
    "tally": (lambda table, named: table.tally(named), {}),
    "tally before it was made": (lambda table, named: table.tally(named, version=-1), {}),
    "versions_writing": (lambda table, named: table.versions_writing(-1, 5, named), []),
    "late": (lambda table, named: table.late(named), NO_LATE),
    "late_table.schema": (lambda table, _: table.late_table.schema(), None),
    "late_table.counts": (lambda table, _: table.late_table.counts(), {}),
    "late_table.rows_of": (lambda table, named: table.late_table.rows_of(named), None),
}
LIVE_LOOKS: dict[str, tuple[Callable[[LiveTable], Any], Any]] = {
    "fence": (lambda live: live.fence(), first_fence(LIVE)),
    "receipts": (lambda live: list(live.receipts()), []),
    "find": (lambda live: live.find(lambda _: True), None),
    "rows_from": (lambda live: live.rows_from(datetime(2024, 1, 4, tzinfo=UTC)), 0),
    "carry_live_rows": (lambda live: live.carry_live_rows(), 0),
    "quarantine.rows": (lambda live: live.quarantine.rows(), None),
    "quarantine.reasons": (lambda live: live.quarantine.reasons(), {}),
}
PLACES = ["nothing", "an empty folder", "a folder with something else"]


@pytest.fixture(params=PLACES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A lakehouse in which no table was made; where it would lie there may be a folder."""
    root = tmp_path / "lakehouse"
    root.mkdir()
    if request.param != "nothing":
        (root / "orders").mkdir()
    if request.param == "a folder with something else":
        (root / "orders" / "note.txt").write_text("not a table")
    return root


def everything_below(root: Path) -> set[Path]:
    return set(root.rglob("*"))


def test_looking_at_history_makes_nothing(spark: SparkSession, root: Path):
    """Each read of the table's history finds nothing, whatever lies at its path, and leaves that as it is."""
    before = everything_below(root)
    table = LakeTable(spark, SPEC, f"{root}/orders")

    found = {name: look(table, PARTITIONS) for name, (look, _) in LOOKS.items()}

    assert found == {name: nothing for name, (_, nothing) in LOOKS.items()}
    assert everything_below(root) == before


def test_looking_at_the_live_side_makes_nothing(spark: SparkSession, root: Path):
    """The fence is where it will be when the table is made; there are no receipts, no late rows, no quarantine."""
    before = everything_below(root)
    table = LakeTable(spark, LIVE, f"{root}/orders")

    found = {name: look(LiveTable(table)) for name, (look, _) in LIVE_LOOKS.items()}

    assert found == {name: nothing for name, (_, nothing) in LIVE_LOOKS.items()}
    assert table.late(PARTITIONS) == NO_LATE
    assert LakeTable(spark, SPEC, f"{root}/orders").fence() is None, (
        "a table without a stream has no fence, made or not"
    )
    assert everything_below(root) == before


@pytest.mark.prove
def test_staged_rows_are_compared_with_no_rows(spark: SparkSession, root: Path):
    """Against a table that was never made all staged rows are only in the source, and none is missing there."""
    before = everything_below(root)
    table = LakeTable(spark, SPEC, f"{root}/orders")
    rows = frame_of(spark, SPEC, orders(DAY, 2), partitioned=False).withColumn("_ba_file_id", F.lit(0).cast("bigint"))

    with table.stage(Scan(rows, {}, {}, {0: DAY})) as staged:
        found = table.differences(staged, PARTITIONS, version=table.version())
        assert (found[DAY].only_in_source, found[DAY].only_in_table) == (2, 0)
        assert isinstance(found[DAY], Difference)
        assert table.rows_at_stake(staged, PARTITIONS, LIVE_ROWS) == {}

    assert everything_below(root) == before


def test_the_empty_table_has_its_columns(spark: SparkSession, tmp_path: Path):
    """What is read of a table that was never made has the columns and types that it will be made with."""
    never, made = (LakeTable(spark, SPEC, f"{tmp_path}/{name}") for name in ("never", "made"))
    made.create()

    assert never.read().dtypes == made.read().dtypes


def test_a_write_makes_no_table(spark: SparkSession, tmp_path: Path):
    """An overwrite, a reset and the end of an epoch are refused where there is no table: what they would make, nobody checked."""
    table = LakeTable(spark, SPEC, f"{tmp_path}/orders")
    staged = StagedChunk(frame_of(spark, SPEC, orders(DAY)), {}, {}, None, lambda: None)
    receipt = receipt_for(LakeTable(spark, SPEC, f"{tmp_path}/orders"), PARTITIONS)

    for write in (
        lambda: table.overwrite(staged, PARTITIONS, receipt),
        lambda: table.restore(PARTITIONS, version=-1, receipt=receipt),
        lambda: record_reset(table, receipt),
        lambda: LiveTable(table).close(None, ("live:a:1", 0)),
    ):
        with pytest.raises(UnsafeWriteError, match="there is no table at .* Nothing was written. Launch again"):
            write()

    assert {path.name for path in everything_below(tmp_path)} <= {"orders.lock"}


def test_a_part_of_the_log_that_is_gone_is_no_empty_table(spark: SparkSession, tmp_path: Path):
    """Commits that the log no longer has are an error, not versions that wrote nothing: somebody may have overtaken us there."""
    table = LakeTable(spark, SPEC, f"{tmp_path}/orders")
    table.create()

    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        table.versions_writing(-1, 3, PARTITIONS)


def test_the_copy_of_receipts_alone_is_believed_by_nobody(spark: SparkSession, tmp_path: Path):
    """A table that was deleted has no receipts, although their copy is still there."""
    table = LakeTable(spark, SPEC, f"{tmp_path}/orders")
    table.create()
    staged = StagedChunk(frame_of(spark, SPEC, orders(DAY)), {}, {}, None, lambda: None)
    table.overwrite(staged, PARTITIONS, receipt_for(table, PARTITIONS))
    assert table.receipts.fill() == 1
    shutil.rmtree(table.path)

    assert table.receipts.all() == {}
    assert table.published() == {}
