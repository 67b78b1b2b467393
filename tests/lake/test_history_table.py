"""The history of a table: filled from its log, kept when the log is cleaned, and never believed of another table."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import deltalake
import pytest

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.state.attempts import Attempt
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition, Receipt, Run, newest_by_partition
from backfill_assets.core.state.version_steps import VersionStep
from backfill_assets.errors import CommitConflictError, ReceiptError
from backfill_assets.lake import history_table
from backfill_assets.lake.history_table import HistoryTable
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark.failures import translated
from tests.support.shop import frame_of, opened, receipt_for, rows_in

DAY, NEXT, LAST = "2024-01-01", "2024-01-02", "2024-01-03"


def publish(table: LakeTable, receipt_id: str, *keys: str, **facts: Any) -> Receipt:
    """An overwrite with no rows: receipts are what matters here."""
    named = [table.spec.grid.partition(key) for key in keys]
    staged = StagedChunk(frame_of(table.spark, table.spec, []), {}, {}, None, lambda: None)
    partitions = {p.key: PartitionReceipt(1, "00ff", 1, 1_704_067_200_000_001, f"of {p.key}", 2) for p in named}
    told = {"reason": "ein Grund: ü", "source": {"kind": "files", "files": 3}, **facts}
    receipt = receipt_for(table, named, receipt_id, partitions=partitions, **told)
    table.overwrite(staged, named, receipt)
    return receipt


def told_by(table: LakeTable) -> list[tuple[str, int, str | None]]:
    """What its rows tell: of what kind, version and partition each is."""
    if not Path(table.history.path).exists():
        return []
    return sorted((row["what"], row["version"], row["partition"]) for row in rows_in(table.history.path))


def clean(table: LakeTable, *versions: int) -> None:
    """Let the log forget commits, as Delta does after thirty days."""
    deltalake.DeltaTable(table.path).create_checkpoint()
    for version in versions:
        (Path(table.path) / "_delta_log" / f"{version:020d}.json").unlink()


def test_history_is_filled_caught_up_and_made_again(table: LakeTable):
    """It lags, is caught up, can be deleted and is filled again; what is published does not depend on it; delta-rs reads it."""
    first = publish(table, "first", DAY, NEXT)
    assert table.history.fill() == 1
    assert table.history.fill() == 0
    second = publish(table, "second", NEXT)

    published = table.published()  # the history lags here
    assert {key: (p.version, p.receipt.receipt_id) for key, p in published.items()} == {
        DAY: (1, "first"),
        NEXT: (2, "second"),
    }
    assert table.history.receipts() == {1: first, 2: second} == table.history.in_log()
    assert table.history.in_log(newest=1) == {2: second}
    assert table.history.fill() == 1
    assert table.history.receipts() == {1: first, 2: second}

    of_partitions = [("publish", 1, DAY), ("publish", 1, NEXT), ("publish", 2, NEXT)]
    assert told_by(table) == [("commit", 0, None), ("commit", 1, None), ("commit", 2, None), *of_partitions]
    assert {row["last_event_time"] for row in rows_in(table.history.path) if row["partition"]} == {
        datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    }
    assert opened(table.history.path).protocol().min_reader_version == 1

    clean(table, 0, 1)
    assert table.history.receipts() == {1: first, 2: second}
    assert {key: p.partition for key, p in table.published().items()} == {
        key: p.partition for key, p in published.items()
    }
    assert [one.version for one in table.history.operations()] == [0, 1, 2]
    shutil.rmtree(table.history.path)
    assert table.published().keys() == {NEXT}
    assert table.history.fill() == 1
    assert table.history.receipts() == {2: second}


def test_attempts_and_steps_are_told_too(table: LakeTable):
    """Beside a launch's commits in one row each; steps of a version also if the table itself is gone."""
    refused = Attempt(
        "2024-02-01T00:00:00+00:00", "refused", 1, Run("run", "root", by="ada"), partitions={DAY: "it is bad"}
    )
    failed = replace(refused, outcome="failed", why="no disk", partitions={})
    publish(table, "first", NEXT)
    assert table.history.fill([refused, failed]) == 1
    assert table.history.attempts() == [failed, refused]
    assert opened(table.history.path).version() == 0, "all of it in one commit"

    step = VersionStep("2024-02-02T00:00:00+00:00", "made", "bronze/orders__v2", before="bronze/orders", rows=3)
    table.history.add_steps([step])
    shutil.rmtree(table.path)
    table.create()
    assert (table.history.steps(), table.history.attempts()) == ([step], [])


@pytest.mark.prove
def test_a_table_that_is_made_again_does_not_believe_old_receipts(table: LakeTable):
    """The history of a table that was deleted outlives it; nothing in it counts as published in the new one."""
    publish(table, "first", DAY)
    publish(table, "second", DAY, NEXT)
    table.history.fill()
    shutil.rmtree(table.path)
    table.create()
    assert table.published() == {}
    third = publish(table, "third", NEXT)
    assert table.history.fill() == 1
    assert table.history.receipts() == {1: third}


