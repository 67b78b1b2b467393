"""Files that change: what a survey says of it, and a launch during which they do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import SourceChangedError
from backfill_assets.lake.table import LakeTable
from tests.sources.files.landing import days, files_spec, source_of, staged_rows
from tests.support.shop import content, folder_of, launch, multiset, orders, published_keys, write_parquet


def test_the_fingerprint_follows_the_files(spark, tmp_path):
    """Another length, another time of modification, one file more or less: another fingerprint; the neighbour keeps its own."""
    spec = files_spec()
    first = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    write_parquet(folder_of(tmp_path, "2024-01-02"), orders("2024-01-02"))
    source = source_of(spark, spec, tmp_path)

    def look() -> dict[str, Survey]:
        return source.survey(days(spec, "2024-01-01", "2024-01-02"))

    seen = [look()]
    assert look() == seen[0]
    assert seen[0]["2024-01-01"].size_bytes == first.stat().st_size
    os.utime(first, (1_700_000_000, 1_700_000_000))
    seen.append(look())
    write_parquet(first.parent, orders("2024-01-01", 50))
    os.utime(first, (1_700_000_000, 1_700_000_000))
    seen.append(look())
    second = write_parquet(first.parent, orders("2024-01-01", 1), name="more.parquet")
    seen.append(look())
    second.unlink()

    assert look()["2024-01-01"] == seen[2]["2024-01-01"]
    assert len({survey["2024-01-01"].fingerprint for survey in seen}) == 4
    assert len({survey["2024-01-02"].fingerprint for survey in seen}) == 1


@pytest.mark.parametrize("move", ["copy", "link", "uri", "letters"])
def test_moved_files_keep_their_fingerprints(spark, tmp_path, move):
    """A copy that keeps times, a link to the root, and another way to write its path change no fingerprint."""
    spec, old = files_spec(), tmp_path / "old"
    write_parquet(folder_of(old, "2024-01-01"), orders("2024-01-01"))
    write_parquet(folder_of(old, "2024-01-02") / "EU", orders("2024-01-02"))
    named = days(spec, "2024-01-01", "2024-01-02")
    before = source_of(spark, spec, old).survey(named)
    new: Path | str = tmp_path / "new folder" if move == "letters" else tmp_path / "new"
    if move == "link":
        Path(new).symlink_to(old)
    elif move == "uri":
        new = f"file://{old}/"
    else:
        shutil.copytree(old, new)

    after = source_of(spark, spec, new).survey(named)

    assert [after[p.key].fingerprint for p in named] == [before[p.key].fingerprint for p in named]
    assert len({survey.fingerprint for survey in after.values()}) == 2


def test_a_renamed_file_changes_the_fingerprint(spark, tmp_path):
    """A name below the root counts, that of a folder too."""
    spec = files_spec()
    file = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    seen = set[str]()
    for name in (file.name, "other.parquet", "EU/other.parquet"):
        (file.parent / name).parent.mkdir(exist_ok=True)
        file = file.rename(folder_of(tmp_path, "2024-01-01") / name)
        seen.add(source_of(spark, spec, tmp_path).survey(days(spec, "2024-01-01"))["2024-01-01"].fingerprint)
    assert len(seen) == 3


def test_a_file_that_goes_away_is_a_change_of_the_source(spark, tmp_path):
    """A file that is gone between the survey and the read says that the source changed, which a retry helps."""
    spec = files_spec()
    path = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    source, named = source_of(spark, spec, tmp_path), days(spec, "2024-01-01")
    surveys = source.survey(named)
    path.unlink()

    with pytest.raises(SourceChangedError, match="taken away while it was read"):
        source.scan(named, surveys)


@pytest.mark.prove
def test_a_file_that_is_put_right_is_read_again(spark, tmp_path):
    """What is known against a file is known of that very content: mended, it is read in the same launch."""
    spec = files_spec()
    path = write_parquet(folder_of(tmp_path, "2024-01-01"), orders("2024-01-01"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    source, named = source_of(spark, spec, tmp_path), days(spec, "2024-01-01")
    assert source.set_aside_unreadable(source.survey(named))
    assert source.scan(named, source.survey(named)).evidence["2024-01-01"].findings

    path.write_bytes(whole)

    assert len(staged_rows(source, named)) == 3
    assert not source.scan(named, source.survey(named)).evidence["2024-01-01"].findings


@pytest.mark.prove
def test_a_source_that_changes_during_the_launch_is_read_again(spark, tmp_path, monkeypatch):
    """A file that is replaced between the read and the save: the launch notices, reads again, and the new content is published."""
    spec = files_spec()
    write_parquet(folder_of(tmp_path / "in", "2024-01-01"), orders("2024-01-01"))
    table = LakeTable(spark, spec, f"{tmp_path}/table")
    table.create()
    source, said = source_of(spark, spec, tmp_path / "in"), []
    stage = LakeTable.stage

    def stage_and_change(self, *scan, **known):
        staged = stage(self, *scan, **known)
        if not said:
            write_parquet(folder_of(tmp_path / "in", "2024-01-01"), orders("2024-01-01", 5))
        return staged

    monkeypatch.setattr(LakeTable, "stage", stage_and_change)
    outcomes = launch(table, source, days(spec, "2024-01-01"), log=said.append)

    assert published_keys(outcomes) == ["2024-01-01"]
    assert content(table.path) == multiset(orders("2024-01-01", 5))
    assert table.version() == 1
    assert any("changed while it was read" in text for text in said)
