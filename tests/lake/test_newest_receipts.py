"""The newest receipt of each partition, however many there are: what is read of the copy, and that it is what all of them say."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition, newest_by_partition
from backfill_assets.lake import local_log, receipts_table
from backfill_assets.lake.table import LakeTable
from tests.support.shop import frame_of, receipt_for, rows_in

KEYS = ("2024-01-01", "2024-01-02", "2024-01-03")
COMMITS = 9


@pytest.fixture(autouse=True)
def long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of more commits than are read at once, so that the copy is asked."""
    monkeypatch.setattr(local_log, "is_whole", lambda *_: False)


def publish(table: LakeTable, receipt_id: str, *keys: str, **facts: Any) -> None:
    """An overwrite with no rows: receipts are what matters here."""
    named = [table.spec.grid.partition(key) for key in keys]
    staged = StagedChunk(frame_of(table.spark, table.spec, []), {}, {}, None, lambda: None)
    partitions = {key: PartitionReceipt(1, "00ff", None, None, f"{receipt_id} {key}", 0) for key in keys}
    table.overwrite(staged, named, replace(receipt_for(table, named, receipt_id, partitions=partitions), **facts))


def told(published: dict[str, PublishedPartition]) -> dict[str, Any]:
    """What is said of each partition, without what its receipt says of others."""
    return {
        key: (one.version, one.receipt.receipt_id, one.partition, one.restored and one.restored.version)
        for key, one in published.items()
    }


@pytest.mark.prove
def test_the_newest_receipts_are_those_of_all(table: LakeTable):
    """Whatever was published and put back, in whatever order, wherever the copy was filled, and as of any version."""
    dice = random.Random(1)
    filled = {0, dice.randrange(COMMITS), dice.randrange(COMMITS)}
    for number in range(COMMITS):
        keys = dice.sample(KEYS, dice.randrange(1, len(KEYS) + 1))
        is_undo = number > 1 and dice.random() < 0.4
        undo = {"kind": "put_back", "source": {"version": dice.randrange(number + 1)}} if is_undo else {}
        publish(table, f"receipt {number}", *sorted(keys), **undo)
        if number in filled:
            table.receipts.fill()
    every = table.receipts.all()
    for until in (None, *range(COMMITS + 1)):
        as_of = {version: one for version, one in every.items() if until is None or version <= until}
        assert told(table.published(until=until)) == told(newest_by_partition(as_of)), until


@pytest.mark.prove
def test_a_copy_that_falls_behind_is_filled(table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """After so many commits, and not before; a failure is said and ends nothing."""
    monkeypatch.setattr(receipts_table, "FILLED_EACH", 2)
    said: list[str] = []
    publish(table, "first", KEYS[0])
    table.receipts.fill_if_behind(said.append)
    assert rows_of_copy(table) == []
    publish(table, "second", KEYS[0])
    table.receipts.fill_if_behind(said.append)
    assert rows_of_copy(table) == ["first", "second"]
    publish(table, "third", KEYS[0])
    table.receipts.fill_if_behind(said.append)
    assert rows_of_copy(table) == ["first", "second"]
    assert said == []


def rows_of_copy(table: LakeTable) -> list[str]:
    """The receipts in the copy; none if there is no copy."""
    if not Path(table.receipts.path).exists():
        return []
    return sorted(row["receipt_id"] for row in rows_in(table.receipts.path))
