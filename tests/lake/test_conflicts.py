"""Several writers at once, lost answers and lost rows: a table ends in one of the contents, and errors say which."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import backfill_assets.lake.history_writer as writer_module
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.errors import (
    CommitConflictError,
    ExpressionError,
    MemoryExhaustedError,
    StagedContentLostError,
    StorageError,
    UnreadableSourceError,
)
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.spark.failures import CONFLICTS, translate_spark_error
from tests.support.shop import (
    content,
    folder_of,
    frame_of,
    launch,
    multiset,
    orders,
    orders_spec,
    published_keys,
    receipt_for,
    rows_in,
    write_parquet,
)

SPEC = orders_spec()
DAY, NEXT = "2024-01-01", "2024-01-02"


def named(*keys: str) -> list[Partition]:
    return [SPEC.grid.partition(key) for key in keys]


def source_of(table: LakeTable, root: Path) -> FilesSource:
    assert isinstance(SPEC.source, FilesSpec)
    return FilesSource(table.spark, SPEC, SPEC.source, str(root))


def staged_of(table: LakeTable, rows: list[dict[str, Any]]) -> StagedChunk[Any]:
    return StagedChunk(frame_of(table.spark, SPEC, rows), {}, {}, None, lambda: None)


# -- conflicts that Delta reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        ConcurrentAppendException, ConcurrentDeleteDeleteException, ConcurrentDeleteReadException, ConcurrentTransactionException,
        ConcurrentWriteException, DeltaConcurrentModificationException, MetadataChangedException, ProtocolChangedException,
    ],
)  # fmt: skip
def test_every_conflict_is_translated(kind):
    """Each of Delta's conflicts becomes an error that a retry helps, and keeps its name."""
    ours = translate_spark_error(kind("files were added"), "bronze/orders")

    assert isinstance(ours, CommitConflictError)
    assert ours.retry_helps
    assert ours.facts["conflict"] == kind.__name__
    assert str(ours).startswith("`bronze/orders`: another writer ")
    assert set(CONFLICTS) >= {kind}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", MemoryExhaustedError),
        ("[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory", MemoryExhaustedError),
        (
            "Job aborted.\n[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/a.parquet.",
            UnreadableSourceError,
        ),
        (
            "x.SparkException: y\norg.postgresql.util.PSQLException: ERROR: invalid byte sequence: 0xe9",
            UnreadableSourceError,
        ),
        ("Caused by: org.postgresql.util.PSQLException: Bad value for type long : x", UnreadableSourceError),
        ('[DIVIDE_BY_ZERO] Division by zero. If necessary set "spark.sql.ansi.enabled" to "false".', ExpressionError),
        ("Job aborted.\n(x.ArithmeticException) [INVALID_ARRAY_INDEX] The index 3 is out of bounds.", ExpressionError),
        (": x.SparkException: Task failed: java.io.IOException: No space left on device\n\tat y", StorageError),
        ("Caused by: java.io.FileNotFoundException: /t/part-0.parquet (Permission denied)", StorageError),
        ("java.io.IOException: Mkdirs failed to create file:/t/_delta_log (exists=false)", StorageError),
        (": x.SparkException: Block rdd_143_0 was not found even though it's read-locked", StorageError),
    ],
)
def test_other_failures_are_translated(words, kind):
    """Memory that ran out, files that cannot be read and disks that are full have errors of their own."""
    ours = translate_spark_error(PySparkException(words), "bronze/orders")

    assert type(ours) is kind
    assert "ansi" not in str(ours)
    assert "Exception" not in str(ours)
    assert kind is not StorageError or re.search("asked of it: (No space|/t/part-0|Mkdirs failed|Block rdd)", str(ours))
    assert "FAILED_READ_FILE" not in words or "the file `file:/a.parquet` cannot be read" in str(ours)


def append(table: LakeTable) -> None:
    frame_of(table.spark, SPEC, orders(DAY, 1, order_id=1)).write.format("delta").mode("append").save(table.path)


def replace_day(table: LakeTable) -> None:
    writer = frame_of(table.spark, SPEC, orders(DAY, 1, order_id=2)).write.format("delta").mode("overwrite")
    writer.option("replaceWhere", f"dt = DATE'{DAY}'").save(table.path)


def alter(table: LakeTable) -> None:
    table.spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('somebody' = 'else')")


@pytest.fixture
def slow_frame(spark: SparkSession, tmp_path: Path) -> tuple[Callable[[list[dict[str, Any]]], Any], Path, Path]:
    """A frame whose tasks wait for a file, so that the save is surely under way while another writer commits."""
    started, go = tmp_path / "started", tmp_path / "go"

    def make(rows: list[dict[str, Any]]) -> Any:
        here, there = str(started), str(go)

        def wait(value: str) -> str:
            Path(here).touch()
            deadline = time.monotonic() + 60
            while not Path(there).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            return value

        return (
            frame_of(spark, SPEC, rows)
            .coalesce(1)
            .withColumn("customer", F.udf(wait, "string", useArrow=False)("customer"))
        )

    return make, started, go


