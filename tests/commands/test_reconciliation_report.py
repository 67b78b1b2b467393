"""What commands print of what was compared, and of rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from backfill_assets.commands.preview import PreviewReport
from backfill_assets.commands.reconciliation_report import PartitionReport, Reconciliation
from backfill_assets.commands.row_report import RowReport
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.preview import Preview
from backfill_assets.core.history.row_difference import RowDifference
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.core.state.partition_status import outside_in_words
from backfill_assets.core.state.tallies import Tally
from backfill_assets.live.writer import BatchReport
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_run import TableRun
from tests.support.fakes import ORDERS


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


ODD = "\x1b[2J\nx"


@pytest.mark.parametrize(
    "report",
    [
        RowReport(
            "t", ["id"], ["id", "note"], [RowDifference("2024", "extra", None, {"id": ODD, "note": ODD}, (), 0, 1)], 1
        ),
        PreviewReport(
            "t",
            [("note", "string")],
            Preview(Verdict(ORDERS.grid.partition("2024-01-01")), Tally(1), 1, 0, 0, 0, False, [[ODD]], ()),
        ),
    ],
    ids=["explain", "preview"],
)
def test_a_cell_is_written_out(report):
    """A value with characters that a terminal obeys is shown with these written out, each row in its own lines."""
    out = StringIO()
    report.show(Console(file=out, width=200))
    assert "\x1b" not in out.getvalue()
    assert r"\x1b[2J\nx" in out.getvalue()


def of_a_launch() -> str:
    said: list[str] = []
    log = SimpleNamespace(info=said.append)
    TableRun(SimpleNamespace(log=log), Table(ORDERS), {}, Lakehouse()).log(f"{ODD} is left out")
    return said[0]


def of_a_batch() -> str:
    receipt = LiveReceipt("r", ORDERS.key, "a1", 1, 1, "2024-01-03T00:00:00+00:00", rows=10)
    return str(BatchReport(receipt, 1.5, 0.5, datetime.now(UTC), {ODD: 3}))


@pytest.mark.parametrize("say", [of_a_launch, of_a_batch, lambda: outside_in_words("t", {ODD: 3})])
def test_a_sentence_that_quotes_data_is_written_out(say):
    """A line of a log names files, fields and values as others have written them."""
    assert r"\x1b[2J" in say()
