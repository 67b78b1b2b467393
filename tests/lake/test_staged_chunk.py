"""A scan is read once: rows of one key resolved, tallied, kept, and let go; of them only what passed is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backfill_assets.core.history.ports import Scan
from backfill_assets.lake.staged_chunk import BYTES_IN_A_TASK
from tests.lake.scans import scan
from tests.support.shop import (
    content,
    files_by_partition,
    multiset,
    orders,
    orders_spec,
    receipt_for,
)

DAY, NEXT = "2024-01-01", "2024-01-02"
SPEC = orders_spec()


@pytest.mark.prove
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
