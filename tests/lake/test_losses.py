"""What a launch may destroy is measured on the table's files, whoever wrote them, with real tables of every kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.forecast import Action, foresee
from backfill_assets.errors import TableFactsError
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.table.readers import open_table
from tests.support.fakes import launch_with
from tests.support.shop import (
    SCHEMA,
    content,
    files_by_partition,
    folder_of,
    frame_of,
    launch,
    multiset,
    orders,
    orders_spec,
    published_keys,
    receipt_for,
    refusals,
    write_parquet,
)

SPEC = orders_spec()
DAY, NEXT = "2024-01-01", "2024-01-02"
PARTITION = SPEC.grid.partition(DAY)


class Shop:
    """A table, and the source that a launch would replace it with."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root, self.said = root, list[str]()
        self.table = LakeTable(spark, SPEC, f"{root}/orders", self.said.append)
        self.source = FilesSource(spark, SPEC, SPEC.source, str(root / "in"))
        self.export(NEXT, 3)

    def export(self, day: str, count: int) -> None:
        """Let the source have so many rows of a day."""
        write_parquet(folder_of(self.root / "in", day), orders(day, count))

    def launch(self, day: str = DAY, **how: Any) -> list[Any]:
        return launch(self.table, self.source, [SPEC.grid.partition(day)], log=self.said.append, **how)

    def publish(self, count: int) -> None:
        self.export(DAY, count)
        assert published_keys(self.launch(allow_shrink=True)) == [DAY]

    def append(self, count: int, first: int = 0, mode: str = "append") -> None:
        """Let another engine write rows of the day, which are not in the source."""
        rows = pa.Table.from_pylist(orders(DAY, first + count)[first:], schema=SCHEMA)
        day = pa.array([PARTITION.value] * count, pa.date32())
        deltalake.write_deltalake(self.table.path, rows.append_column("dt", day), partition_by=["dt"], mode=mode)

    def spark_sql(self, text: str) -> None:
        self.table.spark.sql(text.format(table=f"delta.`{self.table.path}`"))

    def without_statistics(self) -> None:
        """Take the statistics out of what delta-rs wrote into the log, as writers do that keep none."""
        log = Path(self.table.path, "_delta_log")
        for commit in (file for file in log.glob("*.json") if not (log / f".{file.name}.crc").exists()):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            for action in actions:
                action.get("add", {}).pop("stats", None)
            commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def undone(shop: Shop) -> None:
    """A launch replaces somebody's forty rows by ten, and is taken back."""
    shop.append(40)
    shop.publish(10)
    receipt = receipt_for(shop.table, [PARTITION], kind="put_back", source={"version": 0})
    shop.table.restore([PARTITION], version=1, receipt=receipt)


def without_receipts(shop: Shop) -> None:
    """The log has forgotten the commits of launches, and the copy of their receipts is gone."""
    shop.publish(40)
    assert published_keys(shop.launch(NEXT)) == [NEXT]
    deltalake.DeltaTable(shop.table.path).create_checkpoint()
    for version in (0, 1):
        Path(shop.table.path, "_delta_log", f"{version:020d}.json").unlink()
    shutil.rmtree(f"{shop.table.path}_history", ignore_errors=True)


def with_deletion_vectors(shop: Shop) -> None:
    shop.publish(60)
    shop.spark_sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    shop.spark_sql("DELETE FROM {table} WHERE order_id % 100 >= 40")


def without_statistics(shop: Shop) -> None:
    shop.append(40)
    shop.without_statistics()


def with_mapped_columns(shop: Shop) -> None:
    shop.publish(40)
    shop.spark_sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")


CASES: dict[str, Callable[[Shop], None]] = {
    "no receipt": lambda shop: shop.append(40),
    "a receipt": lambda shop: shop.publish(40),
    "foreign rows beside a receipt": lambda shop: (shop.publish(10), shop.append(30, first=10)),
    "after an undo": undone,
    "receipts lost": without_receipts,
    "deletion vectors": with_deletion_vectors,
    "files without statistics": without_statistics,
    "columns that delta-rs cannot map": with_mapped_columns,
}


IN_THE_GATE = ("no receipt", "foreign rows beside a receipt", "deletion vectors")


