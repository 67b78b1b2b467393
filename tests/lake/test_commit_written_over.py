"""A commit that another driver has written over, where the storage lets it: the launch notices, and does it again."""

from __future__ import annotations

import os
import shutil
from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.listing import as_listed
from backfill_assets.sources.files.source import FilesSource
from backfill_assets.table.transaction import Transactions
from tests.support.shop import (
    folder_of,
    launch,
    multiset,
    opened,
    orders,
    orders_spec,
    published_keys,
    rows_in,
    write_parquet,
)

DAY, OTHER = "2024-01-01", date(2024, 1, 2)


def append_to_another_day(table: Path) -> None:
    """What the other driver does: it gives another day the rows that the table has."""
    rows = opened(table).to_pyarrow_table()
    place = rows.schema.get_field_index("dt")
    others = pa.array([OTHER] * rows.num_rows, rows.schema.field(place).type)
    deltalake.write_deltalake(str(table), rows.set_column(place, "dt", others), mode="append")


def write_over(commit: Path, text: str) -> None:
    """Replace a commit by another one of the same size and time: nothing in the listing tells that it is another."""
    was = commit.stat()
    new = commit.with_suffix(".new")
    new.write_text(text.replace("{", "{" + " " * (was.st_size - len(text.encode())), 1))
    os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
    new.replace(commit)
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)


@pytest.mark.prove
def test_a_commit_that_is_written_over_is_a_conflict(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S3 does not keep two drivers from one version without a log store: what the other wrote stays, and the launch does all again."""
    spec = orders_spec()
    assert spec.source.kind == "files"
    landing, day = tmp_path / "landing", spec.grid.between(DAY, DAY)
    table = LakeTable(spark, spec, str(tmp_path / "table"))
    write_parquet(folder_of(landing, DAY), orders(DAY))
    launch(table, FilesSource(spark, spec, spec.source, str(landing)), day)
    write_parquet(folder_of(landing, DAY), orders(DAY, 5))
    commit, saves = Transactions.commit, list[int]()

    def written_over_at_first(*of, **how):
        saves.append(table.version() + 1)
        if len(saves) > 1:
            return commit(*of, **how)
        theirs = tmp_path / "theirs"
        shutil.copytree(table.path, theirs)
        commit(*of, **how)
        append_to_another_day(theirs)
        name = f"_delta_log/{saves[0]:020}.json"
        write_over(Path(table.path, name), (theirs / name).read_text())
        shutil.copytree(theirs / f"dt={OTHER}", Path(table.path, f"dt={OTHER}"))
        return None

    monkeypatch.setattr(Transactions, "commit", written_over_at_first)
    done = launch(table, FilesSource(spark, spec, spec.source, str(landing)), day)
    assert published_keys(done) == [DAY]
    assert saves == [saves[0], saves[0] + 1]
    rows = rows_in(table.path)
    assert multiset(row for row in rows if str(row["dt"]) == DAY) == multiset(orders(DAY, 5))
    assert multiset(row for row in rows if str(row["dt"]) == str(OTHER)) == multiset(orders(DAY))
    assert spark.read.format("delta").load(table.path).count() == len(rows)


@pytest.mark.parametrize("root", ["/data", "hdfs:///data"])
def test_a_host_may_be_called_as_the_folder_is(root: str):
    """The root is looked for behind the name of the host."""
    assert as_listed(root, "hdfs://data-nn:8020/data/2024/01/01/a.parquet") == "hdfs://data-nn:8020/data"
    assert as_listed("s3a://data/data", "s3a://data/data/a.parquet") == "s3a://data/data"
