"""The contract of `LiveLake`: every commit is made once for its transaction, and none in an epoch that was ended."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.live.receipts import CLOSED, LiveReceipt, closes, is_batch
from backfill_assets.core.state.fence import Fence
from tests.contracts.lakes import DAYS, FENCE, LIVE_DAY, multiset, order, orders, publish

STREAM = "a1"
NEXT_DAY = "2024-01-06"


def receipt(number, receipt_id=None, **changes):
    """Return the receipt of one batch of the stream."""
    facts = {"stream": STREAM, "epoch": 1, "batch": number, "fence_utc": FENCE.at_utc.isoformat(), "rows": 1, **changes}
    return LiveReceipt(receipt_id or f"batch {number}", "bronze/orders", **facts)


def append(shop, number, *rows, receipt_id=None, name=f"live:{STREAM}:1"):
    """Append the rows of one batch."""
    return shop.live.append(shop.frame(rows), receipt(number, receipt_id), (name, number))


# -- a table that was never made ---------------------------------------------------------------------------------------


def test_a_table_that_was_never_made_has_no_live_rows(unmade):
    """Its fence is the first one; no receipt is found, no row is counted, and looking makes nothing."""
    assert unmade.live.fence() == FENCE
    assert unmade.live.find(lambda _: True) is None
    assert unmade.live.rows_from(FENCE.at_utc) == 0
    assert unmade.live.used_up_to("live:a1:1") == -1
    assert not unmade.is_anything_there()


# -- appends -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_appended_beside_what_is_there(shop):
    """Its rows are added to those of its partitions, in one commit, and history finds no receipt of its own in it."""
    publish(shop, {DAYS[0]: orders(DAYS[0])})
    assert append(shop, 0, order(50, LIVE_DAY))
    assert append(shop, 1, order(51, LIVE_DAY), order(60, NEXT_DAY))
    assert shop.lake.version() == 3
    assert multiset(shop.rows()) == multiset(
        [*orders(DAYS[0]), order(50, LIVE_DAY), order(51, LIVE_DAY), order(60, NEXT_DAY)]
    )
    assert list(shop.lake.published()) == [DAYS[0]]


def test_a_transaction_is_committed_once(shop):
    """The same number again, or a smaller one, writes nothing; whoever asks is told whether *their* commit is in the log."""
    assert append(shop, 5, order(50, LIVE_DAY))
    assert append(shop, 5, order(50, LIVE_DAY))  # with the same receipt: the answer to it may have been lost
    assert not append(shop, 5, order(50, LIVE_DAY), receipt_id="another attempt")
    assert not append(shop, 3, order(51, LIVE_DAY))
    assert (shop.lake.version(), len(shop.rows())) == (1, 1)
    assert append(shop, 3, order(51, LIVE_DAY), receipt_id="of another epoch", name=f"live:{STREAM}:2")
    assert append(shop, 6, order(52, LIVE_DAY))
    assert (shop.lake.version(), len(shop.rows())) == (3, 3)


def test_a_batch_without_rows_is_a_commit_too(shop):
    """Its receipt is what a replay goes by."""
    assert append(shop, 0)
    assert (shop.lake.version(), shop.rows()) == (1, [])
    assert shop.live.find(is_batch(STREAM, 0)) == receipt(0)


def test_an_epoch_that_was_closed_takes_no_batch(shop):
    """However large its number; closing it again changes nothing, and the next epoch writes."""
    append(shop, 0, order(50, LIVE_DAY))
    closing = receipt(CLOSED, "close", kind="close", rows=0)
    for _ in range(2):
        shop.live.close(closing, (f"live:{STREAM}:1", CLOSED))
    assert shop.lake.version() == 2
    assert not append(shop, 1, order(51, LIVE_DAY))
    assert not append(shop, CLOSED - 1, order(51, LIVE_DAY))
    assert shop.live.find(closes(Fence(FENCE.at_utc, 1, -1, STREAM))) == closing
    assert (shop.lake.version(), len(shop.rows())) == (2, 1)
    assert append(shop, 1, order(51, LIVE_DAY), name=f"live:{STREAM}:2")
    assert len(shop.rows()) == 2


@pytest.mark.prove
def test_what_a_transaction_has_used_up_outlives_its_receipts(shop):
    """The largest number of a batch, with which epoch it was; that the epoch was closed does not hide it."""
    assert append(shop, 3, order(50, LIVE_DAY))
    assert append(shop, 5, order(51, LIVE_DAY))
    publish(shop, {DAYS[0]: orders(DAYS[0])})
    shop.forget_commits()
    assert shop.live.find(is_batch(STREAM, 5)) is None
    assert [shop.live.used_up_to(f"live:{STREAM}:{epoch}") for epoch in (1, 2)] == [5, -1]
    shop.live.close(receipt(CLOSED, "close", kind="close", rows=0), (f"live:{STREAM}:1", CLOSED))
    assert shop.live.used_up_to(f"live:{STREAM}:1") == 5


@pytest.mark.prove
def test_receipts_are_found_the_newest_first(shop):
    """Among those of other batches and of history, from the newest commit back to the first."""
    for number in (0, 1):
        append(shop, number, order(50 + number, LIVE_DAY))
    publish(shop, {DAYS[0]: orders(DAYS[0])})
    seen = []
    assert shop.live.find(lambda found: bool(seen.append(found.batch))) is None
    assert seen[:2] == [1, 0]
    assert shop.live.find(lambda found: found.kind == "batch") == receipt(1)
    assert shop.live.find(is_batch(STREAM, 0)) == receipt(0)
    assert shop.live.find(is_batch("b2", 0)) is None


# -- beside the table --------------------------------------------------------------------------------------------------


def test_late_rows_are_appended_once(shop):
    """A transaction that was committed before does nothing; the table itself gets no version of it."""
    for number, row in ((0, order(1, DAYS[0])), (0, order(1, DAYS[0])), (1, order(2, DAYS[1])), (0, order(1, DAYS[0]))):
        shop.live.append_late(shop.frame([row]), (f"late:{STREAM}", number))
    assert multiset(shop.late_rows()) == multiset([order(1, DAYS[0]), order(2, DAYS[1])])
    shop.live.append_late(shop.frame([order(3, DAYS[0])]), ("late:b2", 0))
    assert len(shop.late_rows()) == 3
    assert (shop.lake.version(), shop.rows()) == (0, [])


@pytest.mark.prove
def test_quarantined_rows_are_appended_once(shop):
    """Likewise, each stream with numbers of its own."""
    for stream, number, line in (("a1", 0, "x"), ("a1", 0, "x"), ("a1", 1, "y"), ("a1", 0, "x"), ("b2", 0, "z")):
        shop.live.append_quarantine(shop.quarantined(line), (f"quarantine:{stream}", number))
    assert shop.quarantine() == ["x", "y", "z"]
    assert (shop.lake.version(), shop.rows()) == (0, [])


# -- the fence ---------------------------------------------------------------------------------------------------------


def test_rows_are_counted_from_the_partition_in_which_an_instant_lies(shop):
    """All of that partition and of those after it."""
    publish(shop, {DAYS[3]: orders(DAYS[3])})
    append(shop, 0, order(50, LIVE_DAY), order(51, LIVE_DAY), order(60, NEXT_DAY))
    counts = [shop.live.rows_from(datetime(2024, 1, day, hour, tzinfo=UTC)) for day, hour in ((4, 0), (5, 12), (7, 0))]
    assert counts == [5, 3, 0]


def test_a_fence_is_stored_instead_of_the_one_that_was_seen(shop):
    """If another is there by now nothing is stored; history and the live side read the same one."""
    first, second = shop.live.fence(), Fence(datetime(2024, 1, 6, tzinfo=UTC), 2, 7, STREAM)
    shop.live.store_fence(second, instead_of=first)
    assert shop.live.fence() == shop.lake.fence() == second
    version = shop.lake.version()
    shop.live.store_fence(Fence(datetime(2024, 1, 7, tzinfo=UTC), 2, 9, "b2"), instead_of=first)
    assert (shop.live.fence(), shop.lake.version()) == (second, version)
    publish(shop, {LIVE_DAY: orders(LIVE_DAY)})
    assert multiset(shop.rows()) == multiset(orders(LIVE_DAY))
