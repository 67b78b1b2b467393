"""Delta's own transaction: it writes files, somebody audits them, and one metadata commit publishes them.

The only file that calls Delta's JVM classes. They are public in Delta's jar and no documented API. They also skip
checks of Delta's public writer, so `commit` compares before and after:

| before the commit                                    | otherwise          |
|------------------------------------------------------|--------------------|
| metadata and protocol are those of the write         | conflict           |
| the partitions have the files that they had before   | conflict           |
| each file lies in one of the partitions, by its value| `UnsafeWriteError` |
| each file exists                                     | unreadable         |

| after the commit                                     | otherwise          |
|------------------------------------------------------|--------------------|
| at its version the partitions have these files alone | `PutBackError`     |

`CALLS` names what is called. If a class or a method is missing, tables are written by the public API.

Source: Delta Lake 4.4.0, `OptimisticTransaction.scala`, `TransactionalWrite.scala`, `DeltaLog.scala`.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.spec.fields import is_uri
from backfill_assets.core.state.tallies import sum_if_known
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    TRIED_AGAIN,
    CommitConflictError,
    PutBackError,
    UnreadableTableError,
    UnsafeWriteError,
)
from backfill_assets.spark.storage import those_there
from backfill_assets.table.log import live_rows

_WRITE_PARAMETERS = 9
"""Delta added some at the end from version to version."""

CALLS = (
    ("DeltaLog", "forTable", 3),
    ("DeltaLog", "update", 3),
    ("DeltaLog", "getSnapshotAt", 4),
    ("DeltaLog", "startTransaction", 2),
    ("DeltaLog", "createDataFrame", 4),
    ("DeltaLog", "newDeltaHadoopConf", 0),
    ("Snapshot", "filesForScan", 2),
    ("Snapshot", "allFiles", 0),
    ("OptimisticTransaction", "writeFiles", 1),
    ("OptimisticTransaction", "filterFiles", 2),
    ("OptimisticTransaction", "commit", 2),
    ("DeltaOperations$Write$", "apply", _WRITE_PARAMETERS),
    ("actions.AddFile", "remove", 0),
    ("actions.AddFile", "absolutePath", 1),
    ("actions.Action", "fromJson", 1),
    ("util.JsonUtils", "mapper", 0),
)
"""Classes below `org.apache.spark.sql.delta`, with the methods that are called, and how many parameters they have."""

_SIGNATURE = re.compile(r"\.([\w$]+)\(([^)]*)\)")

_FILE_PREFIX = "spark.databricks.delta.testOnly.dataFileNamePrefix"
"""Setting of Delta with which the names of data files begin. Delta names no files of a write that failed."""

_OURS = "backfill_assets."
"""Properties that a write does not depend on: the fence moves while history is written."""

_NOT_SERIALIZABLE = "delta.isolationLevel"
_MANAGED = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview", "delta.coordinatedCommits.")
_UNIFORM = "delta.universalFormat.enabledFormats"

_MOST_METADATA = 4 << 20
"""Bytes of a receipt. Delta commits 25 MB, and then nobody can read the table."""


@dataclass(slots=True)
class WrittenFiles:
    """Files that one write made. No version names them until they are committed.

    Args:
        adds: Delta's action for each file, in the order of `facts`.
        facts: The same as JSON.
        basis: Metadata and protocol that Delta wrote them for.
        snapshot: Of the version that they were written for.
        named: Paths of those that a commit named, whatever came of it: they are never deleted here.
    """

    adds: Any
    facts: Sequence[Mapping[str, Any]]
    basis: Mapping[str, Any]
    snapshot: Any
    named: set[str] = field(default_factory=set[str])

    def rows_by_value(self) -> dict[str, int | None]:
        """Return the rows of these files by value of the partition column; None where a file does not say."""
        found: dict[str, int | None] = {}
        for file in self.facts:
            value = _value_of(file)
            found[value] = sum_if_known([found.get(value, 0), live_rows(file)])
        return found


def reason_against(spark: SparkSession, path: str, options: Mapping[str, str] | None = None) -> str:
    """Say why a table cannot be written by this file, in words that follow "because"; empty if it can.

    Args:
        spark: A classic session.
        path: Of a table that is there.
        options: As of `Transactions`.
    """
    if missing := _missing_call(spark):
        return f"Delta has no `{missing}` like that of version 4.4.0"
    metadata = Transactions(spark, path, options=options).metadata()
    properties: Mapping[str, str] = metadata.get("configuration", {})
    if properties.get(_NOT_SERIALIZABLE, "Serializable") != "Serializable":
        return f"its `{_NOT_SERIALIZABLE}` is `{properties[_NOT_SERIALIZABLE]}`"
    if managed := [name for name in properties if name.startswith(_MANAGED)]:
        return f"a catalog manages its commits (`{managed[0]}`)"
    if properties.get(_UNIFORM):
        return f"it has `{_UNIFORM}`"
    if "delta.identity." in metadata.get("schemaString", ""):
        return "it has an identity column"
    return ""


@cache
def _missing_call(spark: SparkSession) -> str:
    """Return the first class or method of `CALLS` that this session's Delta has not; empty if it has all."""
    jvm: Any = spark._jvm  # noqa: SLF001 (PySpark has no public way to the JVM)
    loader = jvm.Thread.currentThread().getContextClassLoader()
    for name, calls in groupby(CALLS, key=itemgetter(0)):
        try:
            found = jvm.java.lang.Class.forName(f"org.apache.spark.sql.delta.{name}", False, loader)
        except Py4JJavaError:  # there is no such class
            return name
        signatures = jvm.scala.runtime.ScalaRunTime.stringOf(found.getMethods())  # one call: there are hundreds of them
        there = {(method, len(given.split(",")) if given else 0) for method, given in _SIGNATURE.findall(signatures)}
        for _, method, parameters in calls:
            if (method, parameters) not in there:
                return f"{name}.{method}"
    return ""


