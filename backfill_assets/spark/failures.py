"""What a failed call to Spark means: every kind of failure is listed here, once.

A short list says which failures last. Every other failure may pass, so whoever asked may ask again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import unquote

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
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    PySparkException,
    PythonException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
    UnsupportedOperationException,
)

from backfill_assets.core.history.effects import Answer, Effects, repeated
from backfill_assets.core.words import shortened
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    STORAGE_REMEDY,
    TRIED_AGAIN,
    BackfillAssetsError,
    CommitConflictError,
    EngineFailedError,
    EngineRefusedError,
    ExpressionError,
    MemoryExhaustedError,
    SourceUnavailableError,
    SparkGoneError,
    StorageError,
    TableRuleError,
    UnreadableSourceError,
    UnreadableTableError,
    UnsafeWriteError,
)

_LOG = logging.getLogger(__name__)

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

_LASTING = (
    *(AnalysisException, IllegalArgumentException, UnsupportedOperationException, PythonException),
    *(ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, SparkNoSuchElementException),
    *(SparkRuntimeException, SparkUpgradeException, AttributeError, NotImplementedError, TypeError, ValueError),
)
"""Classes of failures that a repetition does not help: a call is wrong, or code fails for the values of a row."""

_LASTING_WORDS = re.compile(
    r"api\.python\.PythonException|USER_RAISED_EXCEPTION|NOT_NULL_CONSTRAINT_VIOLATED|"
    r"DELTA_(?:UNSUPPORTED|INVALID_PROTOCOL)_\w+"
)
"""What a failure of a whole job says where code of a user, or the table's protocol, is the reason."""

_CANCELED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED")
"""What Spark says of a job that somebody canceled, for example by stopping the launch. It must not be repeated."""

_MAY_PASS = re.compile(r"(?:DELTA_|PATH_NOT_FOUND)")
"""Conditions of an analysis that looked at files: others may have moved or removed them meanwhile."""

_LONGEST = 300
"""So many characters of a failure's own words are shown."""

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


def translate_spark_error(error: Exception, table: str, path: str | None = None) -> BackfillAssetsError | None:
    """Return what a failed Spark call means; None if the failure is not Spark's.

    Args:
        table: Key of the table, for messages.
        path: Folder of the table, if a file below it can only be one of its own.
    """
    if isinstance(error, ConnectionError) and not jvm_is_gone(error):
        return None
    return _known(error, table, path) or _unknown(error, table)


def _known(error: Exception, table: str, path: str | None) -> BackfillAssetsError | None:
    """Return the error for a failure that has one of its own."""
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
    if of_rows := _error_of_rows(error, table, path):
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
            f"`{table}`: the database could not give a row: {shortened(refused[1], _LONGEST).rstrip('.')}.",
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


def _unknown(error: Exception, table: str) -> EngineFailedError | EngineRefusedError:
    """Return the error for any other failure: it lasts if its class or its words say so, and else it may pass."""
    reason = first_words(error).rstrip(".")
    if _CANCELED.search(str(error)):
        return EngineRefusedError(
            f"`{table}`: somebody canceled a job of Spark: {reason}.",
            state=NOTHING_WRITTEN,
            remedy="Launch again, unless the launch was stopped on purpose.",
            condition="SPARK_JOB_CANCELLED",
        )
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    lasts = isinstance(error, _LASTING) and not _MAY_PASS.match(condition or "")
    if lasts or _LASTING_WORDS.search(str(error)):
        return EngineRefusedError(
            f"`{table}`: Spark refused what it was asked to do: {reason}.",
            state=NOTHING_WRITTEN,
            remedy="Correct the transform, the spec, the setting or the source that it names, and launch again.",
            condition=condition or "",
        )
    return EngineFailedError(
        f"`{table}`: Spark failed: {reason}.",
        state=NOTHING_WRITTEN,
        remedy="Try again: such a failure often passes. If it does not, look at what it names; the log of the run, or "
        "of Spark, has more.",
        condition=condition or "",
    )


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


def _error_of_rows(
    error: Exception, table: str, path: str | None
) -> UnreadableSourceError | UnreadableTableError | ExpressionError | None:
    """Return what a failure means in which rows cannot be read, or what is said of them cannot be computed."""
    text = str(error)
    if unreadable := re.search(
        r"\b(FAILED_READ_FILE|CANNOT_READ_FILE|MALFORMED_RECORD|CANNOT_MERGE_SCHEMAS)[\w.]*", text
    ):
        found = re.search(r"(?:reading|read the) file:? [`']?(\S+?)[`']?\.?(?:\s|$)", text)
        file, is_gone = found[1] if found else "", unreadable[0].endswith("FILE_NOT_EXIST")
        why = "it does not exist" if is_gone else first_words(error).rstrip(".")
        why = f"the file `{file}` cannot be read: {why}" if file else why
        if path is not None and is_below(file, path):
            return UnreadableTableError(
                f"`{table}`: a partition cannot be read: {why}.",
                state="The rows of all other partitions can be read. Nothing was written.",
                remedy="Launch that partition again: a launch writes it from its source (`only: MISSING` does too).",
                file=file,
                why=why,
            )
        return UnreadableSourceError(
            f"`{table}`: {why}.",
            state=NOTHING_WRITTEN,
            remedy="If it is a file of the source, restore or remove it, and launch again. If it is a file of a table, "
            "launch the partition of that table again.",
            file=file,
            why=why,
        )
    if said := _NOT_COMPUTED.search(text):
        what = shortened(said[0], _LONGEST).rstrip(".")
        return ExpressionError(
            f"`{table}`: what is computed of its rows cannot be computed of one of them: {what}.",
            state=NOTHING_WRITTEN,
            remedy="Correct the expression in `computed` of its `version_of`, or in its transform: `try_divide`, "
            "`try_cast` and the like make NULL of what cannot be computed. Or put the row right.",
        )
    return None


