"""Receipts: in the log, copied beside the table, and never believed of another table."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt
from backfill_assets.errors import CommitConflictError, ReceiptError
from backfill_assets.lake import local_log, receipts_table
from backfill_assets.lake.receipts_table import ReceiptsTable
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark.failures import translated
from tests.support.shop import frame_of, opened, receipt_for, rows_in

DAY, NEXT = "2024-01-01", "2024-01-02"


def publish(table: LakeTable, receipt_id: str, *keys: str) -> Receipt:
    """An overwrite with no rows: receipts are what matters here."""
    named = [table.spec.grid.partition(key) for key in keys]
    staged = StagedChunk(frame_of(table.spark, table.spec, []), {}, {}, None, lambda: None)
    partitions = {p.key: PartitionReceipt(1, "00ff", 1, 1_704_067_200_000_000 + 1, f"of {p.key}", 2) for p in named}
    receipt = receipt_for(
        table, named, receipt_id, partitions=partitions, reason="ein Grund: ü", source={"kind": "files", "files": 3}
    )
    table.overwrite(staged, named, receipt)
    return receipt


@pytest.mark.prove
def test_a_table_that_is_made_again_does_not_believe_old_receipts(table):
    """The copy of a table that was deleted outlives it; nothing in it counts as published in the new one."""
    publish(table, "first", DAY)
    publish(table, "second", DAY, NEXT)
    table.receipts.fill()
    shutil.rmtree(table.path)
    table.create()
    assert table.published() == {}
    third = publish(table, "third", NEXT)
    assert table.receipts.fill() == 1
    assert table.receipts.all() == {1: third}


@pytest.mark.prove
def test_a_table_that_was_put_back_believes_what_its_log_agrees_with(table, tmp_path):
    """Of a table that is put back from a copy of its folder, what was published after that copy is not; its copy of the receipts goes on."""
    first = publish(table, "first", DAY)
    shutil.copytree(table.path, tmp_path / "kept")
    publish(table, "lost", DAY, NEXT)
    publish(table, "lost too", NEXT)
    table.receipts.fill()
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "kept", table.path)
    assert table.receipts.all() == {1: first}
    assert table.published().keys() == {DAY}

    again = publish(table, "again", DAY)
    assert table.receipts.all() == {1: first, 2: again}
    assert table.receipts.fill() == 2
    assert table.receipts.all() == {1: first, 2: again}
    third = publish(table, "third", NEXT)
    assert table.receipts.fill() == 1
    assert [receipt.receipt_id for receipt in table.receipts.all().values()] == ["first", "again", "third"]
    assert table.published()[NEXT].receipt == third
    assert {row["receipt_id"] for row in rows_in(table.receipts.path)} == {
        "first",
        "lost",
        "lost too",
        "again",
        "third",
    }


@pytest.mark.prove
def test_a_clone_does_not_believe_the_receipts_of_its_original(spark, table, tmp_path):
    """A clone has a log of its own: what it is launched with counts, however many commits the original had."""
    publish(table, "first", DAY)
    publish(table, "second", DAY, NEXT)
    table.receipts.fill()
    clone = LakeTable(spark, table.spec, f"{tmp_path}/clone")
    for path, to in ((table.path, clone.path), (table.receipts.path, clone.receipts.path)):
        spark.sql(f"CREATE TABLE delta.`{to}` SHALLOW CLONE delta.`{path}`")
    assert clone.published() == {}
    own = publish(clone, "own", DAY)
    assert clone.published()[DAY].receipt == own
    clone.receipts.fill()
    assert list(clone.receipts.all().values()) == [own]
    assert table.published().keys() == {DAY, NEXT}


@pytest.mark.prove
def test_a_receipt_that_was_not_copied_is_found_behind_any_number_of_commits(spark, table):
    """A stream commits many batches after a launch was killed: its receipt is still looked at, until it is copied."""
    killed = publish(table, "killed", DAY)
    for number in range(3):
        spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('other' = '{number}')")
    assert table.receipts.in_log(newest=2) == {1: killed}
    table.receipts.fill()
    assert table.receipts.in_log(newest=2) == {}


def test_receipts_are_copied_caught_up_and_made_again(spark, table):
    """The copy lags, is caught up, can be deleted and is filled again; `published` does not depend on it; delta-rs reads it."""
    first = publish(table, "first", DAY, NEXT)
    assert table.receipts.fill() == 1
    assert table.receipts.fill() == 0
    second = publish(table, "second", NEXT)

    published = table.published()  # the copy lags here
    assert {key: (p.version, p.receipt.receipt_id) for key, p in published.items()} == {
        DAY: (1, "first"),
        NEXT: (2, "second"),
    }
    assert table.receipts.all() == {1: first, 2: second} == table.receipts.in_log()
    assert table.receipts.in_log(newest=1) == {2: second}
    assert table.receipts.fill() == 1
    assert table.receipts.all() == {1: first, 2: second}

    copied = [
        (row["version"], row["partition"], row["receipt_id"], row["superseded_rows"], row["reason"])
        for row in rows_in(table.receipts.path)
    ]
    assert sorted(copied) == [
        (1, DAY, "first", 2, "ein Grund: ü"),
        (1, NEXT, "first", 2, "ein Grund: ü"),
        (2, NEXT, "second", 2, "ein Grund: ü"),
    ]
    assert {row["last_event_time"] for row in rows_in(table.receipts.path)} == {
        datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    }
    assert opened(table.receipts.path).protocol().min_reader_version == 1

    shutil.rmtree(table.receipts.path)
    assert table.published() == published
    assert table.receipts.fill() == 2
    assert sorted({row["receipt_id"] for row in rows_in(table.receipts.path)}) == ["first", "second"]
    assert table.published() == published


@contextmanager
def without_a_lock(_: str, table: str, **__: object) -> Iterator[None]:
    """As commits are saved on object stores."""
    with translated(table):
        yield


def copies_of_each(table: LakeTable) -> Counter[tuple[str, str]]:
    return Counter((row["receipt_id"], row["partition"]) for row in rows_in(table.receipts.path))


@pytest.mark.prove
def test_of_two_who_fill_the_copy_at_once_one_does(spark, table, monkeypatch):
    """Both have found what it lacks before either has saved: the other's save is a conflict, or makes no commit."""
    monkeypatch.setattr(receipts_table, "saving", without_a_lock)
    publish(table, "first", DAY)
    table.receipts.fill()
    publish(table, "second", DAY, NEXT)
    both, frame = Barrier(2, timeout=60), receipts_table.frame_of

    def framed_together(*of):
        both.wait()
        return frame(*of)

    def fill() -> None:
        with suppress(CommitConflictError):
            ReceiptsTable(spark, table.spec.key, table.path).fill()

    monkeypatch.setattr(receipts_table, "frame_of", framed_together)
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(fill), pool.submit(fill)]:
            done.result()
    assert set(copies_of_each(table).values()) == {1}
    assert len(copies_of_each(table)) == 3


