"""What a failed call to Spark means: a short list lasts, everything else may pass, and each has a sentence."""

from __future__ import annotations

import re

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, PythonException

from backfill_assets.core.history.effects import may_pass
from backfill_assets.errors import (
    BackfillAssetsError,
    EngineFailedError,
    EngineRefusedError,
    UnreadableSourceError,
    UnreadableTableError,
)
from backfill_assets.spark.failures import translate_spark_error

TABLE, PATH = "bronze/visits", "/lake/tables/bronze/visits"


class JavaError(Py4JJavaError):
    """A failure as py4j words it, without a JVM that could be asked."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self)
        self.text = text

    def __str__(self) -> str:
        return f"An error occurred while calling o643.save.\n: {self.text}\n\tat x.Y.z(Y.scala:1)\n"


class PathGoneError(AnalysisException):
    """A failure of an analysis as a session words it, with its condition."""

    def getCondition(self) -> str:  # noqa: N802 (Spark's name)
        return "PATH_NOT_FOUND"


def meaning(error: Exception, path: str | None = None) -> BackfillAssetsError:
    ours = translate_spark_error(error, TABLE, path)
    assert ours is not None
    return ours


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.spark.sql.delta.DeltaIllegalStateException: [DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (1, 3) are "
        "not contiguous. \nA gap in the delta log was detected.",
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t. SQLSTATE: "
        "58030\n\tat a.B.c(B.java:1)\nCaused by: java.io.FileNotFoundException: File file:/t/part-0 does not exist",
        "org.apache.spark.sql.delta.DeltaFileNotFoundException: [DELTA_TRUNCATED_TRANSACTION_LOG] file:/t/0.json: gone",
        "org.apache.spark.sql.delta.DeltaFileNotFoundException: [DELTA_LOG_FILE_NOT_FOUND] Unable to retrieve files",
        "java.lang.IllegalStateException: a checkpoint has vanished",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).",
    ],
)
def test_unknown_failure_may_pass(text):
    """A failure of Java that no list names is asked again, and its sentence has nothing of Java's packages."""
    ours = meaning(JavaError(text))

    assert type(ours) is EngineFailedError
    assert may_pass(ours)
    assert ours.what.startswith("`bronze/visits`: Spark failed: ")
    assert not re.search(r"org\.apache|java\.|SQLSTATE|: :|o643|\tat ", str(ours))


def test_failure_over_connect_may_pass_too():
    """The words of a Connect server mean what those of a JVM do."""
    ours = meaning(PySparkException("(org.apache.spark.SparkException) [TASK_WRITE_FAILED] Task failed."))
    assert (type(ours), ours.what) == (
        EngineFailedError,
        "`bronze/visits`: Spark failed: [TASK_WRITE_FAILED] Task failed.",
    )


@pytest.mark.parametrize(
    "error",
    [
        PySparkException("[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (1, 3) are not contiguous."),
        PathGoneError("[PATH_NOT_FOUND] Path does not exist: file:/landing/a.json."),
    ],
)
def test_look_that_was_overtaken_may_pass(error):
    """A listing that others overtook is no answer, whatever class reports it."""
    assert may_pass(meaning(error))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (IllegalArgumentException("requirement failed: a setting"), "requirement failed: a setting"),
        (AnalysisException("[UNRESOLVED_COLUMN] A column `nope` cannot be resolved."), "`nope` cannot be resolved"),
        (
            PythonException(
                'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "/a/sales.py", '
                'line 14, in bad\n    def bad(x): raise ValueError("boom")\n                ^^^^^\nValueError: boom\n'
            ),
            "ValueError: boom (sales.py, line 14)",
        ),
        (
            JavaError(
                "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\nCaused by: "
                "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
                '  File "/a/sales.py", line 3, in bad\nKeyError: 1\n'
            ),
            "KeyError: 1 (sales.py, line 3)",
        ),
        (JavaError("x.D: [DELTA_UNSUPPORTED_FEATURES_FOR_WRITE] Unsupported Delta write feature"), "write feature"),
        (
            JavaError("x.SparkException: [SPARK_JOB_CANCELLED] Job 51 cancelled as part of cancellation of all jobs"),
            "canceled",
        ),
        (PySparkException("[OPERATION_CANCELED] Operation has been canceled."), "canceled"),
    ],
)
def test_failure_of_code_or_settings_lasts(error, said):
    """Code of a user, a setting, an unknown feature, a stop: asking again does not help."""
    ours = meaning(error)

    assert type(ours) is EngineRefusedError
    assert not may_pass(ours)
    assert said in ours.what


GONE = (
    "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
    "file:/lake/{}/part-0.parquet. File does not exist. It is possible the underlying files have been updated.\n"
    "You can explicitly invalidate the cache. SQLSTATE: KD001"
)


@pytest.mark.parametrize(
    ("folder", "kind", "remedy"),
    [
        ("tables/bronze/visits/dt=2024-05-01", UnreadableTableError, "Launch that partition again"),
        ("landing/visits/2024/05/01", UnreadableSourceError, "restore or remove it"),
    ],
)
def test_file_of_table_is_no_file_of_source(folder, kind, remedy):
    """A file that is gone is named, and whether it is the table's or the source's decides what is to be done."""
    ours = meaning(JavaError(GONE.format(folder)), PATH)

    assert type(ours) is kind
    assert f"the file `file:/lake/{folder}/part-0.parquet` cannot be read: it does not exist" in ours.what
    assert remedy in ours.remedy


def test_damaged_file_gives_innermost_reason():
    """A file that is there and cannot be read says why, in the words of whoever read it."""
    text = "x.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/a.parquet.  \n"
    ours = meaning(
        JavaError(f"{text}Caused by: org.apache.hadoop.fs.ChecksumException: Checksum error: file:/a.parquet")
    )
    assert "`file:/a.parquet` cannot be read: [FAILED_READ_FILE.NO_HINT] ChecksumException: Checksum error" in ours.what
