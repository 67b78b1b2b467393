"""The session: what it is told, what the machine must have, and clear words when something is lacking."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from backfill_assets.errors import ConfigurationError, SparkUnavailableError
from backfill_assets.spark import session
from backfill_assets.spark.jars import FILE_SYSTEM, JARS, POSTGRES_DRIVER, delta_jars
from backfill_assets.spark.java import check_java
from backfill_assets.spark.session import check_versions, classic_config
from backfill_assets.spark.settings import (
    DELTA_VERSION,
    LOCAL_FILE_SYSTEM,
    SESSION_SETTINGS,
    SparkSettings,
    settings_from_environment,
    share_of_memory,
)

NAMES = [f"{name}-{DELTA_VERSION}.jar" for name in JARS]
FILES = f"{FILE_SYSTEM[1]}-{FILE_SYSTEM[2]}.jar"
DRIVER = f"{POSTGRES_DRIVER[1]}-{POSTGRES_DRIVER[2]}.jar"


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    """The true jars; fetched if this machine never ran Spark."""
    return delta_jars(SparkSettings())


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "backfill_assets" / f"delta-{DELTA_VERSION}"


def fake_java(home: Path, script: str, *, release: str | None = None) -> Path:
    """A JAVA_HOME whose `java` is a shell script."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'JAVA_VERSION="{release}"\n')
    return home


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_come_from_the_environment():
    """Five variables; what is not set, or empty, has its default."""
    assert settings_from_environment({}) == SparkSettings(
        master="local[*]", remote=None, driver_memory=share_of_memory(), jars_dir=None, extra={}
    )
    assert settings_from_environment(
        {
            "SPARK_MASTER": "spark://host:7077", "SPARK_REMOTE": "sc://host", "SPARK_DRIVER_MEMORY": "5g", "SPARK_JARS_DIR": "/jars",
            "SPARK_EXTRA_CONF": "spark.a=1; spark.b = x=y ;;",
        }
    ) == SparkSettings("spark://host:7077", "sc://host", "5g", Path("/jars"), {"spark.a": "1", "spark.b": "x=y"})  # fmt: skip
    assert (
        settings_from_environment({"SPARK_REMOTE": "", "SPARK_JARS_DIR": "", "SPARK_EXTRA_CONF": "", "SPARK_DRIVER_MEMORY": ""})
        == SparkSettings()
    )  # fmt: skip


def test_a_part_that_is_no_setting_is_refused():
    """A value with a semicolon in it would be cut there, and the rest would be a setting of no value. It is not shown."""
    with pytest.raises(ConfigurationError, match=r"part 2 of 3 has no `=`") as refused:
        settings_from_environment({"SPARK_EXTRA_CONF": "spark.hadoop.fs.s3a.secret.key=a;canary;spark.b=1"})
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("limit", "memory"),
    [
        (f"{12 * 2**30}\n", "3072m"),
        (f"{2 * 2**30}\n", "1024m"),
        (f"{16 * 2**30}\n", "4096m"),
        (f"{400 * 2**30}\n", "8192m"),
        ("max\n", "8192m"),
        (None, "8192m"),
    ],
)
def test_a_driver_gets_a_quarter_of_the_memory(limit, memory, monkeypatch, tmp_path):
    """A quarter of the machine's, or of its container's if that has less; one to eight gigabytes."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * 2**30 // 4096}.__getitem__)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)

    assert share_of_memory([tmp_path / "memory.max", tmp_path / "of_another_kernel"]) == memory


def test_extra_settings_win(jars):
    """What a user sets wins over the project's own; nothing is downloaded by Spark itself."""
    config = classic_config(
        SparkSettings(master="local[3]", extra={"spark.sql.shuffle.partitions": "99", "spark.mine": "1"})
    )

    assert config["spark.sql.shuffle.partitions"] == "99"
    assert config["spark.mine"] == "1"
    assert config.items() >= SESSION_SETTINGS.items()
    beside = [str(jars[0].with_name(name)) for name in (FILES, DRIVER)]
    assert config["spark.driver.extraClassPath"].split(":") == [*map(str, jars), *beside]
    on_a_cluster = classic_config(SparkSettings(master="spark://host:7077"))["spark.jars"].split(",")
    assert on_a_cluster == [*map(str, jars), beside[1]]
    more = SparkSettings(master="spark://host:7077", extra={"spark.jars": "/jars/s3.jar,/jars/sdk.jar"})
    assert classic_config(more)["spark.jars"].split(",") == [*on_a_cluster, "/jars/s3.jar", "/jars/sdk.jar"]
    assert not any("packages" in name for name in config)
    assert classic_config(SparkSettings(master="local[3]"))["spark.sql.shuffle.partitions"] == "6"


def test_the_session_is_as_it_is_configured(spark):
    """The settings that a safe write needs are in force in the session."""
    assert {name: spark.conf.get(name) for name in SESSION_SETTINGS} == SESSION_SETTINGS
    assert spark.sql("SELECT current_timezone()").collect()[0][0] == "UTC"


def test_python_functions_run_in_this_environment(spark):
    """A transform's Python function finds the packages of the process that launched it, whatever `python3` is on the path."""

    @F.udf("string")
    def interpreter(_):
        import sys

        return sys.prefix

    assert spark.range(1).select(interpreter("id")).collect()[0][0] == sys.prefix