@pytest.mark.prove
def test_a_copy_that_somebody_edited_is_held_against_the_log(spark, table, monkeypatch):
    """What the log still has counts, however long it is, and what was deleted from the copy comes back, once."""
    monkeypatch.setattr(local_log, "is_whole", lambda *_: False)
    publish(table, "first", DAY)
    second = publish(table, "second", DAY, NEXT)
    publish(table, "third", NEXT)
    table.receipts.fill()
    before = sorted((row["version"], row["partition"]) for row in rows_in(table.receipts.path))
    spark.sql(
        f"DELETE FROM delta.`{table.receipts.path}` WHERE receipt_id = 'first' OR (version = 2 AND partition = '{DAY}')"
    )

    assert table.published()[DAY].receipt == second
    assert table.receipts.fill() == 2
    assert sorted((row["version"], row["partition"]) for row in rows_in(table.receipts.path)) == before
    assert table.receipts.fill() == 0
    assert table.receipts.all()[2] == second


@pytest.mark.prove
def test_a_copy_whose_files_are_gone_is_filled_again_while_the_log_has_all_of_it(table):
    """What is lost is noticed by the next launch, not when the log has forgotten it; the damaged copy is kept beside it."""
    publish(table, "first", DAY)
    table.receipts.fill()
    publish(table, "second", DAY, NEXT)
    table.receipts.fill()
    copy = Path(table.receipts.path)
    next(copy.glob("*.parquet")).unlink()
    publish(table, "third", NEXT)

    assert table.receipts.fill() == 3
    assert sorted({row["receipt_id"] for row in rows_in(copy)}) == ["first", "second", "third"]
    assert len(list(copy.parent.glob("orders_receipts_damaged_*/_delta_log"))) == 1
    assert table.receipts.fill() == 0


@pytest.mark.prove
def test_a_copy_whose_files_are_gone_is_kept_where_the_log_has_forgotten_some(table):
    """What it still has may be nowhere else: nothing is filled in, and what to do is said."""
    publish(table, "first", DAY)
    table.receipts.fill()
    publish(table, "second", NEXT)
    next(Path(table.receipts.path).glob("*.parquet")).unlink()
    (Path(table.path) / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(ReceiptError, match=r"cannot be read: 1 of its files are gone, first `part-.*move it away"):
        table.receipts.fill()
    assert Path(table.receipts.path).is_dir()
