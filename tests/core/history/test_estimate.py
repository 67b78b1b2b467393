"""How long a launch takes, by what earlier ones took, and what it costs."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.core.history.estimate import PastChunk, Prices, past_chunks, seconds_of, work_of
from backfill_assets.core.state.receipts import PartitionReceipt
from tests.support.docstring_tables import table_of
from tests.support.fakes import receipt_of

BEGAN = datetime(2024, 3, 1, tzinfo=UTC)
DAY = PartitionReceipt(500, "0" * 16, None, None, "f")


@pytest.mark.parametrize("row", table_of(seconds_of), ids=lambda row: "-".join(row.values()))
def test_how_long_chunks_take(row):
    """Every row of the table in `seconds_of` holds."""
    past = [
        PastChunk(0, int(work), int(s)) for s, work in re.findall(r"(\d+) for (\d+)", row["past: seconds for work"])
    ]
    chunks = [int(work) for work in re.findall(r"\d+", row["chunks"])]
    assert seconds_of(chunks, past) == (int(row["least"]), int(row["most"]))


def test_only_chunks_of_about_the_size_count():
    """However many small ones there were, a large one is judged by the large."""
    past = [PastChunk(1, 1_000, 4.0)] * 100 + [
        PastChunk(366, 500_000, seconds) for seconds in (18.0, 20.0, 22.0, 21.0, 19.0)
    ]
    assert seconds_of([work_of(366, 500_000)], past) == (18.0, 22.0)


def test_receipts_tell_how_long_chunks_took():
    """From the first read to the commit; puts back, older formats, and clocks that went back say nothing."""
    made = receipt_of({"2024-02-28": DAY, "2024-02-29": DAY}, began_at=BEGAN.isoformat())
    receipts = {
        1: made,
        2: replace(made, kind="put_back"),
        3: replace(made, began_at=""),
        4: replace(made, began_at=(BEGAN + timedelta(hours=1)).isoformat()),
        5: made,
    }
    committed = {version: BEGAN + timedelta(seconds=12.5) for version in range(1, 5)}
    assert past_chunks(receipts, committed) == [PastChunk(2, 1_000, 12.5)]


def test_what_it_costs_by_estuarys_prices():
    """Half a dollar for each gigabyte, and 14 cents for each hour of the connector."""
    prices = Prices("USD", per_gb=0.50, per_hour=0.14)
    assert prices.cost(100_000_000_000, (3600.0, 7200.0)) == pytest.approx((50.14, 50.28))