# -- Java --------------------------------------------------------------------------------------------------------------


def test_without_java(monkeypatch, tmp_path):
    """No Java on the path, or a JAVA_HOME without one: the message says which versions and how to get them."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SparkUnavailableError,
        match="Java was not found, and Spark needs version 17 or 21. Nothing was written. Install one",
    ):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkUnavailableError, match="apt-get install openjdk-17-jre-headless"):
        check_java()


@pytest.mark.parametrize(
    ("script", "release", "major"),
    [
        ("exit 1", "11.0.22", 11),
        ("exit 1", "1.8.0_392", 8),
        ("""echo 'openjdk version "25" 2025-09-16' >&2""", None, 25),
        ("""echo 'java version "1.8.0_392"' >&2""", None, 8),
    ],
)
def test_a_java_that_spark_does_not_run_on(monkeypatch, tmp_path, script, release, major):
    """An older or newer Java is named with its version and place."""
    home = fake_java(tmp_path, script, release=release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(
        SparkUnavailableError,
        match=f"Java {major} at `{home}/bin/java` is not one that Spark runs on; it needs version 17 or 21",
    ):
        check_java()


@pytest.mark.parametrize("release", ["17.0.15", "21", "21.0.4+7"])
def test_a_java_that_spark_runs_on(monkeypatch, tmp_path, release):
    """Versions 17 and 21 pass."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "exit 1", release=release)))
    check_java()


def test_another_pair_of_versions(monkeypatch):
    """Any other PySpark than the one that Delta has a jar for is refused, with the command that installs the pair."""
    monkeypatch.setattr(session, "version", lambda name: {"pyspark": "4.3.0", "delta-spark": "4.4.0"}[name])
    with pytest.raises(
        SparkUnavailableError,
        match="PySpark 4.3.0 and delta-spark 4.4.0 are installed.*pip install pyspark==4.2.0 delta-spark==4.4.0",
    ):
        check_versions()


# -- jars --------------------------------------------------------------------------------------------------------------


def test_a_folder_of_jars_is_used(jars, tmp_path, empty_cache):
    """With a folder of jars neither network nor cache is needed."""
    for jar in jars:
        (tmp_path / jar.name).symlink_to(jar)
    settings = SparkSettings(jars_dir=tmp_path)
    assert delta_jars(settings) == [tmp_path / name for name in NAMES]
    assert not empty_cache.exists()
    assert LOCAL_FILE_SYSTEM not in classic_config(settings)  # nothing depends on it
    (tmp_path / FILES).symlink_to(jars[0].with_name(FILES))
    assert classic_config(settings)["spark.driver.extraClassPath"].endswith(f":{tmp_path / FILES}")
    assert LOCAL_FILE_SYSTEM in classic_config(settings)


def test_a_folder_that_lacks_jars(jars, tmp_path):
    """Missing and damaged jars are named, and where whole ones are found."""
    for jar in jars[2:]:
        (tmp_path / jar.name).symlink_to(jar)
    (tmp_path / NAMES[1]).write_bytes(jars[1].read_bytes()[:-1000])
    with pytest.raises(
        SparkUnavailableError,
        match=f"`SPARK_JARS_DIR` \\(`{tmp_path}`\\) lacks {NAMES[0]}, {NAMES[1]}, or they are damaged",
    ) as caught:
        delta_jars(SparkSettings(jars_dir=tmp_path))
    assert "make setup" in caught.value.remedy


@pytest.mark.prove
def test_jars_are_fetched_once(empty_cache):
    """Into an empty cache the jars are fetched whole, with nothing left beside them; a damaged one is fetched again."""
    fetched = delta_jars(SparkSettings())
    assert fetched == [empty_cache / name for name in NAMES]
    assert sorted(path.name for path in empty_cache.iterdir() if path.name != ".lock") == sorted(
        [*NAMES, FILES, DRIVER]
    )
    before = {jar.name: jar.stat().st_mtime_ns for jar in fetched}
    assert delta_jars(SparkSettings()) == fetched
    assert {jar.name: jar.stat().st_mtime_ns for jar in fetched} == before

    whole = fetched[1].read_bytes()
    fetched[1].write_bytes(whole[:100])
    assert delta_jars(SparkSettings()) == fetched
    assert fetched[1].read_bytes() == whole


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo ':: problems summary ::'; echo '  Server access error at url https://maven.example.org: Connection refused'",
            "Connection refused",
        ),
        (
            "echo 'module not found: io.delta#delta-storage;4.4.0' >&2; exit 1",
            "module not found: io.delta#delta-storage",
        ),
        ("exit 1", "no output"),
    ],
)
def test_a_repository_that_cannot_be_reached(empty_cache, monkeypatch, tmp_path, script, words):
    """The error names the jars and what the fetch said, says what to do, and leaves no half cache behind."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", script)))
    with pytest.raises(SparkUnavailableError, match="Jars could not be fetched") as caught:
        delta_jars(SparkSettings())
    assert words in caught.value.what
    assert NAMES[0] in caught.value.what
    assert "SPARK_JARS_DIR" in caught.value.remedy
    assert [path.name for path in empty_cache.iterdir() if path.name != ".lock"] == []
