"""Rows that break a rule, and rows that only one side has, are named."""

from __future__ import annotations

import time
from typing import Any

from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.lake.table import LakeTable
from tests.lake.scans import scan
from tests.support.shop import orders, orders_spec, receipt_for

Row = dict[str, Any]
DAY, NEXT = "2024-01-01", "2024-01-02"
SPEC = orders_spec()


def verdict(key: str, *rules: AuditRule) -> Verdict:
    return Verdict(SPEC.grid.partition(key), tuple(Finding(rule, 1, "wrong") for rule in rules))


def test_rows_that_break_a_rule_are_named(spark, tmp_path, monkeypatch):
    """By key and instant, with the day they belong to; the instant is UTC whatever the zone of the machine."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    one, two = orders(NEXT, 2)
    stray = orders(DAY, 1)[0]
    rows = {NEXT: [one, two, two, stray, {**one, "order_id": None, "customer": "nobody"}], DAY: orders(DAY)}
    table = LakeTable(spark, SPEC, str(tmp_path))
    staged = table.stage(scan(spark, SPEC, rows))

    found = table.examples(
        staged,
        [
            verdict(
                NEXT, AuditRule.ROWS_INSIDE_PARTITION, AuditRule.REQUIRED_COLUMNS_ARE_FILLED, AuditRule.KEYS_ARE_UNIQUE
            )
        ],
    )

    assert found == {
        NEXT: {
            AuditRule.ROWS_INSIDE_PARTITION: [
                f"order_id={stray['order_id']} at 2024-01-01 00:00:00Z (belongs to {DAY})"
            ],
            AuditRule.REQUIRED_COLUMNS_ARE_FILLED: ["order_id=None at 2024-01-02 00:00:00Z"],
            AuditRule.KEYS_ARE_UNIQUE: [f"order_id={two['order_id']} at 2024-01-02 01:00:00Z"] * 2,
        }
    }
    staged.release()
    monkeypatch.undo()
    time.tzset()


def test_a_failed_day_without_files_has_no_examples(spark, tmp_path):
    """A day that fails because nothing is there names no rows, and disturbs no other."""
    table = LakeTable(spark, SPEC, str(tmp_path))
    staged = table.stage(scan(spark, SPEC, {DAY: orders(DAY)}))

    assert table.examples(staged, [verdict(NEXT, AuditRule.SOURCE_IS_PRESENT)]) == {}
    staged.release()


def test_differences_name_the_rows_that_only_one_side_has(spark, table):
    """Counts and rows of both sides, of the differing partition alone; a row that is there twice counts."""
    rows = {DAY: orders(DAY, 3), NEXT: orders(NEXT, 2)}
    named = [SPEC.grid.partition(key) for key in rows]
    wrote = table.stage(scan(spark, SPEC, {DAY: [*rows[DAY][:2], rows[DAY][0]], NEXT: rows[NEXT]}))
    version = table.overwrite(wrote, named, receipt_for(table, named)).version
    staged = table.stage(scan(spark, SPEC, rows))

    found = table.differences(staged, named, version=version)

    assert list(found) == [DAY]
    assert (found[DAY].only_in_source, found[DAY].only_in_table) == (1, 1)
    in_source = (
        f"order_id={rows[DAY][2]['order_id']}, customer=customer 2, amount=2.25, ordered_at=2024-01-01 02:00:00Z"
    )
    in_table = f"order_id={rows[DAY][0]['order_id']}, customer=customer 0, amount=0.25, ordered_at=2024-01-01 00:00:00Z"
    assert found[DAY].examples == (f"only in the source: {in_source}", f"only in the table: {in_table}")
    wrote.release()
    staged.release()
