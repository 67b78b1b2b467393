"""The Java that Spark runs on, and what is cached for it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from backfill_assets.errors import NOTHING_WRITTEN, SparkUnavailableError
from backfill_assets.spark.settings import DELTA_VERSION, SPARK_VERSION

JAVA_VERSIONS = (17, 21)


def check_java() -> None:
    """Raise unless there is a Java that Spark runs on."""
    remedy = (
        "Install one, for example `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, "
        "or set JAVA_HOME."
    )
    java = find_java()
    if java is None:
        raise SparkUnavailableError(
            "Java was not found, and Spark needs version 17 or 21.", state=NOTHING_WRITTEN, remedy=remedy
        )
    major = _java_major(java)
    if major not in JAVA_VERSIONS:
        raise SparkUnavailableError(
            f"Java {major} at `{java}` is not one that Spark runs on; it needs version 17 or 21.",
            state=NOTHING_WRITTEN,
            remedy=remedy,
        )


def find_java() -> Path | None:
    """Return the Java that Spark will start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.exists() else None
    found = shutil.which("java")
    return Path(found) if found else None


def _java_major(java: Path) -> int:
    release = java.resolve().parent.parent / "release"
    text = release.read_text() if release.exists() else ""
    if "JAVA_VERSION=" not in text:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 (the Java that Spark will start)
    match = re.search(r'"(\d+)(?:\.(\d+))?', text)
    if match is None:
        return 0
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def cache_folder() -> Path:
    """Return the folder of what is fetched or made once for all projects of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "backfill_assets" / f"delta-{DELTA_VERSION}"


def class_archive() -> Path:
    """Return where the archive of Spark's loaded classes lies, with which a JVM starts some seconds faster.

    It is of one Java and of one installation of Spark, whose jars it names with their times, and lies in the virtual
    environment that has that. `python -m backfill_assets.table.class_archive` makes it; nothing depends on it.
    """
    java = find_java()
    release = java.resolve().parent.parent / "release" if java else None
    jars = _spark_home() / "jars"
    facts = f"{release.read_text() if release and release.exists() else ''}\n{jars}\n"
    facts += str(jars.stat().st_mtime_ns) if jars.exists() else ""
    facts += "".join(sorted(jar.name for jar in cache_folder().glob("*.jar")))  # they are on the class path too
    is_virtual = sys.prefix != sys.base_prefix
    folder = Path(sys.prefix, "share", "backfill_assets") if is_virtual else cache_folder()
    return folder / f"classes-{SPARK_VERSION}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}.jsa"


def _spark_home() -> Path:
    package = importlib.util.find_spec("pyspark")
    return Path(os.environ.get("SPARK_HOME") or Path(package.origin if package and package.origin else "").parent)