@pytest.mark.parametrize(
    "made",
    [pytest.param(made, marks=[] if name in IN_THE_GATE else pytest.mark.prove) for name, made in CASES.items()],
    ids=CASES,
)
def test_losses_are_measured_against_the_table(shop, made):
    """Forty rows are not replaced by ten, whoever wrote them: plan and launch refuse it, and a person may allow it."""
    made(shop)
    shop.export(DAY, 10)
    assert shop.table.rows_now([PARTITION]) == {DAY: 40}

    (foreseen,) = foresee(SPEC, [PARTITION], shop.source, shop.table, launch_with()).partitions
    assert (foreseen.action, foreseen.rows_now) == (Action.REFUSED, 40)
    refused = refusals(shop.launch())[DAY]
    assert "40 → 10" in refused
    assert "`allow_shrink: true`" in refused
    assert shop.table.rows_now([PARTITION]) == {DAY: 40}

    assert published_keys(shop.launch(allow_shrink=True)) == [DAY]
    assert shop.table.rows_now([PARTITION]) == {DAY: 10}
    assert shop.table.published()[DAY].partition.rows_before == 40


@pytest.mark.prove
def test_rows_that_nobody_can_count_stay(shop):
    """A file without statistics that is gone may have had any number of rows; only a person lets it be replaced."""
    assert published_keys(shop.launch(NEXT)) == [NEXT]
    shop.append(40)
    shop.without_statistics()
    (file,) = files_by_partition(shop.table.path)[DAY]
    Path(shop.table.path, file).write_bytes(b"damaged")
    shop.export(DAY, 10)
    assert shop.table.rows_now([PARTITION]) == {DAY: None}
    assert "rows that nobody can count" in refusals(shop.launch())[DAY]
    shop.export(NEXT, 4)
    assert published_keys(shop.launch(NEXT)) == [NEXT], "other partitions are launched"
    assert published_keys(shop.launch(allow_shrink=True)) == [DAY]
    assert content(shop.table.path) == multiset([*orders(DAY, 10), *orders(NEXT, 4)])


@pytest.mark.prove
def test_a_day_that_others_filled_is_not_emptied(shop):
    """A source without rows does not empty a partition that only somebody else has written."""
    shop.append(40)
    write_parquet(folder_of(shop.root / "in", DAY), [])
    assert "the table has 40" in refusals(shop.launch(allow_shrink=True))[DAY]
    assert content(shop.table.path) == multiset(orders(DAY, 40))


@pytest.mark.prove
def test_a_small_loss_is_said(shop):
    """A launch that leaves a partition with fewer rows than before, though not too few, says so with both numbers."""
    shop.append(40)
    shop.export(DAY, 30)
    assert published_keys(shop.launch()) == [DAY]
    assert "1 of 1 partitions have fewer rows than before, first `2024-01-01` (40 → 30)." in shop.said


@pytest.mark.prove
def test_a_table_of_others_is_taken_over_with_a_word(shop):
    """The first launch into a table that another engine wrote says so, and how many rows it has."""
    shop.append(40)
    assert published_keys(shop.launch(NEXT)) == [NEXT]
    assert any("another writer made this table" in said and "40 rows" in said for said in shop.said)
    said = len(shop.said)
    shop.launch(NEXT)
    assert not any("another writer made this table" in sentence for sentence in shop.said[said:])


@pytest.mark.prove
def test_spark_and_delta_rs_count_the_same(shop, monkeypatch):
    """Whoever reads the log, the number is the same, at the newest version and at an earlier one."""
    shop.publish(10)
    shop.append(30, first=10)
    told = [shop.table.rows_now([PARTITION], version=version) for version in (0, 1, 2, None)]
    assert told == [{}, {DAY: 10}, {DAY: 40}, {DAY: 40}]
    monkeypatch.setattr("backfill_assets.table.log.rows_by_partition", lambda *_, **__: None)
    assert [shop.table.rows_now([PARTITION], version=version) for version in (0, 1, 2, None)] == told
    rows = open_table(shop.table.spark, shop.table.path)
    assert rows is not None
    assert rows.count() == frame_of(shop.table.spark, SPEC, orders(DAY, 40)).count()


@pytest.mark.prove
def test_rows_of_no_partition_stop_the_first_launch(shop):
    """Rows of another engine that lie in the partition NULL would come twice: the first launch names them."""
    rows = pa.Table.from_pylist(orders(DAY, 10), schema=SCHEMA)
    nowhere = rows.append_column("dt", pa.array([None] * 10, pa.date32()))
    deltalake.write_deltalake(shop.table.path, nowhere, partition_by=["dt"])
    shop.export(DAY, 10)
    with pytest.raises(TableFactsError, match="partition `NULL` of the table has rows"):
        shop.launch()
    assert content(shop.table.path) == multiset(orders(DAY, 10))
