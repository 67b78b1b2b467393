"""Delta's jars and two small ones: fetched once by their Maven coordinates, or taken from a folder.

`python -m backfill_assets.spark.jars` fetches what is not there yet.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from backfill_assets.core.words import shortened
from backfill_assets.errors import NOTHING_WRITTEN, SparkUnavailableError
from backfill_assets.spark.java import cache_folder, find_java
from backfill_assets.spark.settings import DELTA_VERSION, SparkSettings

JARS = (
    "delta-spark_4.2_2.13",
    "delta-storage",
    "delta-kernel-api",
    "delta-kernel-defaults",
    "delta-kernel-unitycatalog",
)
"""The jars of `io.delta` that Delta needs; everything else in its dependency tree Spark ships itself."""


FILE_SYSTEM = ("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0")
"""Makes files on this disk as Hadoop does, but without a process for the permissions of each; Apache License 2.0.

Nothing depends on it.
"""

FILE_SYSTEM_CLASS = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"

POSTGRES_DRIVER = ("org.postgresql", "postgresql", "42.7.8")
"""Reads tables of a PostgreSQL database; BSD 2-Clause License. Only sources of `kind: jdbc` depend on it."""

POSTGRES_DRIVER_CLASS = "org.postgresql.Driver"

FETCH_TIMEOUT_SECONDS = 600.0


def delta_jars(settings: SparkSettings) -> list[Path]:
    """Return the Delta jars: from the folder that was given, or from the cache, which is filled once.

    Raises:
        SparkUnavailableError: A jar is missing or damaged, or could not be fetched.
    """
    names = [f"{name}-{DELTA_VERSION}.jar" for name in JARS]
    if settings.jars_dir is not None:
        jars = [settings.jars_dir / name for name in names]
        if wrong := [jar.name for jar in jars if not _is_whole(jar)]:
            raise SparkUnavailableError(
                f"`SPARK_JARS_DIR` (`{settings.jars_dir}`) lacks {', '.join(wrong)}, or they are damaged.",
                state=NOTHING_WRITTEN,
                remedy=f"Copy them from a machine with a network: there they are in `{cache_folder()}` after `make "
                "setup`.",
            )
        return jars
    cache = cache_folder()
    jars = [cache / name for name in names]
    if all(_is_whole(jar) for jar in jars):
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / ".lock"):
        if not all(_is_whole(jar) for jar in jars):
            fetch_jars([("io.delta", name, DELTA_VERSION) for name in JARS], cache)
            for extra in (FILE_SYSTEM, POSTGRES_DRIVER):
                with suppress(SparkUnavailableError):
                    fetch_jars([extra], cache)
    if wrong := [jar.name for jar in jars if not _is_whole(jar)]:
        raise SparkUnavailableError(
            f"{', '.join(wrong)} could not be fetched whole into `{cache}`.",
            state=NOTHING_WRITTEN,
            remedy="Delete that folder and try again, or name a folder with the jars in SPARK_JARS_DIR.",
        )
    return jars


def file_system_jar(settings: SparkSettings) -> Path | None:
    """Return the jar of `FILE_SYSTEM`; None where it was not fetched, without which all is as right, and slower."""
    return _jar_of(FILE_SYSTEM, settings)


def postgres_driver_jar(settings: SparkSettings) -> Path | None:
    """Return the jar of `POSTGRES_DRIVER`; None where it was not fetched."""
    return _jar_of(POSTGRES_DRIVER, settings)


def _jar_of(coordinates: tuple[str, str, str], settings: SparkSettings) -> Path | None:
    _, name, revision = coordinates
    jar = (settings.jars_dir or cache_folder()) / f"{name}-{revision}.jar"
    return jar if _is_whole(jar) else None


def _is_whole(jar: Path) -> bool:
    """Say whether a jar is there and its directory can be read; a download that broke off has none."""
    try:
        found = jar.stat()
        return _has_directory(jar, found.st_size, found.st_mtime_ns)
    except (OSError, zipfile.BadZipFile):
        return False


@lru_cache
def _has_directory(jar: Path, size: int, changed: int) -> bool:
    """Say whether a jar, as it is now, has entries; it is read once."""
    del size, changed
    with zipfile.ZipFile(jar) as opened:
        return bool(opened.namelist())


def fetch_jars(coordinates: Sequence[tuple[str, str, str]], folder: Path) -> list[Path]:
    """Fetch jars by Maven coordinates, with the Ivy that Spark ships, and move them into a folder whole.

    Args:
        coordinates: Group, artifact and version of each; what they depend on is not fetched.

    Raises:
        SparkUnavailableError: One of them could not be fetched. None was moved.
    """
    import pyspark

    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    wanted = "".join(
        f'<dependency org="{group}" name="{name}" rev="{revision}" transitive="false" conf="default->master"/>'
        for group, name, revision in coordinates
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(
            '<ivy-module version="2.0"><info organisation="backfill_assets" module="jars"/>'
            f"<dependencies>{wanted}</dependencies></ivy-module>"
        )
        command = [
            str(find_java()), "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(module), "-cache", f"{scratch}/ivy",
            "-retrieve", f"{scratch}/[artifact]-[revision].[ext]", "-types", "jar", "-warn",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_SECONDS)  # noqa: S603 (fixed arguments)
            said = _last_line(done.stdout + done.stderr)
        except subprocess.TimeoutExpired:
            said = f"no answer within {FETCH_TIMEOUT_SECONDS:.0f} s"
        jars = [Path(scratch) / f"{name}-{revision}.jar" for _, name, revision in coordinates]
        if missing := [jar.name for jar in jars if not _is_whole(jar)]:
            raise SparkUnavailableError(
                f"Jars could not be fetched ({', '.join(missing)}): {said}",
                state=NOTHING_WRITTEN,
                remedy="Check the network to your Maven repository, or copy the jars into a folder and name it in "
                "SPARK_JARS_DIR. "
                "A `~/.m2` that holds a POM without its jar gives the same error: delete that entry.",
            )
        return [jar.replace(folder / jar.name) for jar in jars]


def main() -> None:
    """Fetch what the cache lacks."""
    settings = SparkSettings()
    delta_jars(settings)
    for jar, coordinates, without in (
        (file_system_jar(settings), FILE_SYSTEM, "commits of many partitions take longer without it"),
        (postgres_driver_jar(settings), POSTGRES_DRIVER, "only sources of `kind: jdbc` need it"),
    ):
        if jar is None:
            try:
                fetch_jars([coordinates], cache_folder())
            except SparkUnavailableError as error:
                sys.stderr.write(f"{error}\nNothing else depends on it: {without}.\n")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    problems = [line for line in lines if re.search(r"not found|UNRESOLVED|failed|refused|timed out", line)]
    return shortened((problems or lines or ["no output"])[0], 300)


if __name__ == "__main__":
    main()
