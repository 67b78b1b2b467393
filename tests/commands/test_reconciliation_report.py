"""What `reconcile` prints of what was let pass."""

from __future__ import annotations

import json
from io import StringIO

from rich.console import Console

from backfill_assets.commands.reconciliation_report import PartitionReport, Reconciliation


def test_what_was_let_pass_is_printed():
    """The outcome is good, and says that it is so by a tolerance; each partition says what differs."""
    same = PartitionReport("2024-01-01", True, 3, 3, "a", "a", [], "noon")
    near = PartitionReport("2024-01-02", True, 4, 3, "b", "c", [], "noon", "rows_match_source: one row is missing.")
    found = Reconciliation("bronze/customers", "run", (same, near), ())
    out = StringIO()
    found.show(Console(file=out, width=200))
    assert out.getvalue().splitlines() == [
        "2024-01-02: rows_match_source: one row is missing.",
        "bronze/customers: 2 partitions (6 rows); 1 differ by no more than is let pass.",
    ]
    body = json.loads(found.to_json())
    assert body["passed"]
    assert [(p["as_of"], p["tolerated"]) for p in body["partitions"]] == [("noon", ""), ("noon", near.tolerated)]
