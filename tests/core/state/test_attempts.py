"""What launches did not publish."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backfill_assets.core.state.attempts import Attempt, refusals
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition, Run
from tests.support.fakes import receipt_of

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
DAY, NEXT = "2024-01-01", "2024-01-02"


def refused(minutes: int, **whys: str) -> Attempt:
    at = (NOON + timedelta(minutes=minutes)).isoformat()
    partitions = {key.strip("_").replace("_", "-"): whys[key] for key in whys}
    return Attempt(at, "refused", 1, Run("run"), partitions=partitions)


def published(minutes: int) -> dict[str, PublishedPartition]:
    """A day that was published so many minutes after noon."""
    part = PartitionReceipt(1, "", None, None, "")
    receipt = receipt_of({DAY: part}, made_at=(NOON + timedelta(minutes=minutes)).isoformat())
    return {DAY: PublishedPartition(1, receipt, part)}


def test_newest_refusal_is_named():
    """Of each partition, with when it was."""
    attempts = [refused(0, _2024_01_01="a: old.", _2024_01_02="b: bad."), refused(10, _2024_01_01="a: new.")]
    assert refusals(attempts, {}) == {
        DAY: f"refused on {NOON:%Y-%m-%d} at 12:10 UTC: a: new",
        NEXT: f"refused on {NOON:%Y-%m-%d} at 12:00 UTC: b: bad",
    }


def test_publish_ends_a_refusal():
    """A refusal after the newest publish counts, whatever was published before."""
    attempts = [refused(5, _2024_01_01="a: bad.")]
    assert refusals(attempts, published(6)) == {}
    assert list(refusals(attempts, published(4))) == [DAY]