class Transactions:
    """The transactions of one table.

    Args:
        spark: A classic session.
        path: Of a table that is there.
        table: Its key, for messages.
        options: Of its file system, as Delta's readers and writers have them: with others Delta opens the log twice.
    """

    def __init__(
        self, spark: SparkSession, path: str, table: str = "", options: Mapping[str, str] | None = None
    ) -> None:
        self.spark, self.path, self._table = spark, path, table or path
        self._jvm: Any = spark._jvm  # noqa: SLF001 (as above)
        self._session: Any = spark._jsparkSession  # noqa: SLF001 (as above)
        self._delta: Any = self._jvm.org.apache.spark.sql.delta
        self._none: Any = _module(self._jvm.scala, "None")
        self._log: Any = self._delta.DeltaLog.forTable(
            self._session, self._jvm.org.apache.hadoop.fs.Path(path), self._map(options or {})
        )

    def metadata(self) -> dict[str, Any]:
        """Return the newest metadata, as the log has it."""
        return self._as_json(self._newest().metadata())

    def write(self, rows: DataFrame, *, version: int) -> WrittenFiles:
        """Write rows as files of the table that no version names.

        Args:
            rows: The table's columns, in its types.
            version: Of the table, which the files are to follow.

        Raises:
            UnsafeWriteError: The rows have other columns than the table. Nothing was written.
            pyspark.errors.PySparkException: The write failed. Its files were deleted as far as possible.
        """
        snapshot = self._at(version)
        transaction = self._log.startTransaction(self._none, self._jvm.scala.Some(snapshot))
        self._refuse_other_columns(rows, snapshot)
        prefix = f"{uuid.uuid4().hex[:12]}-"
        context = self._session.sparkContext()
        context.setLocalProperty(_FILE_PREFIX, prefix)  # of this thread alone: others write in this session too
        try:
            adds = transaction.writeFiles(rows._jdf)  # noqa: SLF001 (as above)
        except BaseException:
            with suppress(Py4JError, OSError):
                self._delete_all(prefix)
            raise
        finally:
            with suppress(Py4JError, OSError):
                context.setLocalProperty(_FILE_PREFIX, None)
        return WrittenFiles(adds, self._as_json(adds), self._basis(transaction), snapshot)

    def of_version(self, values: Collection[str], *, version: int) -> WrittenFiles | None:
        """Return the files that some partitions had at a version, to be committed again, with their statistics.

        None if the table has other columns or features by now: such files have to be written anew.
        """
        snapshot = self._at(version)
        basis = self._basis(snapshot)
        if _lasting(basis) != _lasting(self._basis(self._newest())):
            return None
        files = DataFrame(snapshot.allFiles().toDF(), self.spark)
        of_values = files.where(F.map_values("partitionValues")[0].isin([*values]))
        there = [json.loads(row[0]) for row in of_values.select(F.to_json(F.struct("*"))).collect()]
        facts = [{**file, "dataChange": True} for file in there]
        actions = self._delta.actions.Action
        adds = self._sequence([actions.fromJson(json.dumps({"add": file})) for file in facts])
        return WrittenFiles(adds, facts, basis, snapshot)

    def frame(self, files: WrittenFiles, without: Collection[str] = ()) -> DataFrame:
        """Return the rows of files.

        Args:
            without: Values of the partition column whose files are left out.
        """
        adds = self._chosen(files, lambda file: _value_of(file) not in without) if without else files.adds
        return DataFrame(self._log.createDataFrame(files.snapshot, adds, False, self._none), self.spark)

    def commit(
        self,
        chosen: Sequence[tuple[WrittenFiles, Collection[str]]],
        predicate: str,
        values: Collection[str],
        user_metadata: str,
        *,
        base: int,
        check: Callable[[dict[str, str]], None],
    ) -> tuple[int, frozenset[str]]:
        """Replace the content of some partitions by files, in one commit.

        Args:
            chosen: Files, each with the values of the partition column of which it gives them.
            predicate: Of the partitions, on the partition column, in Spark SQL.
            values: Of the partition column, of the same partitions.
            base: Version of the table that the files follow.
            check: Given the table's properties, on which the commit is based; raises if it may not be made.

        Returns:
            The version on which the commit was based, and the paths of the files that it removed.

        Raises:
            CommitConflictError: Somebody changed these partitions, or the table's columns or features, since `base`.
            UnreadableTableError: A file does not exist. The table is unchanged.
            UnsafeWriteError: A file lies in another partition. The table is unchanged.
            py4j.protocol.Py4JJavaError: Delta failed; the log says whether the commit was made.
        """
        if len(user_metadata.encode()) > _MOST_METADATA:
            raise UnsafeWriteError(
                f"`{self._table}`: the receipt of this commit has {len(user_metadata.encode()):,} bytes.",
                state=NOTHING_WRITTEN,
                remedy="Make chunks smaller (`chunk.max_partitions`).",
            )
        transaction = self._log.startTransaction(self._none, self._none)
        basis = self._basis(transaction)
        if other := [files for files, _ in chosen if _lasting(files.basis) != _lasting(basis)]:
            raise self._conflict(f"the table's columns or features changed after {len(other[0].facts)} files of it")
        check(dict(basis["metadata"].get("configuration", {})))
        filters = self._resolved(predicate, transaction.snapshot())
        found = transaction.filterFiles(filters, True)
        removed = self._as_json(found)
        if transaction.snapshot().version() != base and self._changed_since(base, chosen, filters, removed):
            raise self._conflict(f"the files of these partitions are not those of version {base}")
        added = _published(chosen)
        if again := sorted(name for files, _ in chosen for name in files.named & {str(f["path"]) for f in added}):
            raise UnsafeWriteError(
                f"`{self._table}`: {len(again):,} files were committed before, first `{again[0]}`; newer content "
                "would be lost.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
            )
        if astray := {_value_of(file) for file in [*added, *removed]} - {*values}:
            raise UnsafeWriteError(
                f"`{self._table}`: files lie in partitions that are not in this commit: {sorted(astray)[:3]}.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
            )
        self._refuse_missing(added, NOTHING_WRITTEN)
        new, old = _identities(added) - _identities(removed), _identities(removed) - _identities(added)
        pairs = zip(self._each(found), removed, strict=True)
        actions = self._sequence([add.remove() for add, file in pairs if _identity(file) in old])
        for files, _ in chosen:
            actions = actions.appendedAll(self._chosen(files, lambda file: _identity(file) in new))
            files.named |= {str(file["path"]) for file in files.facts if _identity(file) in new}
        operation = self._operation(predicate, user_metadata)

        def commit() -> None:
            # another thread would take the settings of the default session
            self._jvm.org.apache.spark.sql.SparkSession.setActiveSession(self._session)
            transaction.commit(actions, operation)

        _joined(commit)
        return int(transaction.snapshot().version()), frozenset(path for path, _ in old)

    def verify(
        self,
        chosen: Sequence[tuple[WrittenFiles, Collection[str]]],
        predicate: str,
        *,
        version: int,
        added: Collection[str] | None = None,
    ) -> None:
        """Compare the files that some partitions have at the version of a commit with those that it published.

        Args:
            added: Paths that the log says this commit has added, if the log also says that it removed what it was to
                remove, and that nobody came in between: then these are all the files that the partitions have. None:
                the version is looked at.

        Raises:
            PutBackError: They have others.
            UnreadableTableError: A file does not exist. The partitions have to be published again.
        """
        published = _published(chosen)
        if added is None or {*added} != {file["path"] for file in published}:
            snapshot = self._at(version)
            there = self._as_json(snapshot.filesForScan(self._resolved(predicate, snapshot), False).files())
            if _identities(there) != _identities(published):
                raise PutBackError(
                    f"`{self._table}`: version {version} was committed, and its partitions have {len(there):,} files, "
                    f"not the {len(published):,} that were audited.",
                    state=f"Version {version} is in the table.",
                    remedy="Take this launch back with `backfill-assets undo`; find out who else writes this table.",
                )
        self._refuse_missing(published, f"Version {version} is committed, and these partitions cannot be read.")

    def discard(self, files: WrittenFiles) -> None:
        """Delete files that no commit has named. If a commit named them and failed, VACUUM removes them."""
        if all(file["path"] in files.named for file in files.facts):
            return
        for add, file in zip(self._each(files.adds), files.facts, strict=True):
            if file["path"] not in files.named:
                self._delete(add.absolutePath(self._log))

    def _changed_since(
        self,
        base: int,
        chosen: Sequence[tuple[WrittenFiles, Collection[str]]],
        filters: Any,
        now: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Say whether partitions had other files at a version than they have now."""
        looked_at = next((f.snapshot for f, _ in chosen if f.snapshot.version() == base), None) or self._at(base)
        before = self._as_json(looked_at.filesForScan(filters, False).files())
        return _identities(before) != _identities(now)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _newest(self) -> Any:
        return self._log.update(False, self._none, self._none)

    def _at(self, version: int) -> Any:
        newest = self._newest()
        if newest.version() == version:
            return newest
        return self._log.getSnapshotAt(version, self._none, self._none, False)

    def _resolved(self, predicate: str, snapshot: Any) -> Any:
        """Return a predicate as expressions on the table's own columns, each name as Spark SQL reads it."""
        frame = self._log.createDataFrame(snapshot, self._empty(), False, self._none).where(predicate)
        return self._sequence([frame.queryExecution().analyzed().condition()])

    def _chosen(self, files: WrittenFiles, is_wanted: Callable[[Mapping[str, Any]], bool]) -> Any:
        wanted = [is_wanted(file) for file in files.facts]
        if all(wanted):
            return files.adds
        return self._sequence([add for add, is_one in zip(self._each(files.adds), wanted, strict=True) if is_one])

    def _refuse_other_columns(self, rows: DataFrame, snapshot: Any) -> None:
        want = DataFrame(self._log.createDataFrame(snapshot, self._empty(), False, self._none), self.spark).dtypes
        if sorted(rows.dtypes) != sorted(want):
            raise UnsafeWriteError(
                f"`{self._table}`: rows with the columns {rows.dtypes} were to be written; the table has {want}.",
                state=NOTHING_WRITTEN,
                remedy=TRIED_AGAIN,
            )

    def _refuse_missing(self, files: Sequence[Mapping[str, Any]], state: str) -> None:
        paths = [self._path_of(file) for file in files]
        there = those_there(self.spark, paths)
        if missing := [path for path in paths if path not in there]:
            raise UnreadableTableError(
                f"`{self._table}`: {len(missing):,} files that were audited do not exist any more, first "
                f"`{missing[0]}`: somebody has removed them, for example by a VACUUM that keeps nothing.",
                state=state,
                remedy=TRIED_AGAIN,
                files=missing,
            )

    def _path_of(self, file: Mapping[str, Any]) -> str:
        """Return where a file lies: the log has a URL, below the table or whole."""
        path = unquote(file["path"])
        return path if is_uri(path) or path.startswith("/") else f"{self.path.rstrip('/')}/{path}"

    def _operation(self, predicate: str, user_metadata: str) -> Any:
        """Return a write as the history of the table shows it."""
        write, some = _module(self._delta, "DeltaOperations$Write"), self._jvm.scala.Some
        given = [self._jvm.org.apache.spark.sql.SaveMode.Overwrite, self._none, some(predicate), some(user_metadata)]
        rest = [getattr(write, f"apply$default${number}")() for number in range(len(given) + 1, _WRITE_PARAMETERS + 1)]
        return write.apply(*given, *rest)

    def _basis(self, transaction: Any) -> dict[str, Any]:
        return {
            "metadata": self._as_json(transaction.metadata()),
            "protocol": self._as_json(transaction.protocol()),
        }

    def _conflict(self, what: str) -> CommitConflictError:
        return CommitConflictError(f"`{self._table}`: {what}.", state=NOTHING_WRITTEN, remedy=TRIED_AGAIN)

    def _as_json(self, actions: Any) -> Any:
        return json.loads(self._delta.util.JsonUtils.mapper().writeValueAsString(actions))

    def _map(self, values: Mapping[str, str]) -> Any:
        java = self._jvm.java.util.HashMap()
        for name, value in values.items():
            java.put(name, value)
        entries = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(java)
        return getattr(_module(self._jvm.scala.collection.immutable, "Map"), "from")(entries)

    def _sequence(self, values: Sequence[Any]) -> Any:
        java = self._jvm.java.util.ArrayList()
        for value in values:
            java.add(value)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()

    def _each(self, values: Any) -> list[Any]:
        return [*self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(values.toIndexedSeq())]

    def _empty(self) -> Any:
        return self._sequence([])

    def _files_of(self, path: Any) -> Any:
        return path.getFileSystem(self._log.newDeltaHadoopConf())

    def _delete(self, path: Any) -> None:
        self._files_of(path).delete(path, False)

    def _delete_all(self, prefix: str) -> None:
        """Delete the files of a write that failed: those whose names begin with its prefix."""
        pattern = self._jvm.org.apache.hadoop.fs.Path(self._log.dataPath(), f"*/{prefix}*")
        for status in self._files_of(pattern).globStatus(pattern) or ():
            self._delete(status.getPath())


def _module(package: Any, name: str) -> Any:
    """Return a Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _joined(call: Callable[[], None]) -> None:
    """Make a call in a thread that is waited for, whatever happens to this one.

    An interrupted call to the JVM would leave a commit that nobody knows of. `Thread.join` is not enough: in Python
    3.11, an interrupted join marks a running thread as ended.
    """
    failed: list[BaseException] = []
    may_begin, has_ended = threading.Event(), threading.Event()

    def make() -> None:
        may_begin.wait()
        try:
            call()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            failed.append(error)
        finally:
            has_ended.set()

    threading.Thread(target=make, name="delta-commit", daemon=True).start()
    interrupted: BaseException | None = None
    while not has_ended.is_set():
        try:
            may_begin.set()
            has_ended.wait()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            interrupted = interrupted or error
    if interrupted is not None:
        raise interrupted
    if failed:
        raise failed[0]


def _value_of(file: Mapping[str, Any]) -> str:
    """Return the value of a file's one partition column, as the log has it."""
    (value,) = file["partitionValues"].values()
    return str(value)


def _identity(file: Mapping[str, Any]) -> tuple[str, str]:
    """Return what tells a file of a table from others: its path, and which of its rows were deleted."""
    return file["path"], json.dumps(file.get("deletionVector"), sort_keys=True)


def _identities(files: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {_identity(file) for file in files}


def _published(chosen: Sequence[tuple[WrittenFiles, Collection[str]]]) -> list[Mapping[str, Any]]:
    """Return the files that a commit publishes: those of the chosen values."""
    return [file for files, values in chosen for file in files.facts if _value_of(file) in values]


def _lasting(basis: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata and protocol without the properties that a write does not depend on."""
    properties = basis["metadata"].get("configuration", {})
    kept = {name: value for name, value in properties.items() if not name.startswith(_OURS)}
    return {**basis, "metadata": {**basis["metadata"], "configuration": kept}}
