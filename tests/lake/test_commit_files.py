"""Commits on this disk are written without a process for each file, and their files are as Hadoop makes them."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.lake import overwrite as overwriting
from backfill_assets.lake.commit_files import OPTION, file_options
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark.settings import LOCAL_FILE_SYSTEM
from tests.support.shop import frame_of, orders, orders_spec, receipt_for

SPEC = orders_spec()
DAY, NEXT = "2024-01-01", "2024-01-02"


def publish(table: LakeTable, key: str) -> None:
    named = [SPEC.grid.partition(key)]
    rows = frame_of(table.spark, SPEC, orders(key, 2))
    table.overwrite(StagedChunk(rows, {}, {}, None, lambda: None), named, receipt_for(table, named, key))


def modes(table: LakeTable, key: str) -> dict[str, str]:
    """Return the modes of what lies in a partition's folder, and of that, by suffix."""
    folder = Path(table.path, f"dt={key}")
    return {path.suffix: stat.filemode(path.stat().st_mode) for path in [folder, *folder.iterdir()]}


def test_files_are_as_hadoop_makes_them(table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """The same modes and the same checksum files beside them, and another reader reads both."""
    assert file_options(table.spark, table.path)[OPTION].endswith("BareLocalFileSystem")
    publish(table, DAY)
    monkeypatch.setattr(overwriting, "file_options", lambda *_: {})
    publish(table, NEXT)

    assert modes(table, DAY) == modes(table, NEXT)
    assert set(modes(table, DAY)) == {"", ".parquet", ".crc"}
    assert sorted(map(str, deltalake.DeltaTable(table.path).to_pyarrow_table()["dt"].to_pylist())) == [
        DAY,
        DAY,
        NEXT,
        NEXT,
    ]


def test_delta_writes_with_the_file_system_that_it_is_told(table: LakeTable, monkeypatch: pytest.MonkeyPatch):
    """It is the options of the one write that decide: with a class that is not there nothing is committed."""
    nowhere = {OPTION: "no.such.FileSystem", f"{OPTION}.disable.cache": "true"}
    monkeypatch.setattr(overwriting, "file_options", lambda *_: nowhere)

    with pytest.raises(Exception, match="no.such.FileSystem"):
        publish(table, DAY)

    assert table.version() == 0
    assert table.rows_now([SPEC.grid.partition(DAY)]) == {}


def test_a_shared_folder_hands_its_group_on(table: LakeTable):
    """Where folders give their group to what is made in them, those of new partitions do so too."""
    folder = Path(table.path)
    folder.chmod(0o2775)

    publish(table, DAY)

    assert file_options(table.spark, table.path) == {}
    assert (folder / f"dt={DAY}").stat().st_mode & stat.S_ISGID


def by_a_link(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> str:
    del monkeypatch
    link = Path(f"{table.path}_linked")
    link.symlink_to(table.path)
    return str(link)


def log_by_a_link(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> str:
    del monkeypatch
    log = Path(table.path, "_delta_log")
    log.rename(f"{table.path}_log")
    log.symlink_to(f"{table.path}_log")
    return table.path


def elsewhere(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    return table.path


def in_a_bucket(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> str:
    del table, monkeypatch
    return "s3a://bucket/table"


@pytest.mark.parametrize("place", [by_a_link, log_by_a_link, elsewhere, in_a_bucket])
def test_anything_else_is_written_as_ever(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch, place: Callable[[LakeTable, pytest.MonkeyPatch], str]
):
    """By a link, by a plain path that may mean another storage, and in one, Hadoop's own file system writes."""
    assert file_options(table.spark, table.path)

    assert file_options(table.spark, place(table, monkeypatch)) == {}


def test_a_user_may_have_it_otherwise(table: LakeTable, spark: SparkSession):
    """An empty setting gives Hadoop's own file system back; one that the user named stays."""
    before = spark.conf.get(LOCAL_FILE_SYSTEM)
    try:
        spark.conf.set(LOCAL_FILE_SYSTEM, "")
        assert file_options(spark, table.path) == {}
    finally:
        spark.conf.set(LOCAL_FILE_SYSTEM, before or "")
    spark.conf.set(f"spark.hadoop.{OPTION}", "org.apache.hadoop.fs.LocalFileSystem")
    try:
        assert file_options(spark, table.path) == {}
    finally:
        spark.conf.unset(f"spark.hadoop.{OPTION}")
