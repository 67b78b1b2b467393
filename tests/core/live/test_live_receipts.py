"""Receipts of the live side: their form in the log, and what is none."""

from __future__ import annotations

import pytest

from backfill_assets.core.live.receipts import CLOSED, LiveReceipt, live_receipt_from_json
from backfill_assets.errors import ReceiptError
from tests.core.live.world import EVENTS, STREAM

RECEIPT = LiveReceipt(
    *("id", "bronze/orders", STREAM, 2, 7, "2024-02-29T00:00:00+00:00", "2024-03-10T01:00:00+00:00"),
    rows=3,
    late_rows=1,
    landed_utc=("2024-03-09T23:00:00Z", "2024-03-09T23:30:00Z"),
    digest="A1",
)


@pytest.mark.parametrize(
    "receipt", [RECEIPT, LiveReceipt("id", "bronze/orders", "a", 1, CLOSED, "2024-03-01T00:00:00+00:00", kind="close")]
)
def test_a_live_receipt_survives_its_json(receipt):
    """What is stored in a commit is read back the same."""
    assert live_receipt_from_json(receipt.to_json()) == receipt


def test_the_form_of_a_live_receipt_does_not_change():
    """Other versions read it: a change of it needs a new format number."""
    assert RECEIPT.to_json() == (
        '{"backfill_assets_live":1,"receipt_id":"id","table":"bronze/orders","stream":"a1","epoch":2,"batch":7,'
        '"fence_utc":"2024-02-29T00:00:00+00:00","until_utc":"2024-03-10T01:00:00+00:00","kind":"batch","rows":3,"late_rows":1,'
        '"quarantined_rows":0,"landed_utc":["2024-03-09T23:00:00Z","2024-03-09T23:30:00Z"],"digest":"A1"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "backfill_assets_live",
        '["backfill_assets_live"]',
        '{"backfill_assets_live": 1',
        '{"x": 1}',
        '{"backfill_assets_live": 2}',
    ],
)
def test_the_metadata_of_others_is_no_live_receipt(text):
    """A commit without metadata, or with somebody else's, has no receipt, even if our name is in it."""
    assert live_receipt_from_json(text) is None


def test_the_two_kinds_of_receipts_are_not_taken_for_each_other(world):
    """A launch's receipt is no live one, and a batch's none of a launch."""
    world.write(0, *EVENTS)
    world.launch("2024-02-28")
    assert set(world.live.receipts()) == {2}
    assert set(world.lake.receipts()) == {3}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"epoch":2,', "", "missing 1 required positional argument: 'epoch'"),
        ('"epoch":2,', '"epoch":2,"colour":3,', "unexpected keyword argument 'colour'"),
    ],
)
def test_a_live_receipt_that_cannot_be_read_is_an_error(old, new, why):
    """A damaged receipt is never taken for somebody else's metadata."""
    with pytest.raises(ReceiptError) as caught:
        live_receipt_from_json(RECEIPT.to_json().replace(old, new))
    assert why in caught.value.what
