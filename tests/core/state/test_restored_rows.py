"""Whether the rows that an undo put back are those of a publish: then the next launch may replace them."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_assets.core.state.partition_status import Known, partitions_with_foreign_rows, status_of
from backfill_assets.core.state.receipts import PartitionReceipt, newest_by_partition
from tests.core.state.test_partition_status import DAY
from tests.core.state.test_receipts import receipt_of

FIRST, SECOND = PartitionReceipt(3, "aa", None, None, "f"), PartitionReceipt(4, "bb", None, None, "g")


def undone(part: PartitionReceipt, version: int, **more: Any) -> Any:
    return receipt_of({DAY.key: part}, kind="put_back", source={"kind": "version", "version": version}, **more)


@pytest.mark.parametrize(
    ("last", "is_published"),
    [
        (undone(FIRST, 1), True),
        (undone(FIRST, 1, columns="others"), False),
        (undone(PartitionReceipt(5, "cc", None, None, ""), 1), False),
        (undone(PartitionReceipt(3, "cc", None, None, ""), 1), False),
    ],
)
def test_rows_that_were_put_back_may_be_those_of_a_publish(last, is_published):
    """By count and checksum, of the same columns; a live stream may have written into a sealed partition meanwhile."""
    newest = newest_by_partition({1: receipt_of({DAY.key: FIRST}), 2: receipt_of({DAY.key: SECOND}), 3: last})
    assert newest[DAY.key].has_published_rows is is_published
    rows = {DAY.key: newest[DAY.key].partition.rows}
    (status,) = status_of([DAY], Known(published=newest, rows_now=rows))
    assert status.state.value == "restored"
    assert (partitions_with_foreign_rows([DAY], rows, newest, {}) == []) is is_published
