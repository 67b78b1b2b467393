"""The Spark session: its jars, its settings, and clear words when the machine lacks something.

What needs the JVM sits here alone; everything else is DataFrame and SQL calls that work over Spark Connect too.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from backfill_assets.errors import NOTHING_WRITTEN, SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_VERSION = "4.4.0"
SPARK_VERSION = "4.2.0"
JARS = ("delta-spark_4.2_2.13", "delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
"""The jars of `io.delta` that Delta needs; everything else in its dependency tree Spark ships itself."""

JAVA_VERSIONS = (17, 21)
FETCH_TIMEOUT_SECONDS = 600.0
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and what it may use.

    Args:
        master: Classic Spark: `local[*]` or a cluster's URL.
        remote: A Spark Connect server, `sc://host:port`; the master is not used then.
        driver_memory: For a driver that this process starts.
        jars_dir: Folder with the Delta jars, for machines without a network; else they are fetched once into a cache.
        extra: More Spark settings; they win over the project's own.
    """

    master: str = "local[*]"
    remote: str | None = None
    driver_memory: str = "2g"
    jars_dir: Path | None = None
    extra: Mapping[str, str] = field(default_factory=dict[str, str])


def settings_from_environment(environment: Mapping[str, str]) -> SparkSettings:
    """Read `SPARK_MASTER`, `SPARK_REMOTE`, `SPARK_DRIVER_MEMORY`, `SPARK_JARS_DIR` and `SPARK_EXTRA_CONF` (`a=b;c=d`)."""
    pairs = [pair.partition("=") for pair in environment.get("SPARK_EXTRA_CONF", "").split(";") if pair.strip()]
    jars_dir = environment.get("SPARK_JARS_DIR")
    return SparkSettings(
        master=environment.get("SPARK_MASTER", "local[*]"),
        remote=environment.get("SPARK_REMOTE") or None,
        driver_memory=environment.get("SPARK_DRIVER_MEMORY", "2g"),
        jars_dir=Path(jars_dir) if jars_dir else None,
        extra={name.strip(): value.strip() for name, _, value in pairs},
    )


def classic_config(settings: SparkSettings) -> dict[str, str]:
    """Return every setting of a classic session; checks Java and fetches the jars if that was not done.

    Raises:
        SparkUnavailableError: Java, a jar or the right version of Spark is missing.
    """
    check_versions()
    check_java()
    jars = delta_jars(settings)
    cores = _cores(settings.master)
    is_local = settings.master.startswith("local")
    java_options = f"-Duser.timezone=UTC -XX:+UseParallelGC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    if is_local:  # a launch of a minute spends more on compiling twice than the better code saves
        java_options += " -XX:TieredStopAtLevel=1"
        if (archive := class_archive()).exists():  # a JVM that it does not fit starts without it; that need not be said
            java_options += f" -XX:SharedArchiveFile={archive} -Xlog:disable"
    return {
        "spark.master": settings.master,
        "spark.app.name": "backfill_assets",
        **({"spark.executor.killOnFatalError.depth": "0"} if is_local else {}),  # out of memory fails the task, not the JVM
        "spark.driver.memory": settings.driver_memory,
        JAVA_OPTIONS: f"{java_options} {settings.extra.get(JAVA_OPTIONS, '')}".strip(),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        **_on_the_class_path(jars, settings),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"} if is_local else {}),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(2 * cores),
        **SESSION_SETTINGS,
        **{name: value for name, value in settings.extra.items() if name not in (CLASS_PATH, JAVA_OPTIONS)},
    }


CLASS_PATH = "spark.driver.extraClassPath"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""Two settings that are joined with a user's own instead of replaced by them."""


def _on_the_class_path(jars: Sequence[Path], settings: SparkSettings) -> dict[str, str]:
    """Return the settings that give Spark its jars: a local driver has them at start, executors elsewhere are sent them."""
    given = [settings.extra[CLASS_PATH]] if CLASS_PATH in settings.extra else []
    if settings.master.startswith("local"):
        return {CLASS_PATH: os.pathsep.join([*map(str, jars), *given])}
    return {"spark.jars": ",".join(map(str, jars)), **({CLASS_PATH: given[0]} if given else {})}


SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default writes INT96, which other readers dislike
    "spark.sql.parquet.compression.codec": "zstd",  # half the size of snappy, and no slower
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # list in the driver: a job of 1,096 tasks costs more
    "spark.sql.files.openCostInBytes": "65536",  # many small files share a task
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # staged rows are kept for seconds
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks is for logs of millions of files
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "true",
    "spark.databricks.delta.stats.collect": "true",
    "spark.databricks.delta.skipRecordingEmptyCommits": "false",  # a partition that had no rows and has none is published too
}
"""What a session must have whatever it runs on; `connect.py` sets it again on a Connect session, which brings its own."""