def is_below(file: str, folder: str) -> bool:
    """Say whether a file, as Spark names it, lies below a folder, as a lakehouse names it."""
    bare_file, bare = (re.sub(r"^\w+:/*", "/", unquote(name)) for name in (file, folder))
    return bool(file) and bare_file.startswith(f"{bare.rstrip('/')}/")


@contextmanager
def translated(table: str, path: str | None = None) -> Iterator[None]:
    """Raise this project's error for a failed Spark call; failures of anything else pass as they are.

    What Java said in full is in the log of this module, at the level of debugging.

    Args:
        table: Key of the table, for messages.
        path: Folder of the table, as of `translate_spark_error`.
    """
    try:
        yield
    except SPARK_FAILURES as error:
        ours = translate_spark_error(error, table, path)
        if ours is None:
            raise
        if not isinstance(ours, TableRuleError | UnsafeWriteError):  # Delta's own words have values of rows
            _LOG.debug("%s", ours, exc_info=error)
        raise ours from None


def looked_at(table: str, look: Callable[[], Answer], log: Callable[[str], None]) -> Answer:
    """Return what a look at a table finds; look again as long as a failure may pass, since looking changes nothing.

    Args:
        table: Key of the table, for messages.
        log: Called with one sentence before each further attempt.

    Raises:
        BackfillAssetsError: It failed in each attempt, or for a reason that lasts.
    """
    is_sure = (UnreadableSourceError, UnreadableTableError)
    return repeated(look, Effects(log=log), failures=partial(_looking, table), unless=is_sure)


@contextmanager
def _looking(table: str) -> Iterator[None]:
    """Raise this project's error for whatever fails while a table is looked at: others are looked at all the same."""
    try:
        with translated(table):
            yield
    except OSError as error:
        raise StorageError(
            f"`{table}` could not be looked at: {first_words(error).rstrip('.')}.",
            state="Nothing was changed.",
            remedy="See that its storage, and that of its source, can be reached; then look again.",
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
    return shortened(_plain(next(line for line in text.splitlines() if condition in line)), _LONGEST)


def _reason_with(condition: str, text: str) -> str:
    """Return what the innermost failure of a line says that names its condition."""
    line = next(line for line in text.splitlines() if condition in line)
    outer = re.findall(r".*(?:Exception|Error): ", line[: line.index(condition)])
    return shortened(line[len(outer[0]) if outer else 0 :].strip().removeprefix("Caused by: "), _LONGEST)


def _line_with_any(pattern: re.Pattern[str], text: str) -> str:
    """Return the first line in which a pattern is found, from there on."""
    found = pattern.search(text)
    return shortened(text[found.start() :].splitlines()[0], _LONGEST).rstrip(".") if found else ""


_IN_WORDS = {
    "BrotliCodec": "it is packed with brotli, which Spark does not unpack; write it with zstd, snappy or gzip",
    "LzoCodec": "it is packed with lzo, which Spark does not unpack; write it with zstd, snappy or gzip",
    "BYTE_STREAM_SPLIT": "values are encoded as BYTE_STREAM_SPLIT, which Spark does not read; write it without that",
}
"""What some reasons mean that Spark gives by the name of a class or a number of Parquet's."""


_JAVA_CLASS = re.compile(r"^(?:Caused by: |: )?(?:\(?(?:[a-z][\w$]*\.)+([A-Z][\w$]*)\)?(?:: | (?=\[)))?")
"""How a line of a Java stack begins that names a failure, and how a message of Spark Connect does."""


def _plain(line: str) -> str:
    """Return a line of a failure without the package of Java's class, and without the class if a condition follows.

    Of a long list of numbers, such as versions of a log, the first and the last two are kept.
    """
    found = _JAVA_CLASS.match(line.strip())
    rest = line.strip()[found.end() if found else 0 :]
    named = found[1] if found and found[1] and not rest.startswith("[") else ""
    text = re.sub(r"\((\d+), (?:\d+, ){3,}(\d+, \d+)\)", r"(\1, …, \2)", f"{named}: {rest}" if named else rest)
    return re.sub(r"\s+", " ", re.sub(r"\s*SQLSTATE: \w+;?$", "", text)).strip()


def first_words(error: Exception) -> str:
    """Return the innermost reason of a Spark failure, in one line; of an error of ours its three sentences."""
    if isinstance(error, BackfillAssetsError):
        return str(error)
    text = str(error)
    if by_python := _of_python(text):
        return by_python
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    named = [line for line in lines if not line.startswith("An error occurred while calling")] or lines
    words = _plain(causes[-1] if causes else named[0])
    condition = re.search(r"\[[A-Z][A-Z_]+(?:\.[A-Z_]+)*\]", text)
    if condition and condition[0] not in words:
        words = f"{condition[0]} {words}"
    known = next((meaning for mark, meaning in _IN_WORDS.items() if mark in words), None)
    return known or shortened(words, _LONGEST)


def _of_python(text: str) -> str:
    """Return what code of a user has raised in a worker of Spark's, and where; empty if none has."""
    frames = list(re.finditer(r'File "([^"]+)", line (\d+), in \S+\n', text)) if "Traceback (most" in text else []
    if not frames:
        return ""
    raised = re.search(r"^(?=\w)[^\n]+", text[frames[-1].end() :], re.MULTILINE)
    where = f"{frames[-1][1].rpartition('/')[2]}, line {frames[-1][2]}"
    return shortened(f"{raised[0] if raised else 'an exception'} ({where})", _LONGEST)
