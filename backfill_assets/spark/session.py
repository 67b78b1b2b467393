"""The Spark session: its jars, its settings, and clear words when the machine lacks something.

What needs the JVM sits here alone; everything else is DataFrame and SQL calls that work over Spark Connect too.
"""

from __future__ import annotations

import codecs
import locale
import os
import re
import shlex
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_assets.errors import NOTHING_WRITTEN, SparkUnavailableError
from backfill_assets.spark.jars import FILE_SYSTEM_CLASS, delta_jars, file_system_jar, postgres_driver_jar
from backfill_assets.spark.java import check_java, class_archive
from backfill_assets.spark.redaction import SECRET_NAMES, redacted, secrets_in, split_java_options
from backfill_assets.spark.settings import (
    CLASS_PATH,
    DELTA_VERSION,
    JARS,
    JAVA_OPTIONS,
    LOCAL_FILE_SYSTEM,
    SESSION_SETTINGS,
    SPARK_VERSION,
    SparkSettings,
)

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession


# Each flag states its gain, measured on two cores. A launch of one partition takes 8 % longer with G1, and 27 % longer
# without the archive of classes. If Java compiled once it would take 13 % less, but 400 MB of JSON twice as long.
_COLLECT_IN_PARALLEL = "-XX:+UseParallelGC"

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


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
    file_system = file_system_jar(settings) if is_local else None
    jars += [jar for jar in (file_system, postgres_driver_jar(settings)) if jar]
    java_options = f"-Duser.timezone=UTC {_COLLECT_IN_PARALLEL} -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    if is_local and (archive := class_archive()).exists():  # a JVM that it does not fit starts without it, in silence
        java_options += f" -XX:SharedArchiveFile={archive} -Xlog:disable"
    return {
        "spark.master": settings.master,
        "spark.app.name": "backfill_assets",
        **(
            {"spark.executor.killOnFatalError.depth": "0"} if is_local else {}
        ),  # out of memory fails the task, not the JVM
        "spark.driver.memory": settings.driver_memory,
        JAVA_OPTIONS: f"{java_options} {settings.extra.get(JAVA_OPTIONS, '')}".strip(),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        **_on_the_class_path(jars, settings),
        **({LOCAL_FILE_SYSTEM: FILE_SYSTEM_CLASS} if file_system else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": SECRET_NAMES,
        **({"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"} if is_local else {}),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(2 * cores),
        **SESSION_SETTINGS,
        **{name: value for name, value in settings.extra.items() if name not in (CLASS_PATH, JAVA_OPTIONS, JARS)},
    }


def _on_the_class_path(jars: Sequence[Path], settings: SparkSettings) -> dict[str, str]:
    """Return the settings that give Spark its jars: a local driver has them at start, executors elsewhere get them."""
    given = {name: settings.extra[name] for name in (CLASS_PATH, JARS) if name in settings.extra}
    name, between = (CLASS_PATH, os.pathsep) if settings.master.startswith("local") else (JARS, ",")
    return {**given, name: between.join([*map(str, jars), *([given[name]] if name in given else [])])}


def start_jvm(config: Mapping[str, str]) -> None:
    """Start the JVM that a classic session will use, without the lines that Java and Spark print at every start.

    Whatever the JVM says is passed on to standard error: standard output is for this process's own answer. The
    settings and Java's options, which may hold secrets, reach it in files that nobody else can read, not in its
    arguments, and what it says is passed on without them. Does nothing if this process has a JVM already.

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
        os.environ.setdefault(
            "PYSPARK_PYTHON", sys.executable
        )  # else a transform's Python functions run in any `python3` on the path
    _name_files_in_utf_8()
    conf = SparkConf(loadDefaults=False).setAll(list(config.items()))
    secrets = secrets_in(config)
    read_end, write_end = os.pipe()
    words: deque[str] = deque(maxlen=20)
    listener = threading.Thread(target=_pass_on, args=(read_end, words, secrets), name="jvm-output", daemon=True)
    listener.start()
    try:
        with _settings_files(config):
            gateway = launch_gateway(None, {"stdout": write_end, "stderr": write_end})
    except PySparkRuntimeError as error:
        os.close(write_end)
        listener.join(timeout=2)
        raise SparkUnavailableError(
            f"Spark's JVM did not start: {' '.join(words)[-600:] or error}",
            state=NOTHING_WRITTEN,
            remedy="Look at what Java says; often it is too little memory (SPARK_DRIVER_MEMORY) or a setting in "
            "SPARK_EXTRA_CONF.",
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


def end(session: SparkSession, *, timeout_seconds: float) -> None:
    """Stop a classic session, and wait until the JVM of this process has ended; one that does not end is killed.

    Raises:
        subprocess.TimeoutExpired: It had to be killed.
    """
    from py4j.protocol import Py4JError

    java: subprocess.Popen[bytes] = session.sparkContext._gateway.proc  # type: ignore[union-attr] (started above)  # noqa: SLF001 (PySpark does not wait for it)
    with suppress(Py4JError, ConnectionError):  # it may have died before
        session.stop()
    assert java.stdin is not None  # noqa: S101 (for the type checker)
    java.stdin.close()  # at which it ends
    try:
        java.wait(timeout_seconds)
    except BaseException:
        java.kill()
        raise


def _name_files_in_utf_8() -> None:
    """Have Java name files in UTF-8 where it would in ASCII: it leaves a file with other letters out without a word."""
    if codecs.lookup(locale.getencoding()).name == "ascii":  # `LC_ALL=C`, or a language that is not installed
        os.environ["LC_ALL"] = "C.UTF-8"


_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def _settings_files(config: Mapping[str, str]) -> Iterator[None]:
    """Have PySpark start its JVM with settings from files that only their owner can read, and that go away again.

    Spark would put Java's options into the JVM's arguments; there they are `@` and the name of such a file, which Java
    reads by itself.
    """
    given = os.environ.get(_SUBMIT_ARGS)
    options = "".join(f"{_quoted_for_java(option)}\n" for option in split_java_options(config.get(JAVA_OPTIONS, "")))
    with _private_file("java-", options) as of_java:
        told = {**config, JAVA_OPTIONS: f"@{of_java}"}
        lines = "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in told.items())
        with _private_file("spark-", lines) as of_spark:
            os.environ[_SUBMIT_ARGS] = f"--properties-file {shlex.quote(of_spark)} {given or 'pyspark-shell'}"
            try:
                yield
            finally:
                if given is None:
                    del os.environ[_SUBMIT_ARGS]
                else:
                    os.environ[_SUBMIT_ARGS] = given


@contextmanager
def _private_file(prefix: str, text: str) -> Iterator[str]:
    """Write a file that only its owner can read; yield its name, and delete it."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix=prefix, suffix=".conf") as file:  # mode 0600
        file.write(text)
        file.flush()
        yield file.name


def _quoted_for_java(option: str) -> str:
    """Return an option as Java reads it back from a file of arguments."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _escaped(text: str) -> str:
    """Return a name or a value as Java reads it back from a file of properties."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(named.get(letter) or (f"\\{letter}" if letter in "\\ =:#!" else letter) for letter in text)


_EVERY_START = (
    "Using incubator modules",
    "Setting default log level",
    "To adjust logging level use",
    "Picked up JAVA_TOOL_OPTIONS:",  # and what they are: a password of a proxy, for example
    "Picked up JDK_JAVA_OPTIONS:",
    "Picked up _JAVA_OPTIONS:",
)


def _pass_on(read_end: int, words: deque[str], secrets: frozenset[str]) -> None:
    """Copy what the JVM says to our standard error, without what it says at every start, and without secrets."""
    with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if any(known in line for known in _EVERY_START):
                continue
            said = redacted(line, secrets)
            words.append(said.strip())
            sys.stderr.write(said)


# -- what the machine must have ----------------------------------------------------------------------------------------


def check_versions() -> None:
    """Raise unless PySpark and Delta are the pair that was tested together."""
    found = version("pyspark"), version("delta-spark")
    if found != (SPARK_VERSION, DELTA_VERSION):
        raise SparkUnavailableError(
            f"PySpark {found[0]} and delta-spark {found[1]} are installed; they must be {SPARK_VERSION} and "
            f"{DELTA_VERSION}.",
            state=NOTHING_WRITTEN,
            remedy=f"pip install pyspark=={SPARK_VERSION} delta-spark=={DELTA_VERSION}",
        )


def _cores(master: str) -> int:
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if match is None or match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)
