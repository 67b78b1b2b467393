"""A log on this disk is read by this process: it says what Spark says of it, and is not asked where it cannot know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.errors import ReceiptError
from backfill_assets.lake import local_log, properties
from backfill_assets.lake.delta_log import newest_version, read_commits, receipts_after, user_metadata
from backfill_assets.lake.properties import read_detail, stored_fence
from backfill_assets.lake.table import LakeTable
from tests.support.shop import frame_of, orders, orders_spec, receipt_for

SPEC = orders_spec()
DAY, NEXT = "2024-01-01", "2024-01-02"


def publish(table: LakeTable, *keys: str) -> None:
    named = [SPEC.grid.partition(key) for key in keys]
    rows = frame_of(table.spark, SPEC, [row for key in keys for row in orders(key, 2)])
    table.overwrite(StagedChunk(rows, {}, {}, None, lambda: None), named, receipt_for(table, named, "-".join(keys)))


def append(table: LakeTable, day: str) -> None:
    frame_of(table.spark, SPEC, orders(day, 1)).write.format("delta").mode("append").save(table.path)


@pytest.fixture
def spark_alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let no log be read by this process any more."""

    def call() -> None:
        for name in ("newest_commit", "user_metadata"):
            monkeypatch.setattr(local_log, name, lambda *_: None)
        monkeypatch.setattr(local_log, "lines_of", lambda _, __, versions: ((version, None) for version in versions))
        for module, name in (
            (local_log, "was_never_made"),
            (properties, "was_never_made"),
            (properties, "newest_metadata"),
        ):
            monkeypatch.setattr(module, name, lambda *_: False)
        monkeypatch.setattr(local_log, "is_whole", lambda *_: False)

    return call


