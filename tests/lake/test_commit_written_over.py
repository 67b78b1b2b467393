"""A commit that another driver has written over, where the storage lets it: the launch notices, and does it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_assets.lake.history_writer import HistoryWriter
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.listing import as_listed
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import folder_of, launch, multiset, orders, orders_spec, published_keys, rows_in, write_parquet

DAY = "2024-01-01"


def test_a_save_that_left_no_commit_is_a_conflict(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S3 has no way to keep two drivers from one version without a log store: the rows are staged again, and published."""
    spec = orders_spec()
    assert spec.source.kind == "files"
    write_parquet(folder_of(tmp_path / "landing", DAY), orders(DAY))
    table = LakeTable(spark, spec, str(tmp_path / "table"))
    find, looks = HistoryWriter._find, list[object]()

    def gone_at_first(writer: HistoryWriter, receipt):
        looks.append(find(writer, receipt))
        return looks[-1] if len(looks) > 1 else None

    monkeypatch.setattr(HistoryWriter, "_find", gone_at_first)
    done = launch(table, FilesSource(spark, spec, spec.source, str(tmp_path / "landing")), spec.grid.between(DAY, DAY))
    assert published_keys(done) == [DAY]
    assert len(looks) == 2
    assert multiset(rows_in(table.path)) == multiset(orders(DAY))


@pytest.mark.parametrize("root", ["/data", "hdfs:///data"])
def test_a_host_may_be_called_as_the_folder_is(root: str):
    """The root is looked for behind the name of the host."""
    assert as_listed(root, "hdfs://data-nn:8020/data/2024/01/01/a.parquet") == "hdfs://data-nn:8020/data"
    assert as_listed("s3a://data/data", "s3a://data/data/a.parquet") == "s3a://data/data"
