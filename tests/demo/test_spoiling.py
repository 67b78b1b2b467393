"""A story's trouble: a day that is corrupted, and one that is restored."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from backfill_assets.demo.orders import FILE_NAME, file_of, write_orders
from backfill_assets.demo.spoiling import corrupt_day, restore_day
from backfill_assets.errors import ConfigurationError
from tests.demo.shop import MONDAY, digest_of


@pytest.fixture
def one_day(tmp_path):
    write_orders(tmp_path, first_day=MONDAY, days=2, orders_per_day=50, seed=3)
    return tmp_path


def test_a_corrupt_day_differs_though_its_rows_count_the_same(one_day):
    """One amount, one order gone, one twice; the description names all three."""
    before = pq.read_table(file_of(one_day, MONDAY), partitioning=None).to_pylist()
    told = corrupt_day(one_day, MONDAY)
    after = pq.read_table(file_of(one_day, MONDAY), partitioning=None).to_pylist()

    gone = {row["order_id"] for row in before} - {row["order_id"] for row in after}
    twice = [number for number, n in Counter(row["order_id"] for row in after).items() if n == 2]
    old = {row["order_id"]: row for row in before}
    changed = [row["order_id"] for row in after if row != old[row["order_id"]]]
    assert len(before) == len(after)
    assert (len(gone), len(twice), len(changed)) == (1, 1, 1)
    assert after[0]["amount"] == before[0]["amount"] + Decimal("0.01")
    assert all(str(number) in told for number in (*gone, *twice, *changed))
    assert told.startswith("2024-02-26: ")


@pytest.mark.parametrize("times", [1, 2])
def test_a_restored_day_is_the_file_it_was(one_day, times):
    """Bytes and modification time come back however often the day was corrupted, and nothing stays beside the file."""
    file = file_of(one_day, MONDAY)
    before, modified = file.read_bytes(), file.stat().st_mtime_ns
    for _ in range(times):
        spoiled = file.read_bytes()
        corrupt_day(one_day, MONDAY)
        assert file.read_bytes() != spoiled
    assert restore_day(one_day, MONDAY)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (before, modified)
    assert list(file.parent.iterdir()) == [file]


def test_what_is_kept_beside_a_corrupt_day_is_hidden_from_spark(one_day):
    """Spark lists no name that starts with a dot, so the kept file is never read as orders."""
    corrupt_day(one_day, MONDAY)
    others = [f.name for f in file_of(one_day, MONDAY).parent.iterdir() if f.name != FILE_NAME]
    assert others
    assert all(name.startswith(".") for name in others)


def test_restoring_a_sound_day_does_nothing(one_day):
    """There is nothing to put back, and the answer says so."""
    before = digest_of(one_day)
    assert not restore_day(one_day, MONDAY)
    assert digest_of(one_day) == before


def test_a_day_without_a_file_cannot_be_corrupted(one_day):
    """The message names the file that is not there."""
    with pytest.raises(
        ConfigurationError, match=r"2031/01/01/orders\.parquet` is not there\. Nothing was written\. Choose a day "
    ):
        corrupt_day(one_day, date(2031, 1, 1))


def test_a_day_with_two_orders_cannot_be_corrupted(tmp_path):
    """Three different rows are needed; the file stays as it was."""
    write_orders(tmp_path, first_day=MONDAY, days=1, orders_per_day=2, seed=1)
    before = digest_of(tmp_path)
    with pytest.raises(ConfigurationError, match="Choose a day with three orders or more"):
        corrupt_day(tmp_path, MONDAY)
    assert digest_of(tmp_path) == before
