"""The archive of classes: used where there is one, harmless where it is damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from backfill_assets.spark import java, session
from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.java import class_archive
from backfill_assets.spark.session import classic_config
from backfill_assets.spark.settings import DELTA_VERSION, JAVA_OPTIONS, SPARK_VERSION, SparkSettings

START = """
from backfill_assets.spark.session import classic_config, start_session
from backfill_assets.spark.settings import SparkSettings
config = classic_config(SparkSettings(master="local[1]"))
assert "SharedArchiveFile" in config["spark.driver.extraJavaOptions"]
print(start_session(config).range(7).count())
"""


def test_an_archive_is_used_where_there_is_one(tmp_path, monkeypatch):
    """Only a local session names it, and only if it is there; it is of this Spark, this Delta and this Java."""
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(session, "delta_jars", lambda _: [])
    archive = class_archive()
    assert SPARK_VERSION in archive.name
    assert str(archive) not in classic_config(SparkSettings())[JAVA_OPTIONS]
    archive.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={archive}" in classic_config(SparkSettings())[JAVA_OPTIONS]
    assert str(archive) not in classic_config(SparkSettings(master="spark://host:7077"))[JAVA_OPTIONS]


def test_a_damaged_archive_is_not_used(tmp_path, monkeypatch):
    """A JVM starts without an archive that it cannot read, and says nothing of it."""
    jars = delta_jars(SparkSettings())
    cache = tmp_path / "backfill_assets" / f"delta-{DELTA_VERSION}"
    cache.mkdir(parents=True)
    for jar in jars:
        (cache / jar.name).symlink_to(jar)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    class_archive().write_bytes(b"no archive" * 10_000)
    done = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