def rewritten(table: LakeTable, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of a commit, as another writer might have written them."""
    file = Path(table.path) / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        change(action)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    file.with_name(f".{file.name}.crc").unlink()


@pytest.mark.prove
def test_both_readers_say_the_same(table: LakeTable, spark_alone: Callable[[], None]):
    """Publishes, foreign rows, joined files, a NULL, a file without statistics, and a removed one of which no partition is known."""
    publish(table, DAY, NEXT)
    append(table, NEXT)
    deltalake.DeltaTable(table.path).optimize.compact()
    publish(table, NEXT)
    rewritten(table, 2, lambda action: action.get("add", {}).pop("stats", None))
    rewritten(table, 4, lambda action: action.get("remove", {}).pop("partitionValues", None))
    nowhere = {"path": "x", "partitionValues": {"dt": None}, "size": 3, "dataChange": True, "modificationTime": 0}
    (Path(table.path) / "_delta_log" / f"{5:020d}.json").write_text(json.dumps({"add": nowhere}))

    def seen() -> list[Any]:
        return [
            newest_version(table.spark, table.path),
            read_commits(table.spark, table.path, [5, 1, 2, 3, 4], "dt"),
            user_metadata(table.spark, table.path, -1),
            receipts_after(table.spark, table.path, -1),
            table.receipts.all(),
            read_detail(table.spark, table.path),
            stored_fence(table.spark, SPEC, table.path),
        ]

    here = seen()
    assert [(c.version, sorted(c.touched, key=str), c.touched_anything) for c in here[1]] == [
        (1, [DAY, NEXT], False),
        (2, [NEXT], False),
        (3, [], False),
        (4, [NEXT], True),
        (5, [None], False),
    ]
    assert [c.rows for c in here[1][:2]] == [{DAY: 2, NEXT: 2}, {NEXT: 0}]
    spark_alone()
    assert seen() == here


@pytest.mark.prove
def test_a_damaged_commit_is_said_in_words(table: LakeTable):
    """Which file, what the state is, and that it is not to be deleted; a copy of receipts that is damaged can go."""
    publish(table, DAY)
    file = Path(table.path) / "_delta_log" / f"{1:020d}.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    for look in (
        table.published,
        lambda: read_commits(table.spark, table.path, [1], "dt"),
    ):
        with pytest.raises(ReceiptError, match=f"The commit `{file}` cannot be read") as caught:
            look()
        assert "Do not delete it" in caught.value.remedy


@pytest.mark.prove
def test_whose_columns_are_mapped_is_written_as_a_whole(table: LakeTable):
    """Where the log names partitions otherwise than the table, a foreign write may have been of any partition."""
    publish(table, DAY, NEXT)
    append(table, NEXT)

    def mapped(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["partitionValues"] = {"col-1": action["add"]["partitionValues"]["dt"]}

    rewritten(table, 2, mapped)
    (commit,) = read_commits(table.spark, table.path, [2], "dt")
    assert commit.touched_anything
    assert commit.wrote(SPEC.grid.partition(DAY))


@pytest.mark.prove
def test_what_the_log_has_forgotten_may_have_written_any_partition(table: LakeTable):
    """A launch may last longer than the log is kept: it goes on, and looks at what may have been written."""
    publish(table, NEXT)
    publish(table, NEXT)
    publish(table, DAY)
    day, never = [SPEC.grid.partition(DAY)], LakeTable(table.spark, SPEC, f"{table.path}_none")
    assert table.versions_writing(0, 4, day) == [3]
    deltalake.DeltaTable(table.path).create_checkpoint()
    for version in (0, 1):
        (Path(table.path) / "_delta_log" / f"{version:020d}.json").unlink()
    assert table.versions_writing(0, 4, day, forgotten_too=True) == [1, 3]
    assert table.versions_writing(1, 3, day, forgotten_too=True) == []
    assert never.versions_writing(0, 4, day, forgotten_too=True) == []
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):  # what an undo says in words
        table.versions_writing(0, 4, day)


@pytest.mark.prove
def test_foreign_rows_are_looked_for_where_others_wrote(table: LakeTable):
    """While the log shows that all rows are ours, a launch does not look for rows in no partition; else it does, always."""
    assert table.rows_outside_grid(by_log=True) == {}
    publish(table, DAY)
    table.spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('other' = '1')")
    rows = table.read().withColumn("dt", F.date_sub("dt", 365))
    ours = receipt_for(table, [SPEC.grid.partition(DAY)]).to_json()
    rows.write.format("delta").mode("append").option("userMetadata", ours).save(table.path)
    assert table.rows_outside_grid(by_log=True) == {}, "it was written in our name"
    assert table.rows_outside_grid() == {"2023-01-01": 2}
    append(table, DAY)
    assert table.rows_outside_grid(by_log=True) == {"2023-01-01": 2}


@pytest.mark.prove
def test_of_a_log_that_has_forgotten_commits_nothing_is_concluded(table: LakeTable):
    """Foreign rows may be from before the oldest commit that the log still has."""
    rows = frame_of(table.spark, SPEC, orders("2023-01-01", 2))
    rows.write.format("delta").mode("append").save(table.path)
    publish(table, DAY)
    assert local_log.is_whole(table.spark, table.path, 3)
    assert not local_log.is_whole(table.spark, table.path, 2)
    deltalake.DeltaTable(table.path).create_checkpoint()
    for version in (0, 1):
        (Path(table.path) / "_delta_log" / f"{version:020d}.json").unlink()
    assert not local_log.is_whole(table.spark, table.path, 3)
    assert table.rows_outside_grid(by_log=True) == {"2023-01-01": 2}


@pytest.fixture
def elsewhere(spark: Any, table: LakeTable) -> Iterator[None]:
    assert local_log.newest_commit(spark, table.path) == 0
    spark.conf.set("spark.hadoop.fs.defaultFS", "hdfs://name")
    yield
    spark.conf.unset("spark.hadoop.fs.defaultFS")


@pytest.mark.usefixtures("elsewhere")
def test_a_plain_path_may_lie_elsewhere(spark: Any, table: LakeTable, tmp_path: Path):
    """Where Hadoop is told what a plain path means, no table is called absent because this disk has none.

    Nor is the log believed that lies at that path on this disk: of a copy, or of a table from before.
    """
    assert not local_log.was_never_made(spark, f"{tmp_path}/none")
    assert local_log.was_never_made(spark, f"file://{tmp_path}/none")
    for known, path in ((False, table.path), (True, f"file://{table.path}")):
        assert local_log.is_whole(spark, path) is known
        looks = local_log.newest_commit, local_log.commit_times, local_log.newest_metadata
        answers = [look(spark, path) for look in looks] + [local_log.user_metadata(spark, path, 0)]
        answers += [lines for _, lines in local_log.lines_of(spark, path, [0])]
        assert [answer is not None for answer in answers] == [known] * 5
