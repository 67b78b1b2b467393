"""Files of a table that are gone or damaged: told by partition, and healed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.errors import UnreadableTableError
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.unreadable import lost_of_commit
from backfill_assets.table.readers import log_of
from backfill_assets.table.transaction import Transactions
from tests.lake.test_conflicts import source_of
from tests.support.shop import (
    content,
    files_by_partition,
    folder_of,
    launch,
    multiset,
    orders,
    published_keys,
    write_parquet,
)

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


@pytest.fixture
def filled(table: LakeTable, tmp_path: Path) -> tuple[LakeTable, Any]:
    """Three days that are published, and their source."""
    for day in DAYS:
        write_parquet(folder_of(tmp_path / "in", day), orders(day, 3))
    source = source_of(table, tmp_path / "in")
    launch(table, source, table.spec.grid.between(DAYS[0], DAYS[-1]))
    return table, source


def file_of(table: LakeTable, day: str) -> Path:
    (name,) = files_by_partition(table.path)[day]
    return Path(table.path, name)


def lose(file: Path) -> None:
    file.unlink()


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("harm", [lose, pytest.param(damage, marks=pytest.mark.prove)])
def test_unreadable_file_is_told_by_partition(filled: tuple[LakeTable, Any], harm: Callable[[Path], None]):
    """Reconcile compares all other days, a look finds a lost file, and a launch heals the day and no other."""
    table, source = filled
    before = content(table.path)
    harm(file_of(table, DAYS[1]))
    days = table.spec.grid.between(DAYS[0], DAYS[-1])

    with pytest.raises(UnreadableTableError, match="cannot be read: the file .*dt=2024-01-02"):
        table.tally(days)
    found = {c.partition.key: c for c in reconcile(table.spec, days, source, table)}
    assert [key for key, comparison in found.items() if not comparison.passed] == [DAYS[1]]
    assert "Launch 2024-01-02 again" in str(found[DAYS[1]])
    seen = table.unreadable(days, reads=False)
    assert seen.keys() == ({DAYS[1]} if harm is lose else set())
    differing = frozenset({DAYS[1]}) if harm is damage else frozenset()
    assert published_keys(launch(table, source, days, only="missing", differing=differing)) == [DAYS[1]]
    assert content(table.path) == before
    assert not table.unreadable(days)


@pytest.mark.prove
def test_identical_partitions_beside_an_unreadable_one_stay(filled: tuple[LakeTable, Any]):
    """A launch of all three writes the one whose file is gone, and not the two that are as they would be written."""
    table, source = filled
    lose(file_of(table, DAYS[1]))
    published = table.published()
    days = table.spec.grid.between(DAYS[0], DAYS[-1])
    assert published_keys(launch(table, source, days, published=published)) == [DAYS[1]]


@pytest.mark.prove
def test_file_that_goes_before_the_commit_is_missed(table: LakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If somebody removes a file between its write and the look after the commit, the chunk is published again."""
    write_parquet(folder_of(tmp_path / "in", DAYS[0]), orders(DAYS[0]))
    original, snatched = Transactions.commit, list[Path]()

    def snatch_once(*arguments: Any, **how: Any) -> None:
        original(*arguments, **how)
        if not snatched:
            snatched.append(file_of(table, DAYS[0]))
            lose(snatched[0])

    monkeypatch.setattr(Transactions, "commit", snatch_once)
    said: list[str] = []
    source = source_of(table, tmp_path / "in")
    outcomes = launch(table, source, [table.spec.grid.partition(DAYS[0])], log=said.append, sleep=lambda _: None)

    assert published_keys(outcomes) == [DAYS[0]]
    assert "1 files that were audited do not exist any more" in said[0]
    assert table.version() == 2
    assert content(table.path) == multiset(orders(DAYS[0]))


@pytest.mark.prove
def test_every_file_of_a_commit_is_found(spark: Any, tmp_path: Path):
    """Names that a log escapes are no lost files; one that is gone is named."""
    path = str(tmp_path / "odd")
    names = ["a b", "50%", "a:b", "é", "x=y/z", "[a]*{b}", "+"]
    rows = spark.createDataFrame([(number, name) for number, name in enumerate(names)], "id int, k string")
    rows.coalesce(1).write.format("delta").partitionBy("k").save(path)
    log = log_of(spark, path)
    (commit,) = log.commits([0], "k")
    assert lost_of_commit(spark, log, commit) == []

    gone = sorted(file for file in Path(path).rglob("*.parquet") if "_delta_log" not in str(file))[0]
    gone.unlink()
    assert lost_of_commit(spark, log, commit) == [str(gone.relative_to(path))]
