"""The archive of classes: used where there is one, of this installation and no other, harmless where it is damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backfill_assets.spark import session
from backfill_assets.spark.java import class_archive
from backfill_assets.spark.session import classic_config
from backfill_assets.spark.settings import JAVA_OPTIONS, SPARK_VERSION, SparkSettings
from backfill_assets.table.class_archive import make_class_archive

START = """
import sys
from backfill_assets.spark.session import classic_config, start_session
from backfill_assets.spark.settings import SparkSettings
sys.prefix = sys.argv[1]
config = classic_config(SparkSettings(master="local[1]", extra={"spark.driver.extraJavaOptions": sys.argv[2]}))
assert "SharedArchiveFile" in config["spark.driver.extraJavaOptions"]
print(start_session(config).range(7).count())
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the archive in a virtual environment of which nothing else is there."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    class_archive().parent.mkdir(parents=True)
    return tmp_path


def started(prefix: str, option: str = "") -> subprocess.CompletedProcess[str]:
    """A process that starts Spark with the archive of a virtual environment."""
    return subprocess.run(
        [sys.executable, "-c", START, prefix, option],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def test_an_archive_is_used_where_there_is_one(elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    """Only a local session names it, and only if it is there; it is of this Spark and this Java."""
    monkeypatch.setattr(session, "delta_jars", lambda _: [])
    archive = class_archive()
    assert SPARK_VERSION in archive.name
    assert str(archive) not in classic_config(SparkSettings())[JAVA_OPTIONS]
    archive.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={archive}" in classic_config(SparkSettings())[JAVA_OPTIONS]
    assert str(archive) not in classic_config(SparkSettings(master="spark://host:7077"))[JAVA_OPTIONS]


@pytest.mark.prove
@pytest.mark.e2e
def test_what_make_setup_made_is_taken_by_java(tmp_path: Path):
    """Of the classes of a start most come from the archive."""
    assert make_class_archive()
    done = started(sys.prefix, f"-Xlog:class+load:file={tmp_path / 'classes'}")
    assert done.stdout == "7\n", done.stderr
    loaded = (tmp_path / "classes").read_text().splitlines()
    assert sum("shared objects file (top)" in line for line in loaded) > len(loaded) / 2


@pytest.mark.prove
@pytest.mark.e2e
def test_a_damaged_archive_is_not_used(elsewhere: Path):
    """A JVM starts without an archive that it cannot read, and says nothing of it."""
    class_archive().write_bytes(b"no archive" * 10_000)
    done = started(str(elsewhere))
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_an_environment_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where nothing can be written there is no archive, and no error."""
    (tmp_path / "share").write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert not make_class_archive()
