"""What a failed call to Spark means: every kind of failure is listed here, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from backfill_assets.errors import (
    NOTHING_WRITTEN,
    STORAGE_REMEDY,
    TRIED_AGAIN,
    BackfillAssetsError,
    CommitConflictError,
    ExpressionError,
    MemoryExhaustedError,
    SourceUnavailableError,
    SparkGoneError,
    StorageError,
    TableRuleError,
    UnreadableSourceError,
    UnsafeWriteError,
)

SPARK_FAILURES = (PySparkException, Py4JError, ConnectionError)
"""What a failed Spark call raises: a job that fails is no PySparkException in a classic session, only py4j's error; a
JVM that is gone is an error of the connection to it."""

ANSWERED_FAILURES = (PySparkException, Py4JJavaError)
"""Those of them in which Spark itself answers that something failed, for example to read a file; Spark goes on."""

NO_TABLE = frozenset(
    {
        "PATH_NOT_FOUND",
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_ONLY_OPERATION",
    }
)
"""Conditions under which Delta says that there is no table at a path: which one depends on what was asked."""

_NO_MEMORY = ("OutOfMemoryError", "UNABLE_TO_ACQUIRE_MEMORY", "IllegalStateException: unread block data")
"""The last is Java's own: where memory runs out while kept rows are read back, a `finally` hides it behind that."""

_STORAGE = re.compile(
    r"No space left on device|Block rdd_\d+_\d+ was not found|Disk quota exceeded|Read-only file system|"
    r"Permission denied|AccessDeniedException|AccessControlException|Mkdirs failed to create|"
    r"DELTA_CANNOT_CREATE_LOG_PATH"
)
"""What is said by Linux, Hadoop, S3, Spark and Delta where a storage is full, has lost kept rows, or is not ours."""

_DATABASE_ENDED = re.compile(
    r"invalid snapshot identifier|ERROR: snapshot \"[^\"]*\" does not exist|"
    r"PSQLException: (?:Connection to|This connection|An I/O error|FATAL|"
    r"ERROR: (?:canceling statement|terminating connection)|The connection attempt failed)"
)
"""What PostgreSQL and its driver say where a read cannot be continued: the snapshot went with whoever held it, or the
connection with the server."""

_ROW_REFUSED = re.compile(r"PSQLException: (?:ERROR: )?(.*)")
"""What PostgreSQL and its driver say otherwise: the server goes on, and cannot read a row or may not."""

_NOT_COMPUTED = re.compile(
    r"\[(?:DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|INTERVAL_DIVIDED_BY_ZERO|(?:BINARY_|INTERVAL_)?ARITHMETIC_OVERFLOW|"
    r"CAST_INVALID_INPUT|CAST_OVERFLOW|CONVERSION_INVALID_INPUT|CANNOT_PARSE_(?:DECIMAL|INTERVAL|TIME|TIMESTAMP)|"
    r"DATETIME_FIELD_OUT_OF_BOUNDS|DATETIME_OVERFLOW|INVALID_ARRAY_INDEX(?:_IN_ELEMENT_AT)?|INVALID_FRACTION_OF_SECOND|"
    r"INVALID_INDEX_OF_ZERO|NUMERIC_OUT_OF_SUPPORTED_RANGE|NUMERIC_VALUE_OUT_OF_RANGE)(?:\.\w+)?\]"
    r".*?(?=\s+(?:If necessary set |SQLSTATE: )|$)",
    re.MULTILINE,
)
"""What Spark says of an expression that has no value for a row; without its advice to let it be NULL everywhere, which
no session of ours may."""

_LIMITS = {
    "statement timeout": "It was one of the connections that read rows: its query took longer than "
    "`source.statement_timeout_seconds`. Make that longer, or `source.rows_per_read` smaller.",
    "lock timeout": "Another session has locked the table, as `ALTER TABLE` does. Launch again when that has ended.",
}
"""What is to be done where a limit ended the read, by the server's words."""

CONFLICTS: dict[type[PySparkException], str] = {
    ConcurrentAppendException: "another writer added files to these partitions",
    ConcurrentDeleteReadException: "another writer removed files of these partitions",
    ConcurrentDeleteDeleteException: "another writer removed the same files",
    ConcurrentTransactionException: "another writer committed under the same transaction id",
    ConcurrentWriteException: "another writer committed at the same time",
    MetadataChangedException: "another writer changed the table's properties or schema",
    ProtocolChangedException: "another writer changed the table's protocol",
    DeltaConcurrentModificationException: "another writer committed at the same time",
}
"""Every conflict that Delta reports, by its Python class. They share no base class but PySpark's own."""


