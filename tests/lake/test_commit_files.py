"""Commits on this disk are written without a process for each file, and their files are as Hadoop makes them."""

from __future__ import annotations

import stat
from pathlib import Path

import deltalake
import pytest

from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.lake import overwrite as overwriting
from backfill_assets.lake.table import LakeTable
from backfill_assets.table.commit_files import OPTION, file_options
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


@pytest.mark.prove
def test_a_shared_folder_hands_its_group_on(table: LakeTable):
    """Where folders give their group to what is made in them, those of new partitions do so too."""
    folder = Path(table.path)
    folder.chmod(0o2775)

    publish(table, DAY)

    assert file_options(table.spark, table.path) == {}
    assert (folder / f"dt={DAY}").stat().st_mode & stat.S_ISGID
