"""Rows that break a rule, and rows that only one side has, are named."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.ports import Difference
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.lake.table import LakeTable
from tests.lake.scans import scan
from tests.support.shop import orders, orders_spec, receipt_for

Row = dict[str, Any]
DAY, NEXT = "2024-01-01", "2024-01-02"
SPEC = orders_spec()


PLAIN = orders_spec(key_columns=[])
SHOWN = {"checks": {"show_values": True}}


def differences(spark: Any, spec: TableSpec, root: Path, source: list[Row], table: list[Row]) -> Difference:
    """What is found where a table has other rows of a day than its source; of the day after it has the same."""
    named = [spec.grid.partition(key) for key in (DAY, NEXT)]
    made = LakeTable(spark, spec, str(root))
    made.create()
    wrote = made.stage(scan(spark, spec, {DAY: table, NEXT: orders(NEXT, 2)}))
    version = made.overwrite(wrote, named, receipt_for(made, named)).version
    staged = made.stage(scan(spark, spec, {DAY: source, NEXT: orders(NEXT, 2)}))
    found = made.differences(staged, named, version=version)
    wrote.release()
    staged.release()
    assert list(found) == [DAY], "the partition that differs, and no other"
    return found[DAY]


def rows_of_both() -> tuple[list[Row], list[Row]]:
    """Of four orders the first is there twice, the second differs in two columns, the third lacks, the last is equal."""
    first, second, third, fourth = orders(DAY, 4)
    return [first, second, third, fourth], [first, first, {**second, "customer": None, "amount": Decimal(9)}, fourth]


def test_differences_name_the_rows_and_not_their_values(spark, tmp_path):
    """Counts of both sides, and a few rows by key and instant: those of one side, and those of both with the columns that differ."""
    found = differences(spark, SPEC, tmp_path, *rows_of_both())
    assert (found.only_in_source, found.only_in_table) == (2, 2)
    assert sorted(found.examples) == [
        f"1 in the source, 2 in the table: order_id={orders(DAY)[0]['order_id']} at 2024-01-01 00:00:00Z",
        f"differs in customer, amount: order_id={orders(DAY)[1]['order_id']} at 2024-01-01 01:00:00Z",
        f"only in the source: order_id={orders(DAY)[2]['order_id']} at 2024-01-01 02:00:00Z",
    ]


@pytest.mark.prove
def test_values_are_shown_where_the_spec_says_so(spark, tmp_path):
    """With `show_values` all values of a row that one side has, and both values of each column that differs."""
    first, second, third = (row["order_id"] for row in orders(DAY))
    found = differences(spark, orders_spec(**SHOWN), tmp_path, *rows_of_both())
    assert sorted(found.examples) == [
        f"1 in the source, 2 in the table: order_id={first}, customer=customer 0, amount=0.25, ordered_at=2024-01-01 00:00:00Z",
        f"differs in customer, amount: order_id={second} at 2024-01-01 01:00:00Z "
        "(source: customer=customer 1, amount=1.25; table: customer=NULL, amount=9.00)",
        f"only in the source: order_id={third}, customer=customer 2, amount=2.25, ordered_at=2024-01-01 02:00:00Z",
    ]


@pytest.mark.prove
def test_rows_without_a_key_are_named_by_their_instant(spark, tmp_path):
    """A table without keys names a row by when it happened, and shows its values only where the spec says so."""
    source, table = rows_of_both()
    found = differences(spark, PLAIN, tmp_path / "hidden", source, table[1:])
    assert sorted(found.examples) == [
        "only in the source: a row at 2024-01-01 01:00:00Z",
        "only in the source: a row at 2024-01-01 02:00:00Z",
        "only in the table: a row at 2024-01-01 01:00:00Z",
    ]
    shown = differences(spark, orders_spec(key_columns=[], **SHOWN), tmp_path / "shown", source, table[1:])
    assert any("customer=customer 2" in example for example in shown.examples)