def translate_spark_error(error: Exception, table: str) -> BackfillAssetsError | None:
    """Return what a failed Spark call means; None where it is no conflict and no lack of memory."""
    for kind, meaning in CONFLICTS.items():
        if isinstance(error, kind):
            return CommitConflictError(
                f"`{table}`: {meaning} while this commit was prepared.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
                conflict=kind.__name__,
            )
    text = str(error)
    if jvm_is_gone(error):
        return SparkGoneError(
            f"`{table}`: Spark's JVM has ended in the middle of its work.",
            state="What was published before is recorded; the chunk in flight is whole in the table or absent.",
            remedy="Launch again with `only: MISSING`. If it ran out of memory, give it more (`SPARK_DRIVER_MEMORY`).",
        )
    if is_out_of_memory(error):
        return MemoryExhaustedError(
            f"`{table}`: Spark ran out of memory.",
            state=NOTHING_WRITTEN,
            remedy="Give the driver more (`SPARK_DRIVER_MEMORY`), or make chunks smaller (`chunk.max_partitions`).",
        )
    if of_rows := _error_of_rows(text, table):
        return of_rows
    if _DATABASE_ENDED.search(text):
        return SourceUnavailableError(
            f"`{table}`: the database ended the read of its rows, or could not be reached: "
            f"{_line_with_any(_DATABASE_ENDED, text)}.",
            state="This chunk was not written; what was published before stays.",
            remedy=next(
                (remedy for words, remedy in _LIMITS.items() if words in text),
                "See that the server runs, and launch again with `only: MISSING`.",
            ),
        )
    if refused := _ROW_REFUSED.search(text):
        return UnreadableSourceError(
            f"`{table}`: the database could not give a row: {refused[1][:300].rstrip('.')}.",
            state=NOTHING_WRITTEN,
            remedy="Correct that row, or the table, in the database, and launch again.",
        )
    if unusable := _STORAGE.search(text):
        return StorageError(
            f"`{table}`: a disk, or another storage, refused what was asked of it: "
            f"{_reason_with(unusable[0], text).rstrip('.')}.",
            state="What was published before stays; nothing else was written.",
            remedy=f"{STORAGE_REMEDY} If it is the disk on which Spark keeps rows for a while, name another one with "
            "`spark.local.dir` in SPARK_EXTRA_CONF.",
        )
    if refused := _refused_by_table(text, table):
        return refused
    if "DELTA_REPLACE_WHERE_MISMATCH" in text:
        return UnsafeWriteError(
            f"`{table}`: a row lies outside the partitions that were to be replaced, or has NULL where none is "
            "allowed: "
            f"{_line_with('DELTA_REPLACE_WHERE_MISMATCH', text)}",
            state=NOTHING_WRITTEN,
            remedy="The audit lets no such row through; the rows changed after it, or another schema than the "
            "spec's is at work.",
        )
    return None