def start_jvm(config: Mapping[str, str]) -> None:
    """Start the JVM that a classic session will use, without the lines that Java and Spark print at every start.

    What the JVM says on standard error later is passed on. Does nothing if this process has a JVM already.

    Raises:
        SparkUnavailableError: The JVM ended at once; the message has its last words.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 (PySpark has no public way to tell)
        return
    if config["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark looks the host's name up, and warns
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else a transform's Python functions run in any `python3` on the path
    conf = SparkConf(loadDefaults=False).setAll(list(config.items()))
    read_end, write_end = os.pipe()
    words: deque[str] = deque(maxlen=20)
    listener = threading.Thread(target=_pass_on, args=(read_end, words), name="jvm-stderr", daemon=True)
    listener.start()
    try:
        gateway = launch_gateway(conf, {"stderr": write_end})
    except PySparkRuntimeError as error:
        os.close(write_end)
        listener.join(timeout=2)
        raise SparkUnavailableError(
            f"Spark's JVM did not start: {' '.join(words)[-600:] or error}",
            state=NOTHING_WRITTEN,
            remedy="Look at what Java says; often it is too little memory (SPARK_DRIVER_MEMORY) or a setting in SPARK_EXTRA_CONF.",
        ) from error
    os.close(write_end)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 (as above; PySpark's own tests do it)


def start_session(config: Mapping[str, str]) -> SparkSession:
    """Start the JVM and return its session, for processes that are no Dagster run.

    Raises:
        SparkUnavailableError: As `start_jvm`.
    """
    from pyspark.sql import SparkSession

    start_jvm(config)
    builder = SparkSession.builder
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


_EVERY_START = ("Using incubator modules", "Setting default log level", "To adjust logging level use")


def _pass_on(read_end: int, words: deque[str]) -> None:
    """Copy the JVM's standard error to ours, without what it says at every start."""
    with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words.append(line.strip())
            if not any(known in line for known in _EVERY_START):
                sys.stderr.write(line)


# -- what the machine must have ----------------------------------------------------------------------------------------


def check_versions() -> None:
    """Raise unless PySpark and Delta are the pair that was tested together."""
    found = version("pyspark"), version("delta-spark")
    if found != (SPARK_VERSION, DELTA_VERSION):
        raise SparkUnavailableError(
            f"PySpark {found[0]} and delta-spark {found[1]} are installed; they must be {SPARK_VERSION} and {DELTA_VERSION}.",
            state=NOTHING_WRITTEN,
            remedy=f"pip install pyspark=={SPARK_VERSION} delta-spark=={DELTA_VERSION}",
        )


def check_java() -> None:
    """Raise unless there is a Java that Spark runs on."""
    remedy = "Install one, for example `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, or set JAVA_HOME."
    java = _java()
    if java is None:
        raise SparkUnavailableError("Java was not found, and Spark needs version 17 or 21.", state=NOTHING_WRITTEN, remedy=remedy)
    major = _java_major(java)
    if major not in JAVA_VERSIONS:
        raise SparkUnavailableError(
            f"Java {major} at `{java}` is not one that Spark runs on; it needs version 17 or 21.", state=NOTHING_WRITTEN, remedy=remedy
        )


def _java() -> Path | None:
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


# -- jars --------------------------------------------------------------------------------------------------------------


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
                remedy=f"Copy them from a machine with a network: there they are in `{_cache()}` after `make setup`.",
            )
        return jars
    cache = _cache()
    jars = [cache / name for name in names]
    if all(_is_whole(jar) for jar in jars):
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / ".lock"):
        if not all(_is_whole(jar) for jar in jars):
            fetch_jars([("io.delta", name, DELTA_VERSION) for name in JARS], cache)
    if wrong := [jar.name for jar in jars if not _is_whole(jar)]:
        raise SparkUnavailableError(
            f"{', '.join(wrong)} could not be fetched whole into `{cache}`.",
            state=NOTHING_WRITTEN,
            remedy="Delete that folder and try again, or name a folder with the jars in SPARK_JARS_DIR.",
        )
    return jars


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "backfill_assets" / f"delta-{DELTA_VERSION}"


def class_archive() -> Path:
    """Return where this Java's archive of Spark's loaded classes lies, with which a JVM starts some seconds faster.

    `python -m backfill_assets.spark.class_archive` makes it; nothing depends on it.
    """
    java = _java()
    release = java.resolve().parent.parent / "release" if java else None
    text = release.read_text() if release and release.exists() else ""
    return _cache() / f"classes-{SPARK_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.jsa"


def _is_whole(jar: Path) -> bool:
    """Say whether a jar is there and its directory can be read; a download that broke off has none."""
    try:
        with zipfile.ZipFile(jar) as opened:
            return bool(opened.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


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
            str(_java()), "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(module), "-cache", f"{scratch}/ivy",
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
                remedy="Check the network to your Maven repository, or copy the jars into a folder and name it in SPARK_JARS_DIR. "
                "A `~/.m2` that holds a POM without its jar gives the same error: delete that entry.",
            )
        return [jar.replace(folder / jar.name) for jar in jars]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    problems = [line for line in lines if re.search(r"not found|UNRESOLVED|failed|refused|timed out", line)]
    return (problems or lines or ["no output"])[0][:300]


def _cores(master: str) -> int:
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if match is None or match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)
