"""What the log of a table says: the same by both readers, whatever the table has been through, and never a wrong state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import functions as F

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.errors import ReceiptError, UnreadableSourceError
from backfill_assets.lake.definition import columns_of, schema_of
from backfill_assets.lake.delta_rs import contents, opened
from backfill_assets.lake.table import LakeTable
from backfill_assets.table.log import TableLog
from backfill_assets.table.readers import SparkReader, log_of, storage_options
from tests.support.shop import frame_of, orders, orders_spec, receipt_for

SPEC = orders_spec()
COLUMNS = {name: column.type for name, column in SPEC.columns.items()}
DAY, NEXT = "2024-01-01", "2024-01-02"


def publish(table: LakeTable, *keys: str) -> None:
    named = [SPEC.grid.partition(key) for key in keys]
    rows = frame_of(table.spark, SPEC, [row for key in keys for row in orders(key, 2)])
    table.overwrite(StagedChunk(rows, {}, {}, None, lambda: None), named, receipt_for(table, named, "-".join(keys)))


def append(table: LakeTable, day: str) -> None:
    frame_of(table.spark, SPEC, orders(day, 1)).write.format("delta").mode("append").save(table.path)


def rewritten(table: LakeTable, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of a commit, as another writer might have written them."""
    file = Path(table.path) / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        change(action)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def by_others(table: LakeTable) -> None:
    """Foreign rows, joined files, and a commit by a writer that says nothing of itself."""
    append(table, NEXT)
    deltalake.DeltaTable(table.path).optimize.compact()
    publish(table, NEXT)
    nowhere = {
        "path": "x",
        "partitionValues": {"dt": "2020-01-01"},
        "size": 3,
        "dataChange": True,
        "modificationTime": 0,
    }
    (Path(table.path) / "_delta_log" / f"{5:020d}.json").write_text(json.dumps({"add": nowhere}))


def with_deletion_vectors(table: LakeTable) -> None:
    table.spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.spark.sql(f"DELETE FROM delta.`{table.path}` WHERE order_id LIKE '%1'")


def with_checkpoints_of_version_two(table: LakeTable) -> None:
    table.spark.sql(
        f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', "
        "'delta.checkpointInterval' = '1')"
    )
    append(table, DAY)


def cleaned(table: LakeTable) -> None:
    append(table, DAY)
    deltalake.DeltaTable(table.path).create_checkpoint()
    for version in (0, 1):
        (Path(table.path) / "_delta_log" / f"{version:020d}.json").unlink()


def restored(table: LakeTable) -> None:
    append(table, DAY)
    table.spark.sql(f"RESTORE TABLE delta.`{table.path}` TO VERSION AS OF 1")


def being_written(table: LakeTable) -> None:
    """What writers leave in a log's folder while they commit, or for good."""
    log = Path(table.path) / "_delta_log"
    (log / f".{2:020d}.json.0a1b.tmp").write_text('{"add"')
    (log / f"_commit_{'0' * 32}.json.tmp").write_text("")
    (log / f"{0:020d}.{1:020d}.compacted.json").write_text((log / f"{0:020d}.json").read_text())


def with_a_null_where_none_may_be(table: LakeTable) -> None:
    """Delta-rs cannot open such a table, so Spark is asked what it is."""
    nowhere = {"path": "x", "partitionValues": {"dt": None}, "size": 3, "dataChange": True, "modificationTime": 0}
    (Path(table.path) / "_delta_log" / f"{2:020d}.json").write_text(json.dumps({"add": nowhere}))


def with_mapped_columns(table: LakeTable) -> None:
    table.spark.sql(
        f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
    )
    append(table, NEXT)


def seen(log: TableLog) -> dict[str, Any]:
    now = log.snapshot()
    assert now is not None
    return {
        "version": log.version(),
        "columns": [(f.name, f.dataType.simpleString(), f.nullable) for f in schema_of(now).fields],
        "partitioned by": list(now.partition_columns),
        "properties": dict(now.properties),
        "files": sorted(file.path for file in now.files()),
        "infos": log.infos(),
        "newest": log.infos(newest=2),
        "commits": log.commits(range(log.version() + 1), "dt"),
        "receipts": log.receipts(),
        "operations": log.operations(1),
        "whole": (log.is_whole(100), log.is_whole(2)),
    }