def _refused_by_table(text: str, table: str) -> TableRuleError | None:
    """Return which rule of the table's own refused a commit; without the values of the row, which Delta tells too."""
    if broken := re.search(r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\]?\s+CHECK constraint (\w+) \(", text):
        return TableRuleError(
            f"`{table}`: a row breaks the constraint `{broken[1]}`, which somebody has added to the table.",
            state=NOTHING_WRITTEN,
            remedy="Say the same under `expect:` of the table's spec, such as `measure: min(amount)` with `at_least`: "
            "then a launch names the partitions that break it, and publishes the others. Or drop the constraint.",
        )
    if "DELTA_CANNOT_MODIFY_APPEND_ONLY" in text:
        return TableRuleError(
            f"`{table}`: somebody has made the table one to which rows are only added (`delta.appendOnly`).",
            state=NOTHING_WRITTEN,
            remedy="A launch replaces whole partitions. Unset that property, if nobody relies on it, and launch again.",
        )
    return None


def _error_of_rows(text: str, table: str) -> UnreadableSourceError | ExpressionError | None:
    """Return what a failure means in which rows cannot be read, or what is said of them cannot be computed."""
    if unreadable := re.search(
        r"\b(FAILED_READ_FILE|CANNOT_READ_FILE|MALFORMED_RECORD|CANNOT_MERGE_SCHEMAS)[\w.]*", text
    ):
        return UnreadableSourceError(
            f"`{table}`: a file could not be read to its end ({unreadable[0]}): {_line_with(unreadable[0], text)}",
            state=NOTHING_WRITTEN,
            remedy="Look at that file; put it right or take it away, and launch again.",
        )
    if said := _NOT_COMPUTED.search(text):
        return ExpressionError(
            f"`{table}`: what is computed of its rows cannot be computed of one of them: {said[0][:300].rstrip('.')}.",
            state=NOTHING_WRITTEN,
            remedy="Correct the expression in `computed` of its `version_of`, or in its transform: `try_divide`, "
            "`try_cast` and the like make NULL of what cannot be computed. Or put the row right.",
        )
    return None


@contextmanager
def translated(table: str) -> Iterator[None]:
    """Raise this project's error for a failed Spark call, where there is one; other failures pass as they are.

    Args:
        table: Key of the table, for messages.
    """
    try:
        yield
    except SPARK_FAILURES as error:
        ours = translate_spark_error(error, table)
        if ours is None:
            raise
        if isinstance(ours, TableRuleError | UnsafeWriteError):  # Delta's own words have values of rows
            raise ours from None
        raise ours from error


@contextmanager
def looking(table: str) -> Iterator[None]:
    """Raise this project's error for whatever fails while a table is looked at: others are looked at all the same.

    Args:
        table: Key of the table, for messages.

    Raises:
        StorageError: Spark, a storage or the system said something that nobody here knows.
    """
    try:
        with translated(table):
            yield
    except (*SPARK_FAILURES, OSError) as error:
        raise StorageError(
            f"`{table}` could not be looked at: {first_words(error).rstrip('.')}.",
            state="Nothing was changed.",
            remedy="See that its files, and those of its source, are whole and can be reached; then look again.",
        ) from error


def says_no_table(error: AnalysisException) -> bool:
    """Say whether a call failed because there is no table where it looked."""
    return error.getCondition() in NO_TABLE


def is_out_of_memory(error: Exception) -> bool:
    """Say whether a failure of Spark is a lack of memory, whatever it was doing."""
    return any(mark in str(error) for mark in _NO_MEMORY)


def jvm_is_gone(error: BaseException) -> bool:
    """Say whether a call failed because no JVM is left to answer it, or no Connect server that knows the session."""
    if isinstance(error, ConnectionError):
        return _was_asked_of_java(error)
    return isinstance(error, Py4JNetworkError) or any(mark in str(error) for mark in _GONE)


def _was_asked_of_java(error: BaseException) -> bool:
    """Say whether it was a call to the JVM that failed: a source may lose a connection of its own."""
    at = error.__traceback__
    while at is not None:
        if str(at.tb_frame.f_globals.get("__name__")).startswith("py4j."):
            return True
        at = at.tb_next
    return False


_GONE = ("Answer from Java side is empty", "StatusCode.UNAVAILABLE", "INVALID_HANDLE.SESSION_")


def _line_with(condition: str, text: str) -> str:
    """Return the line of a failure that names its condition; others are the way to it."""
    return next(line.strip() for line in text.splitlines() if condition in line)[:300]


def _reason_with(condition: str, text: str) -> str:
    """Return what the innermost failure of a line says that names its condition."""
    line = next(line for line in text.splitlines() if condition in line)
    outer = re.findall(r".*(?:Exception|Error): ", line[: line.index(condition)])
    return line[len(outer[0]) if outer else 0 :].strip().removeprefix("Caused by: ")[:300]


def _line_with_any(pattern: re.Pattern[str], text: str) -> str:
    """Return the first line in which a pattern is found, from there on."""
    found = pattern.search(text)
    return text[found.start() :].splitlines()[0][:300].rstrip(".") if found else ""


_IN_WORDS = {
    "BrotliCodec": "it is packed with brotli, which Spark does not unpack; write it with zstd, snappy or gzip",
    "LzoCodec": "it is packed with lzo, which Spark does not unpack; write it with zstd, snappy or gzip",
    "BYTE_STREAM_SPLIT": "values are encoded as BYTE_STREAM_SPLIT, which Spark does not read; write it without that",
}
"""What some reasons mean that Spark gives by the name of a class or a number of Parquet's."""


def first_words(error: Exception) -> str:
    """Return the innermost reason of a Spark failure, in one line; of an error of ours its three sentences."""
    if isinstance(error, BackfillAssetsError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    words = (causes or lines)[-1 if causes else 0]
    known = next((meaning for mark, meaning in _IN_WORDS.items() if mark in words), None)
    return known or re.sub(r"\s+", " ", words)[:200]
