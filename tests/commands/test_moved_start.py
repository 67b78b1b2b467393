"""A table whose `start` was moved forward: what it published before is no part of it, and stops nothing."""

from __future__ import annotations

from backfill_assets.commands.schema import outdated_partitions
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition
from backfill_assets.live.fence_queries import waiting
from backfill_assets.runs.table import Table
from tests.support.fakes import receipt_of, spec_with


def test_a_moved_start_outdates_nothing_before_it():
    """What is to be launched again, and which late rows wait, is told of the partitions from `start` on."""
    spec = spec_with(start="2024-02-01")
    keys = ("2024-01-31", "2024-02-01", "2024-02-02")
    receipt = receipt_of({key: PartitionReceipt(1, "", None, None, "") for key in keys}, code_version="older")
    published = {key: PublishedPartition(1, receipt, receipt.partitions[key]) for key in keys}
    assert [p.key for p in outdated_partitions(Table(spec), published)] == list(keys[1:])
    assert waiting(spec, dict.fromkeys(keys, 2), published) == dict.fromkeys(keys[1:], 2)
