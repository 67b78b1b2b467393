"""A scan is read once: rows of one key resolved, tallied, kept, and let go; of them only what passed is written."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.history.audit import Evidence
from backfill_assets.core.history.ports import Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import UnsafeWriteError
from backfill_assets.lake.staged_chunk import BYTES_IN_A_TASK, BYTES_IN_MEMORY
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.tally import duplicate_keys_by_partition
from tests.lake.scans import scan
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

Row = dict[str, Any]
DAY, NEXT = "2024-01-01", "2024-01-02"
SPEC = orders_spec()


def cached(spark: SparkSession) -> int:
    """How many frames Spark keeps."""
    return spark._jsc.getPersistentRDDs().size()


def test_the_largest_value_of_a_key_wins(spark, tmp_path):
    """The largest value wins, NULL loses, and rows that were replaced are counted by partition; other days are not looked at."""
    spec = orders_spec(latest_wins_by=["amount"])
    one, two, three = orders(DAY, 3)
    rows = {
        DAY: [
            {**one, "amount": Decimal(1)}, {**one, "amount": Decimal(3), "customer": "wins"}, {**one, "amount": None}, {**one, "amount": Decimal(2)},
            {**two, "amount": None, "customer": "only one"}, three,
        ],
        NEXT: [{**one, "ordered_at": one["ordered_at"] + timedelta(days=1)}],
    }  # fmt: skip

    staged = LakeTable(spark, spec, str(tmp_path)).stage(scan(spark, spec, rows))

    assert staged.superseded_rows == {DAY: 3}
    assert {key: tally.rows for key, tally in staged.tallies.items()} == {DAY: 3, NEXT: 1}
    assert staged.tallies[DAY].duplicate_keys == 0
    kept = {(row["order_id"], str(row["dt"])): row["customer"] for row in staged.rows.collect()}
    assert kept == {
        (one["order_id"], DAY): "wins", (two["order_id"], DAY): "only one", (three["order_id"], DAY): three["customer"],
        (one["order_id"], NEXT): one["customer"],
    }  # fmt: skip
    staged.release()


def test_a_tie_is_always_resolved_alike(spark, tmp_path):
    """Of two rows that are equally late the same one wins, whatever their order and however they are spread."""
    spec = orders_spec(latest_wins_by=["amount"])
    table = LakeTable(spark, spec, str(tmp_path))
    tied = [{**row, "customer": name} for row in orders(DAY, 4, amount=Decimal(1)) for name in ("b", "a", "c", "")]

    forward, backward = (
        table.stage(scan(spark, spec, {DAY: tied})),
        table.stage(scan(spark, spec, {DAY: tied[::-1]}, scattered=True)),
    )

    assert forward.tallies == backward.tallies
    assert forward.superseded_rows == backward.superseded_rows == {DAY: 12}
    forward.release()
    backward.release()


def test_keys_of_rows_that_an_audit_let_through_are_not_counted_again(spark, tmp_path, monkeypatch):
    """Only where all that was read is as it was published; one row more, and every key is counted."""
    counted: list[int] = []

    def noted(spec: TableSpec, rows: DataFrame, *, together: bool) -> dict[str, int]:
        counted.append(1)
        return duplicate_keys_by_partition(spec, rows, together=together)

    monkeypatch.setattr("backfill_assets.lake.staged_chunk.duplicate_keys_by_partition", noted)
    table, days = LakeTable(spark, SPEC, str(tmp_path)), {DAY: orders(DAY, 3), NEXT: orders(NEXT, 2)}
    with table.stage(scan(spark, SPEC, days)) as first:
        known = {key: tally.content for key, tally in first.tallies.items()}
    with table.stage(scan(spark, SPEC, days), unique=known) as again:
        assert again.tallies == first.tallies
    with table.stage(scan(spark, SPEC, {**days, NEXT: orders(NEXT, 2) + orders(NEXT, 1)}), unique=known) as doubled:
        assert doubled.tallies[NEXT].duplicate_keys == 1

    assert len(counted) == 2, "of the first and of the doubled rows"


def test_a_stray_row_wins_over_nobody(spark, tmp_path):
    """A newer row under the wrong day fails that day, and does not replace the older one where it belongs."""
    spec = orders_spec(latest_wins_by=["amount"])
    rows = {DAY: [*orders(DAY, 2), orders(DAY, 1)[0]], NEXT: [*orders(NEXT, 1), orders(DAY, 1, amount=Decimal(99))[0]]}

    staged = LakeTable(spark, spec, str(tmp_path)).stage(scan(spark, spec, rows))

    assert staged.tallies[NEXT].stray_rows == 1
    assert (staged.tallies[DAY].rows, staged.superseded_rows) == (2, {DAY: 1})
    staged.release()


def test_null_keys_and_repeated_keys_are_counted(spark, tmp_path):
    """Without a rule which one wins, rows that repeat a key are counted and kept; NULL keys are counted too."""
    one, two = orders(DAY, 2)
    staged = LakeTable(spark, SPEC, str(tmp_path)).stage(
        scan(
            spark,
            SPEC,
            {
                DAY: [
                    one,
                    two,
                    one,
                    {**two, "order_id": None},
                    {**two, "order_id": None, "ordered_at": None},
                    {**two, "order_id": None, "ordered_at": None},
                ]
            },
        )
    )

    tally = staged.tallies[DAY]
    assert (tally.rows, tally.duplicate_keys, tally.null_keys) == (6, 1, 3)
    assert tally.nulls == {"order_id": 3, "ordered_at": 2}
    staged.release()


def test_persisted_rows_are_released(spark, tmp_path):
    """After `release` Spark keeps nothing of a chunk, resolved or not, nor after a read that failed."""
    spec = orders_spec(latest_wins_by=["amount"])
    table = LakeTable(spark, spec, str(tmp_path))
    before = cached(spark)

    for rows in (orders(DAY), [*orders(DAY), *orders(DAY)]):
        staged = table.stage(scan(spark, spec, {DAY: rows}))
        assert cached(spark) == before + 1
        staged.release()
    broken = scan(spark, spec, {DAY: orders(DAY)})
    broken = Scan(
        broken.rows.withColumn("customer", F.raise_error(F.lit("cannot be read"))), {}, {}, broken.partition_by_file
    )
    with pytest.raises(Exception, match="cannot be read"):
        table.stage(broken)

    deadline = time.monotonic() + 10
    while cached(spark) > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert cached(spark) == before


def test_a_day_of_many_source_files_becomes_at_most_two_files(spark, table):
    """However many files a day comes in, the table has at most two for it."""
    rows = {DAY: orders(DAY, 40), NEXT: orders(NEXT, 40)}
    frame = scan(spark, SPEC, rows).rows.repartition(10)
    staged = table.stage(Scan(frame, {}, {}, dict(enumerate(rows)), scattered=True))
    named = [SPEC.grid.partition(key) for key in rows]

    table.overwrite(staged, named, receipt_for(table, named))

    assert {day: len(files) <= 2 for day, files in files_by_partition(table.path).items()} == {DAY: True, NEXT: True}
    assert content(table.path) == multiset([*rows[DAY], *rows[NEXT]])
    staged.release()


def test_the_more_is_read_the_more_tasks_go_through_it(spark, table):
    """A task that held much of a large chunk would sort and count on disk; each partition is in one of them all the same."""
    days = [f"2024-01-{day:02}" for day in range(1, 21)]
    rows = {day: orders(day, 3) for day in days}
    read = scan(spark, SPEC, rows, scattered=True)
    read = replace(read, rows=read.rows.repartition(30))

    with (
        table.stage(read, size_bytes=BYTES_IN_A_TASK) as little,
        table.stage(read, size_bytes=18 * BYTES_IN_A_TASK) as much,
    ):
        tasks = [staged.rows.rdd.getNumPartitions() for staged in (little, much)]
        assert little.tallies == much.tallies
        named = [SPEC.grid.partition(day) for day in days]
        table.overwrite(much, named, receipt_for(table, named))

    assert tasks[1] == 18 > tasks[0]
    assert {day: len(files) for day, files in files_by_partition(table.path).items()} == dict.fromkeys(days, 1)
    assert content(table.path) == multiset([row for day in days for row in rows[day]])


def test_a_day_of_one_large_file_does_not_become_many_files(spark, table):
    """Spark reads it in pieces: of however many bytes they are, no more tasks write than do of a small chunk."""
    fewest = 2 * int(spark.conf.get("spark.sql.shuffle.partitions"))
    frame = scan(spark, SPEC, {DAY: orders(DAY, 200)}).rows.repartition(3 * fewest)
    read = Scan(frame, {}, {}, {0: DAY}, scattered=False)
    with table.stage(read, size_bytes=100 * BYTES_IN_A_TASK) as staged:
        named = [SPEC.grid.partition(DAY)]
        table.overwrite(staged, named, receipt_for(table, named))
    assert len(files_by_partition(table.path)[DAY]) <= fewest


@pytest.mark.parametrize(("slices", "tasks"), [(1, 18), (8, 18), (40, 40)])
def test_rows_with_the_same_key_are_resolved_in_as_many_tasks(spark, table, slices, tasks):
    """Of a large chunk, and where memory has run out: never in fewer than before."""
    days = [f"2024-01-{day:02}" for day in range(1, 21)]
    spec = orders_spec(latest_wins_by=["amount"])
    read = scan(spark, spec, {day: orders(day, 2) + orders(day, 1) for day in days}, scattered=True)
    with LakeTable(spark, spec, table.path).stage(read, slices=slices, size_bytes=18 * BYTES_IN_A_TASK) as staged:
        assert staged.superseded_rows == dict.fromkeys(days, 1)
        assert staged.rows.rdd.getNumPartitions() == tasks
        assert staged.rows.count() == 40


@pytest.mark.parametrize(
    ("size_bytes", "in_memory"), [(0, True), (BYTES_IN_MEMORY, True), (BYTES_IN_MEMORY + 1, False)]
)
def test_much_is_kept_on_disk_alone(spark, table, size_bytes, in_memory):
    """What is larger would fill the heap, and Java would spend its time on that."""
    with table.stage(scan(spark, SPEC, {DAY: orders(DAY)}), size_bytes=size_bytes) as staged:
        level = staged.rows.storageLevel
    assert (level.useMemory, level.useDisk) == (in_memory, True)


def test_rows_of_a_refused_day_stay_out(spark, table):
    """Of a held chunk only the given partitions are written: neither a refused day's rows nor its strays in them."""
    rows = {DAY: orders(DAY), NEXT: [*orders(NEXT), *orders(DAY, 1, order_id=7, customer="stray")]}
    staged = table.stage(scan(spark, SPEC, rows))
    named = [SPEC.grid.partition(DAY)]

    commit = table.overwrite(staged, named, receipt_for(table, named))

    assert content(table.path) == multiset(rows[DAY])
    assert commit.rows == {DAY: 3}
    assert table.differences(staged, named, version=commit.version) == {}
    staged.release()


def test_a_frame_with_strays_is_refused_clearly(spark, table):
    """Should the audit be passed by, the write itself refuses rows outside the partitions, and says so."""
    staged = table.stage(scan(spark, SPEC, orders(DAY) + orders(NEXT)))
    loose = StagedChunk(staged.rows, {DAY: staged.tallies[DAY]}, {}, None, staged.release)
    named = [SPEC.grid.partition(DAY)]

    with pytest.raises(UnsafeWriteError, match="a row lies outside the partitions that were to be replaced"):
        table.overwrite(loose, named, receipt_for(table, named))

    assert opened(table.path).version() == 0
    staged.release()


def test_evidence_is_not_needed_to_hold(spark, tmp_path):
    """Rows of a source without files are counted where their event time lies."""
    staged = LakeTable(spark, SPEC, str(tmp_path)).stage(
        Scan(frame_of(spark, SPEC, orders(DAY) + orders(NEXT), partitioned=False), {}, {DAY: Evidence(3)})
    )

    assert {key: (tally.rows, tally.stray_rows) for key, tally in staged.tallies.items()} == {DAY: (3, 0), NEXT: (3, 0)}
    staged.release()
