"""Files of a table, or of its log, that are gone, damaged or overtaken: told by partition, repeated, and healed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import backfill_assets.lake.history_writer as writer_module
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.errors import UncertainCommitError, UnreadableTableError
from backfill_assets.lake.table import LakeTable
from backfill_assets.lake.unreadable import lost_of_commit
from tests.lake.test_conflicts import append, source_of
from tests.support.shop import (
    content,
    files_by_partition,
    folder_of,
    launch,
    launch_of,
    multiset,
    orders,
    published_keys,
    write_parquet,
)

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
ROWS = [row for number, day in enumerate(DAYS) for row in orders(day, 3, order_id=100 * number)]


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


@pytest.mark.parametrize("harm", [lose, damage])
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


def test_identical_partitions_beside_an_unreadable_one_stay(filled: tuple[LakeTable, Any]):
    """A launch of all three writes the one whose file is gone, and not the two that are as they would be written."""
    table, source = filled
    lose(file_of(table, DAYS[1]))
    published = table.published()
    days = table.spec.grid.between(DAYS[0], DAYS[-1])
    assert published_keys(launch(table, source, days, published=published)) == [DAYS[1]]


def test_file_that_goes_before_the_commit_is_missed(table: LakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If somebody removes a file between its write and the look after the commit, the chunk is published again."""
    write_parquet(folder_of(tmp_path / "in", DAYS[0]), orders(DAYS[0]))
    original, snatched = writer_module.overwrite, list[Path]()

    def snatch_once(*arguments: Any, receipt: Any) -> Any:
        written = original(*arguments, receipt=receipt)
        if not snatched:
            snatched.append(file_of(table, DAYS[0]))
            lose(snatched[0])
        return written

    monkeypatch.setattr(writer_module, "overwrite", snatch_once)
    said: list[str] = []
    source = source_of(table, tmp_path / "in")
    outcomes = launch(table, source, [table.spec.grid.partition(DAYS[0])], log=said.append, sleep=lambda _: None)

    assert published_keys(outcomes) == [DAYS[0]]
    assert "1 files that version 1 has added do not exist" in said[0]
    assert table.version() == 2
    assert content(table.path) == multiset(orders(DAYS[0]))


def test_every_file_of_a_commit_is_found(spark: Any, tmp_path: Path):
    """Names that a log escapes are no lost files; one that is gone is named."""
    path = str(tmp_path / "odd")
    names = ["a b", "50%", "a:b", "é", "x=y/z", "[a]*{b}", "+"]
    rows = spark.createDataFrame([(number, name) for number, name in enumerate(names)], "id int, k string")
    rows.coalesce(1).write.format("delta").partitionBy("k").save(path)
    assert lost_of_commit(spark, path, 0) == []

    gone = sorted(file for file in Path(path).rglob("*.parquet") if "_delta_log" not in str(file))[0]
    gone.unlink()
    assert lost_of_commit(spark, path, 0) == [str(gone.relative_to(path))]


# -- a log whose listing was overtaken ---------------------------------------------------------------------------------


@pytest.fixture
def hole(table: LakeTable, tmp_path: Path) -> tuple[Callable[[], None], Callable[..., None]]:
    """Take a commit out of the log, as a listing may that others overtake, and put it back."""
    commit, away = Path(table.path, "_delta_log", f"{2:020d}.json"), tmp_path / "away.json"

    def tear() -> None:
        shutil.move(commit, away)
        table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def mend(*_: float) -> None:
        if away.exists():
            shutil.move(away, commit)

    return tear, mend


def test_overtaken_listing_is_asked_again(filled: tuple[LakeTable, Any], hole: Any, tmp_path: Path, monkeypatch: Any):
    """A log that seems to have a hole while a chunk is saved is listed again, and the chunk is published once."""
    (table, source), (tear, mend) = filled, hole
    append(table), append(table), append(table)
    write_parquet(folder_of(tmp_path / "in", DAYS[2]), orders(DAYS[2], 5))
    original, torn = writer_module.overwrite, list[bool]()

    def torn_once(*arguments: Any, receipt: Any) -> Any:
        if not torn:
            torn.append(True)
            tear()
        return original(*arguments, receipt=receipt)

    monkeypatch.setattr(writer_module, "overwrite", torn_once)
    said: list[str] = []
    effects = Effects(log=said.append, sleep=mend)
    before = table.version()
    day = [table.spec.grid.partition(DAYS[2])]
    outcomes = list(materialize(table.spec, day, source, table, launch_of(), effects=effects))

    assert published_keys(outcomes) == [DAYS[2]]
    assert table.version() == before + 1
    assert "DELTA_VERSIONS_NOT_CONTIGUOUS" in said[0]
    assert "Attempt 1 of 5 failed" in said[0]
    assert "org.apache" not in said[0]


def test_commit_is_looked_for_until_the_log_answers(table: LakeTable, tmp_path: Path, monkeypatch: Any):
    """If neither the commit nor the look for it is answered, the look is repeated; in the end it is uncertain."""
    write_parquet(folder_of(tmp_path / "in", DAYS[0]), orders(DAYS[0]))
    original, looks = writer_module.overwrite, list[int]()

    def lose_the_answer(*arguments: Any, receipt: Any) -> Any:
        original(*arguments, receipt=receipt)
        raise fails()

    def fails(*_: Any) -> Any:
        looks.append(1)
        return table.spark._jvm.java.lang.Class.forName("no.such.Class")

    monkeypatch.setattr(writer_module, "overwrite", lose_the_answer)
    monkeypatch.setattr(writer_module, "newest_version", lambda *_: 0 if len(looks) == 0 else fails())
    monkeypatch.setattr(writer_module, "Effects", partial(Effects, sleep=lambda _: None))
    with pytest.raises(UncertainCommitError, match="nobody could say whether the commit of this chunk was made"):
        launch(table, source_of(table, tmp_path / "in"), [table.spec.grid.partition(DAYS[0])])
    assert (table.version(), len(looks)) == (1, 6)