@pytest.mark.parametrize(
    ("other", "conflict"),
    [
        (append, {"ConcurrentAppendException"}),
        pytest.param(
            replace_day,
            {"ConcurrentAppendException", "ConcurrentDeleteReadException", "ConcurrentDeleteDeleteException"},
            marks=pytest.mark.prove,
        ),
        pytest.param(alter, {"MetadataChangedException"}, marks=pytest.mark.prove),
    ],
    ids=["append", "overwrite", "alter"],
)
def test_a_writer_that_does_not_know_our_lock(table, slow_frame, other, conflict):
    """An append, an overwrite or an ALTER by somebody else during the save: a conflict, and the table holds what they wrote."""
    make, started, go = slow_frame
    table.overwrite(staged_of(table, orders(DAY, 2)), named(DAY), receipt_for(table, named(DAY), "before"))
    frame = make(orders(DAY, 5))
    receipt = receipt_for(table, named(DAY), "ours")

    def interfere() -> None:
        deadline = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            other(table)
        finally:
            go.touch()

    thread = threading.Thread(target=interfere)
    thread.start()
    with pytest.raises(CommitConflictError) as caught:
        table.overwrite(StagedChunk(frame, {}, {}, None, lambda: None), named(DAY), receipt)
    thread.join()

    assert caught.value.facts["conflict"] in conflict
    assert table.version() == 2
    ids = {row["order_id"] for row in rows_in(table.path)}
    kept = {row["order_id"] for row in orders(DAY, 2)}
    assert ids == {append: {1, *kept}, replace_day: {2}, alter: kept}[other]


# -- answers and rows that are lost ------------------------------------------------------------------------------------


@pytest.mark.prove
def test_a_commit_whose_answer_was_lost_is_found(table, tmp_path, monkeypatch):
    """The save succeeds and then reports a conflict with itself: the commit is found by its receipt, and not made again."""
    write_parquet(folder_of(tmp_path / "in", DAY), orders(DAY))
    table.by_public_api = True
    original = writer_module.overwrite

    def lose_the_answer(*arguments: Any, receipt: Any) -> Any:
        original(*arguments, receipt=receipt)
        raise ConcurrentAppendException("files were added")

    monkeypatch.setattr(writer_module, "overwrite", lose_the_answer)
    said: list[str] = []
    table.log = said.append
    outcomes = launch(table, source_of(table, tmp_path / "in"), named(DAY))

    (published,) = [outcome for outcome in outcomes if isinstance(outcome, Published)]
    assert (published.commit.version, published.commit.rows, published.commit.written) == (1, {DAY: 3}, None)
    assert table.version() == 1
    assert content(table.path) == multiset(orders(DAY))
    assert said == ["Spark reported a failure, but version 1 was committed."]


def test_a_write_that_loses_a_row_is_put_back(table, tmp_path, monkeypatch):
    """If fewer rows arrive than were audited, the content from before is put back and the launch fails saying so."""
    before = [*orders(DAY, 2), *orders(NEXT, 2)]
    table.overwrite(staged_of(table, before), named(DAY, NEXT), receipt_for(table, named(DAY, NEXT), "before"))
    write_parquet(folder_of(tmp_path / "in", DAY), orders(DAY, 4))
    table.by_public_api = True  # Delta's own transaction commits the very files that were audited
    original, lost = writer_module.overwrite, []

    def lose_a_row(spark: Any, spec: Any, path: Any, rows: Any, partitions: Any, *, receipt: Any) -> Any:
        if not lost:
            lost.append(True)
            rows = rows.where("customer <> 'customer 3'")
        return original(spark, spec, path, rows, partitions, receipt=receipt)

    monkeypatch.setattr(writer_module, "overwrite", lose_a_row)
    with pytest.raises(
        StagedContentLostError, match="version 2 does not hold what was audited in 1 partitions.*put back as version 3"
    ):
        launch(table, source_of(table, tmp_path / "in"), named(DAY))

    assert content(table.path) == multiset(before)
    newest = table.published()[DAY]
    assert (newest.version, newest.receipt.kind, newest.partition.rows) == (3, "put_back", 2)
    assert newest.partition.matches(table.tally(named(DAY))[DAY])
    assert published_keys(launch(table, source_of(table, tmp_path / "in"), named(DAY))) == [DAY]
    assert content(table.path) == multiset([*orders(DAY, 4), *orders(NEXT, 2)])


def test_a_chunk_that_another_launch_overtook_is_read_again(table, tmp_path, monkeypatch):
    """A stages, the source is fixed, B stages and publishes, A goes on: the end is the fixed content, which A read again."""
    write_parquet(folder_of(tmp_path / "in", DAY), orders(DAY, customer="old"))
    stage, turns = LakeTable.stage, []

    def stage_then_let_another_publish(self: LakeTable, *scan: Any, **known: Any) -> Any:
        staged = stage(self, *scan, **known)
        if not turns:
            turns.append("B")
            write_parquet(folder_of(tmp_path / "in", DAY), orders(DAY, customer="fixed"))
            launch(table, source_of(table, tmp_path / "in"), named(DAY), run_id="B")
        return staged

    monkeypatch.setattr(LakeTable, "stage", stage_then_let_another_publish)
    # A looks at its source before it saves; this is about the table alone, so that look is taken away
    monkeypatch.setattr("backfill_assets.core.history.publish.refuse_changed_source", lambda *_: None)
    said: list[str] = []
    outcomes = launch(table, source_of(table, tmp_path / "in"), named(DAY), run_id="A", log=said.append)

    assert published_keys(outcomes) == [DAY]
    assert content(table.path) == multiset(orders(DAY, customer="fixed"))
    assert "wrote partitions of this chunk after it was staged" in said[0]
    assert [receipt.run.id for _, receipt in sorted(table.history.in_log().items())] == ["B", "A"]