def test_a_table_that_was_put_back_believes_what_its_log_agrees_with(table: LakeTable, tmp_path: Path):
    """Of a table that is put back from a copy of its folder, what was published after that copy is not; its history goes on."""
    first = publish(table, "first", DAY)
    shutil.copytree(table.path, tmp_path / "kept")
    publish(table, "lost", DAY, NEXT)
    publish(table, "lost too", NEXT)
    table.history.fill()
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "kept", table.path)
    assert table.history.receipts() == {1: first}
    assert table.published().keys() == {DAY}

    again = publish(table, "again", DAY)
    assert table.history.receipts() == {1: first, 2: again}
    table.history.fill()
    assert table.history.receipts() == {1: first, 2: again}
    third = publish(table, "third", NEXT)
    assert table.history.fill() == 1
    clean(table, 0, 1, 2)
    assert [receipt.receipt_id for receipt in table.history.receipts().values()] == ["first", "again", "third"]
    assert table.published()[NEXT].receipt == third


@pytest.mark.prove
def test_a_clone_does_not_believe_the_receipts_of_its_original(spark: Any, table: LakeTable, tmp_path: Path):
    """A clone has a log of its own: what it is launched with counts, however many commits the original had."""
    publish(table, "first", DAY)
    publish(table, "second", DAY, NEXT)
    table.history.fill()
    clone = LakeTable(spark, table.spec, f"{tmp_path}/clone")
    spark.sql(f"CREATE TABLE delta.`{clone.path}` SHALLOW CLONE delta.`{table.path}`")
    shutil.copytree(table.history.path, clone.history.path)
    assert clone.published() == {}
    own = publish(clone, "own", DAY)
    assert clone.published()[DAY].receipt == own
    clone.history.fill()
    assert list(clone.history.receipts().values()) == [own]
    assert table.published().keys() == {DAY, NEXT}


@pytest.mark.prove
def test_a_receipt_that_was_not_copied_is_found_behind_any_number_of_commits(spark: Any, table: LakeTable):
    """A stream commits many batches after a launch was killed: its receipt is still looked at, until it is copied."""
    killed = publish(table, "killed", DAY)
    for number in range(3):
        spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('other' = '{number}')")
    assert table.history.in_log(newest=2) == {1: killed}
    table.history.fill()
    assert table.history.in_log(newest=2) == {}


@pytest.mark.prove
def test_the_newest_receipts_are_those_of_all(table: LakeTable):
    """Whatever was published and put back, in whatever order, wherever the history was filled, and as of any version."""
    dice, commits = random.Random(1), 9
    filled = {0, dice.randrange(commits), dice.randrange(commits)}
    for number in range(commits):
        keys = dice.sample((DAY, NEXT, LAST), dice.randrange(1, 4))
        is_undo = number > 1 and dice.random() < 0.4
        undo = {"kind": "put_back", "source": {"version": dice.randrange(number + 1)}} if is_undo else {}
        publish(table, f"receipt {number}", *sorted(keys), **undo)
        if number in filled:
            table.history.fill()

    def told(published: dict[str, PublishedPartition]) -> dict[str, Any]:
        """What is said of each partition, without what its receipt says of others."""
        return {
            key: (one.version, one.receipt.receipt_id, one.partition, one.restored and one.restored.version)
            for key, one in published.items()
        }

    every = table.table_log.receipts()
    assert table.history.receipts() == every
    for until in (None, *range(commits + 1)):
        as_of = {version: one for version, one in every.items() if until is None or version <= until}
        assert told(table.published(until=until)) == told(newest_by_partition(as_of)), until


@pytest.mark.prove
def test_history_that_falls_behind_is_filled(table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """After a day, or so many commits, and not before; a failure is said and ends nothing."""
    monkeypatch.setattr(history_table, "FILLED_EACH", 3)
    said, now = list[str](), datetime.now(UTC)

    def filled_to() -> int:
        table.history.fill_if_due(now, said.append)
        return max((version for _, version, _ in told_by(table)), default=-1)

    publish(table, "first", DAY)
    assert filled_to() == -1
    publish(table, "second", DAY)
    assert filled_to() == 2
    publish(table, "third", DAY)
    assert filled_to() == 2
    (newest,) = Path(table.history.path, "_delta_log").glob("*.json")
    os.utime(newest, (time.time() - 90_000,) * 2)
    assert filled_to() == 3
    assert said == []
    newest.write_text(newest.read_text()[:-20])
    for number in range(3):
        publish(table, f"more {number}", DAY)
    table.history.fill_if_due(now, said.append)
    assert "could not be copied" in said[0]


def test_what_another_table_was_is_not_told_of_this_one(spark: Any, table: LakeTable):
    """Also of a table that somebody else made, which has no property of ours: Delta gives each its own id."""
    publish(table, "first", DAY)
    refused = Attempt("2024-02-01T00:00:00+00:00", "refused", 1, Run("run", "root"), partitions={DAY: "it is bad"})
    table.history.fill([refused])
    shutil.rmtree(table.path)
    table.create()
    publish(table, "second", NEXT)
    clean(table, 0)
    assert (table.published().keys(), table.history.attempts()) == ({NEXT}, [])


def test_the_last_commit_that_both_have_is_where_the_history_parts(table: LakeTable, tmp_path: Path):
    """Of a table that was put back, what is older than that is kept, also when its log has forgotten the beginning."""
    first = publish(table, "first", DAY)
    second = publish(table, "second", NEXT)
    shutil.copytree(table.path, tmp_path / "kept")
    publish(table, "lost", DAY)
    table.history.fill()
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "kept", table.path)
    for number in range(2):
        table.spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('other' = '{number}')")
    clean(table, 0, 1)
    assert {key: one.receipt.receipt_id for key, one in table.published().items()} == {DAY: "first", NEXT: "second"}
    assert table.history.receipts() == {1: first, 2: second}
    table.history.fill()
    assert table.history.receipts() == {1: first, 2: second}