@pytest.mark.parametrize(
    "harm",
    [
        by_others,
        pytest.param(with_deletion_vectors, marks=pytest.mark.prove),
        pytest.param(with_checkpoints_of_version_two, marks=pytest.mark.prove),
        cleaned,
        pytest.param(restored, marks=pytest.mark.prove),
        being_written,
        pytest.param(with_mapped_columns, marks=pytest.mark.prove),
        with_a_null_where_none_may_be,
    ],
)
def test_both_readers_say_the_same(table: LakeTable, harm: Callable[[LakeTable], None]):
    """delta-rs and Spark, on tables that their writers have left in every form; and what Spark says of the rows."""
    publish(table, DAY, NEXT)
    harm(table)
    said: list[str] = []
    log = log_of(table.spark, table.path, said.append)
    found = seen(log)
    assert found == seen(TableLog(table.path, SparkReader(table.spark, table.path)))
    assert bool(said) == (harm is with_a_null_where_none_may_be)
    if "x" in found["files"]:
        return  # a file that is nowhere
    counts = table.rows_now([SPEC.grid.partition(DAY), SPEC.grid.partition(NEXT)])
    rows = table.read().groupBy("dt").count().collect()
    assert counts == {str(row["dt"]): row["count"] for row in rows}


def test_commits_of_others_are_told_by_partition(table: LakeTable):
    """Joined files change no partition; what names no partition, or another column, may have changed any."""
    publish(table, DAY, NEXT)
    by_others(table)
    rewritten(table, 2, lambda action: action.get("add", {}).pop("stats", None))
    rewritten(table, 4, lambda action: action.get("remove", {}).pop("partitionValues", None))
    rewritten(table, 5, lambda action: action["add"].update(partitionValues={"dt": None}))
    commits = table.table_log.commits([5, 1, 2, 3, 4], "dt")
    assert [(c.version, sorted(c.touched, key=str), c.touched_anything) for c in commits] == [
        (1, [DAY, NEXT], False),
        (2, [NEXT], False),
        (3, [], False),
        (4, [NEXT], True),
        (5, [None], False),
    ]
    assert [c.rows for c in commits[:2]] == [{DAY: 2, NEXT: 2}, {NEXT: 0}]

    def mapped(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["partitionValues"] = {"col-1": action["add"]["partitionValues"]["dt"]}

    rewritten(table, 2, mapped)
    (commit,) = table.table_log.commits([2], "dt")
    assert commit.wrote(SPEC.grid.partition(DAY))


@pytest.mark.parametrize(
    "said",
    [
        None,
        {"operationParameters": {"properties": {"a": "b"}}},
        {"operationParameters": {"properties": "{a=b}"}},
        {"operationParameters": "none", "userMetadata": 7},
        {"timestamp": 1_700_000_000_000_000_000},
        "OPTIMIZE",
    ],
)
def test_what_others_say_of_their_commits_is_anybodys_text(table: LakeTable, said: Any):
    """What cannot be understood of it is left out: the file is whole, and every look goes on."""
    publish(table, DAY)
    (Path(table.path) / "_delta_log" / f"{2:020d}.json").write_text(json.dumps({"commitInfo": said}))
    assert list(table.published()) == [DAY]
    assert [one.version for one in table.history.operations()] == [0, 1, 2]
    assert table.written_by_others(table.published()) == {}
    (commit,) = table.table_log.commits([2], "dt")
    assert not commit.touched


@pytest.mark.parametrize("day", ["10000-01-01", "-0044-03-15"])
def test_a_year_that_python_has_not_is_a_day_like_others(table: LakeTable, day: str):
    """A row of somebody else in it is told as one in no partition; every other look goes on."""
    publish(table, DAY)
    rows = table.read().limit(1).withColumn("dt", F.expr(f"date'{day}'"))
    rows.write.format("delta").mode("append").save(table.path)
    assert sum(table.rows_outside_grid().values()) == 1
    assert table.rows_now([SPEC.grid.partition(DAY)]) == {DAY: 2}
    assert table.unreadable([SPEC.grid.partition(DAY)], reads=False) == {}
    with pytest.raises(UnreadableSourceError, match="delta-rs cannot read the table"):
        list(contents(opened(table.spark, table.path), COLUMNS, "dt", {DAY: SPEC.grid.partition(DAY).value}))


def test_rows_whose_partition_nobody_sees_in_the_log_are_counted(spark: Any, tmp_path: Path):
    """Files with random names, of mapped columns, and a year that Python has not: no day is taken for an empty one."""
    table = LakeTable(spark, SPEC, str(tmp_path / "orders"))
    columns = ", ".join(f"`{name}` {kind}" for name, kind in columns_of(SPEC).items())
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    spark.sql(f"CREATE TABLE delta.`{table.path}` ({columns}) USING delta PARTITIONED BY (dt) TBLPROPERTIES ({mapped})")
    append(table, DAY)
    table.read().withColumn("dt", F.expr("date'10000-01-01'")).write.format("delta").mode("append").save(table.path)
    assert table.rows_now([SPEC.grid.partition(day) for day in (DAY, NEXT)]) == {DAY: 1}
    assert sum(table.rows_outside_grid().values()) == 1


def test_files_of_which_the_log_does_not_say_where_they_lie_may_lie_anywhere(table: LakeTable):
    """Of a table whose columns are mapped, and of a value that is not written as Delta writes it."""
    publish(table, DAY, NEXT)
    for number, values in enumerate(({"col-1": NEXT}, {"dt": "2024-1-1"}), start=2):
        add = {"path": "x", "partitionValues": values, "size": 3, "dataChange": False, "modificationTime": 0}
        (Path(table.path) / "_delta_log" / f"{number:020d}.json").write_text(json.dumps({"add": add}))
    of_both = dict.fromkeys(map(SPEC.grid.partition, (DAY, NEXT)), 1)
    assert [table.left_alone(of_both, until=version) for version in (1, 2, 3)] == [[*of_both], [], []]
    rewritten(table, 3, lambda action: action["add"].update(dataChange=True))
    assert table.versions_writing(2, 4, [SPEC.grid.partition(NEXT)]) == [3]


def test_a_damaged_commit_is_said_in_words(table: LakeTable):
    """Which file, what the state is, and that it is not to be deleted; a history that is damaged can go."""
    publish(table, DAY)
    file = Path(table.path) / "_delta_log" / f"{1:020d}.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    for look in (table.table_log.receipts, lambda: table.table_log.commits([1], "dt")):
        with pytest.raises(ReceiptError, match=f"The commit `{file}` cannot be read") as caught:
            look()
        assert "Do not delete it" in caught.value.remedy


def test_what_the_log_has_forgotten_may_have_written_any_partition(table: LakeTable):
    """A launch may last longer than the log is kept: it goes on, and looks at what may have been written."""
    publish(table, NEXT)
    publish(table, NEXT)
    publish(table, DAY)
    day, never = [SPEC.grid.partition(DAY)], LakeTable(table.spark, SPEC, f"{table.path}_none")
    assert table.versions_writing(0, 4, day) == [3]
    cleaned(table)
    assert table.versions_writing(0, 4, day) == [1, 3]
    assert table.versions_writing(1, 3, day) == []
    assert never.versions_writing(0, 4, day) == []
    assert table.left_alone({day[0]: 3}, until=3) == day
    assert table.left_alone({day[0]: 0}, until=3) == []


@pytest.mark.prove
def test_rows_in_no_partition_are_told_whoever_wrote_them(table: LakeTable):
    """By the log alone, also of a file without statistics, and after the log was cleaned."""
    assert table.rows_outside_grid() == {}
    publish(table, DAY)
    assert table.rows_outside_grid() == {}
    ours = receipt_for(table, [SPEC.grid.partition(DAY)]).to_json()
    rows = table.read().withColumn("dt", F.date_sub("dt", 365))
    rows.write.format("delta").mode("append").option("userMetadata", ours).save(table.path)
    assert table.rows_outside_grid() == {"2023-01-01": 2}
    rewritten(table, 2, lambda action: action.get("add", {}).pop("stats", None))
    assert LakeTable(table.spark, SPEC, table.path).rows_outside_grid() == {"2023-01-01": 2}
    cleaned(table)
    assert table.rows_outside_grid() == {"2023-01-01": 2}


def test_a_plain_path_may_lie_elsewhere(spark: Any, table: LakeTable, tmp_path: Path):
    """Where Hadoop is told what a plain path means, the log is not believed that lies at that path on this disk."""
    spark.conf.set("spark.hadoop.fs.defaultFS", "hdfs://name")
    try:
        assert isinstance(log_of(spark, table.path).reader, SparkReader)
        assert not log_of(spark, f"{tmp_path}/none").reader.is_absent()
        assert log_of(spark, f"file://{tmp_path}/none").reader.is_absent()
        assert log_of(spark, f"file://{table.path}").version() == 0
    finally:
        spark.conf.unset("spark.hadoop.fs.defaultFS")


def test_settings_of_s3_are_told_to_delta_rs(monkeypatch: pytest.MonkeyPatch):
    """Those of a bucket win over those of all buckets, and variables of one's own over both."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    settings = {
        "spark.hadoop.fs.s3a.access.key": "all",
        "spark.hadoop.fs.s3a.bucket.lake.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": "secret",
        "spark.hadoop.fs.s3a.endpoint": "localhost:9000",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    found = storage_options("s3a://lake/tables/x", settings.get)
    assert {name: value for name, value in found.items() if name.startswith("AWS")} == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_ENDPOINT_URL": "http://localhost:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
