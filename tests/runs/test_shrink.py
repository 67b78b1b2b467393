"""A source that has lost most of a day: the day in the table stays, until a person says that it may go."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from tests.support.launching import new_lake
from tests.support.shop import SCHEMA, multiset, orders

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


def test_a_day_that_lost_most_of_its_rows_is_refused(tmp_path):
    """Its rows and files stay, the others are published, and the launch says what would let the rows go; then it does."""
    lake = new_lake(tmp_path)
    for day in DAYS:
        lake.export(day, orders(day, 10))
    assert lake.launch(DAYS[0], DAYS[-1]).succeeded
    before = lake.files()
    lake.export(DAYS[0], orders(DAYS[0], 12))
    lake.export(DAYS[1], orders(DAYS[1], 1))
    refused = lake.launch(DAYS[0], DAYS[-1])
    assert not refused.succeeded
    assert "`allow_shrink: true` in the launch's config" in refused.failure
    assert refused.verdicts() == {DAYS[0]: True, DAYS[1]: False, DAYS[2]: True}
    assert lake.files()[DAYS[1]] == before[DAYS[1]]
    assert lake.content() == multiset([*orders(DAYS[0], 12), *orders(DAYS[1], 10), *orders(DAYS[2], 10)])

    assert lake.launch(DAYS[1], allow_shrink=True).succeeded
    assert lake.content() == multiset([*orders(DAYS[0], 12), *orders(DAYS[1], 1), *orders(DAYS[2], 10)])


@pytest.mark.prove
def test_a_table_of_another_engine_keeps_its_rows(tmp_path):
    """A first launch over a table that somebody else wrote names what it would replace; a person may allow it."""
    lake = new_lake(tmp_path)
    rows = [row for day in DAYS for row in orders(day, 100)]
    days = pa.array([row["ordered_at"].date() for row in rows], pa.date32())
    theirs = pa.Table.from_pylist(rows, schema=SCHEMA).append_column("dt", days)
    deltalake.write_deltalake(lake.path(), theirs, partition_by=["dt"])
    lake.export(DAYS[1], orders(DAYS[1], 10))
    refused = lake.launch(DAYS[1])
    assert not refused.succeeded
    assert "(100 → 10)" in refused.failure
    assert f"({DAYS[1]})" in refused.failure
    assert "`allow_shrink: true`" in refused.failure
    assert lake.content() == multiset(rows)

    allowed = lake.launch(DAYS[1], allow_shrink=True)
    assert "Published 1 partitions; they had 100 rows before, and have 10 now." in allowed.log
    assert lake.content() == multiset([*orders(DAYS[0], 100), *orders(DAYS[1], 10), *orders(DAYS[2], 100)])