@contextmanager
def without_a_lock(_: str, table: str, **__: object) -> Iterator[None]:
    """As commits are saved on object stores."""
    with translated(table):
        yield


@pytest.mark.prove
def test_of_two_who_fill_at_once_one_does(spark: Any, table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """Both have found what it lacks before either has saved: the other's save is a conflict, or makes no commit."""
    monkeypatch.setattr(history_table, "saving", without_a_lock)
    publish(table, "first", DAY)
    table.history.fill()
    publish(table, "second", DAY, NEXT)
    both, frame = Barrier(2, timeout=60), history_table.frame_of

    def framed_together(*of: Any) -> Any:
        both.wait()
        return frame(*of)

    def fill() -> None:
        with suppress(CommitConflictError):
            HistoryTable(spark, table.spec.key, table.table_log).fill()

    monkeypatch.setattr(history_table, "frame_of", framed_together)
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(fill), pool.submit(fill)]:
            done.result()
    assert set(Counter(told_by(table)).values()) == {1}


def test_what_comes_beside_an_append_takes_nothing_of_it(table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """Where no lock keeps two writers apart, Delta makes no commit of the second append of a number: it is made again."""
    monkeypatch.setattr(history_table, "saving", without_a_lock)
    publish(table, "first", DAY)
    framed, others = history_table.frame_of, [table.history.fill]

    def overtaken(*of: Any) -> Any:
        while others:
            others.pop()()
        return framed(*of)

    monkeypatch.setattr(history_table, "frame_of", overtaken)
    step = VersionStep("2024-02-02T00:00:00+00:00", "cut over", "bronze/orders__v2", before="bronze/orders", rows=3)
    table.history.add_steps([step])
    assert table.history.steps() == [step]
    assert len([row for row in told_by(table) if row[0] == "commit"]) == 2


def test_what_another_has_filled_meanwhile_is_not_filled_twice(table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """Its append comes after this one has seen what the history lacks, and before it says which one it follows."""
    monkeypatch.setattr(history_table, "saving", without_a_lock)
    publish(table, "first", DAY, NEXT)
    joined, others = history_table.batches_as_one, [table.history.fill]

    def overtaken(operations: Any) -> Any:
        while others:
            others.pop()()
        return joined(operations)

    monkeypatch.setattr(history_table, "batches_as_one", overtaken)
    table.history.fill()
    assert set(Counter(told_by(table)).values()) == {1}
    assert [one.version for one in table.history.operations()] == [0, 1]


@pytest.mark.prove
def test_a_copy_of_the_rows_goes_on(spark: Any, table: LakeTable):
    """A history that was moved to another storage as rows has a log that begins anew; fills are still told apart."""
    receipts = {number: publish(table, f"receipt {number}", DAY) for number in (1, 2)}
    table.history.fill()
    receipts |= {3: publish(table, "receipt 3", DAY)}
    table.history.fill()
    rows = spark.read.format("delta").load(table.history.path).coalesce(1)
    rows.write.format("delta").save(f"{table.history.path}_copied")
    shutil.rmtree(table.history.path)
    Path(f"{table.history.path}_copied").rename(table.history.path)
    for number in (4, 5):
        receipts[number] = publish(table, f"receipt {number}", NEXT)
        table.history.fill()
    clean(table, 0, 1, 2, 3, 4)
    assert table.history.receipts() == receipts


@pytest.mark.prove
def test_history_that_cannot_be_read_is_needed_only_for_what_the_log_forgot(table: LakeTable):
    """While the log has every commit, looks go on without it; nothing is appended to it, and what to do is said."""
    first = publish(table, "first", DAY)
    table.history.fill()
    next(Path(table.history.path).glob("*.parquet")).unlink()
    assert table.published()[DAY].receipt == first
    with pytest.raises(ReceiptError, match=r"its history at .* cannot be read.*move it away"):
        table.history.fill()
    publish(table, "second", NEXT)
    clean(table, 0)
    with pytest.raises(ReceiptError, match="its history at"):
        table.published()
    Path(table.history.path).rename(f"{table.history.path}_aside")
    assert table.history.fill() == 2
    assert table.published().keys() == {DAY, NEXT}
