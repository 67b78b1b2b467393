"""The lock: one for each table, held for a save, gone with its holder; two processes that save at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.errors import StorageError, TableLockedError
from backfill_assets.lake.locks import table_lock
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark.local_disk import local_path
from tests.support.shop import folder_of, frame_of, orders, orders_spec, receipt_for, rows_in, write_parquet

SPEC = orders_spec()
DAY = "2024-01-01"


def named(*keys: str) -> list[Partition]:
    return [SPEC.grid.partition(key) for key in keys]


def staged_of(table: LakeTable, rows: list[dict[str, Any]]) -> StagedChunk[Any]:
    return StagedChunk(frame_of(table.spark, SPEC, rows), {}, {}, None, lambda: None)


HOLDER = """
import sys, time
from backfill_assets.lake.locks import table_lock
with table_lock(sys.argv[1], timeout_seconds=1):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Another process that holds a table's lock."""
    started: list[subprocess.Popen[str]] = []

    def stage(uri: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", HOLDER, uri], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield stage
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.prove
def test_a_lock_that_another_process_holds(table, holder):
    """A save waits for the lock and gives up with an error that a retry helps; when the holder dies the lock is free."""
    process = holder(table.path)
    table.lock_timeout_seconds = 0.3

    with pytest.raises(
        TableLockedError, match=r"orders.lock` was held by another writer for 0 s. Nothing was written."
    ) as caught:
        table.overwrite(staged_of(table, orders(DAY)), named(DAY), receipt_for(table, named(DAY)))
    assert caught.value.retry_helps
    assert rows_in(table.path) == []

    process.kill()
    process.wait()
    assert table.overwrite(staged_of(table, orders(DAY)), named(DAY), receipt_for(table, named(DAY))).version == 1


def test_all_names_of_a_folder_have_one_lock(holder, tmp_path):
    """However a local table's path is written, and whatever letters it has, its writers meet at one lock."""
    path = f"{tmp_path}/a b%20c/orders"
    holder(path)
    for form in (path, f"{path}/", f"file:{path}", f"file://{path}"):
        with pytest.raises(TableLockedError), table_lock(form, timeout_seconds=0.1):
            pass


def test_a_lock_that_cannot_be_written(tmp_path):
    """Where the lock file cannot be made, no write begins, and the error names the file and says why."""
    (tmp_path / "tables").write_text("a file where a folder should be")
    words = r"orders.lock` cannot be written: .+\. Nothing was written\. Make room.+name it with its scheme: `hdfs:///"
    with pytest.raises(StorageError, match=words), table_lock(f"{tmp_path}/tables/orders", timeout_seconds=0.1):
        pytest.fail("the lock was taken")


def test_what_fails_inside_a_lock_is_not_the_locks(tmp_path):
    """An error of the save passes as it is, and the lock is free afterwards."""
    with pytest.raises(PermissionError), table_lock(f"{tmp_path}/orders", timeout_seconds=0.1):
        raise PermissionError(13, "Permission denied")
    with table_lock(f"{tmp_path}/orders", timeout_seconds=0.1):
        pass


def test_other_storages_take_no_lock():
    """Storages that create atomically need no lock, and none is made."""
    for uri in ("s3a://bucket/t", "hdfs://host/t", "abfss://c@a.dfs.core.windows.net/t", "gs://bucket/t"):
        assert local_path(uri) is None
        with table_lock(uri, timeout_seconds=0):
            pass


WRITER = """
import json, sys, time
from pathlib import Path
from backfill_assets.spark.session import SparkSettings, classic_config, start_session
from backfill_assets.lake.table import LakeTable
from backfill_assets.sources.files.source import FilesSource
from tests.support.shop import launch, orders_spec, published_keys, refusals

name, table_path, root, first, last, meet = sys.argv[1:]
spark = start_session(classic_config(SparkSettings(master="local[1]", driver_memory="1g")))
spec = orders_spec()
table = LakeTable(spark, spec, table_path)
source = FilesSource(spark, spec, spec.source, root)
table.version()
Path(meet, name).touch()
while len(list(Path(meet).iterdir())) < 2:
    time.sleep(0.02)
outcomes = launch(table, source, spec.grid.between(first, last), run_id=name, max_partitions_per_chunk=1, sleep=time.sleep)
print(json.dumps([published_keys(outcomes), refusals(outcomes)]))
"""


@pytest.mark.prove
@pytest.mark.e2e
def test_two_processes_that_overwrite_the_same_days(table, tmp_path):
    """Two launches in JVMs of their own, over ranges that overlap, at once: both end well, and every day holds one of the two contents, whole."""
    days = ["2024-01-01", "2024-01-02", "2024-01-03"]
    for name in ("a", "b"):
        for day in days:
            write_parquet(folder_of(tmp_path / name, day), orders(day, customer=name))
    (tmp_path / "meet").mkdir()
    script = tmp_path / "writer.py"
    script.write_text(textwrap.dedent(WRITER))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ranges = {"a": (days[0], days[1]), "b": (days[1], days[2])}
    processes = {
        name: subprocess.Popen(
            [sys.executable, str(script), name, table.path, str(tmp_path / name), *span, str(tmp_path / "meet")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for name, span in ranges.items()
    }  # fmt: skip
    for name, process in processes.items():
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err[-3000:]
        assert json.loads(out.splitlines()[-1]) == [list(ranges[name]), {}]

    found = {day: {row["customer"] for row in rows_in(table.path) if str(row["dt"]) == day} for day in days}
    assert found[days[0]] == {"a"}
    assert found[days[2]] == {"b"}
    assert found[days[1]] in ({"a"}, {"b"})
    assert len(rows_in(table.path)) == 9
    assert len(table.history.in_log()) == 4, "a commit was lost"
    newest = table.published()[days[1]].receipt.run.id
    assert found[days[1]] == {newest}
