"""What the log of one Delta table says: its versions, its receipts, who wrote what, and what the table is now.

Every question is answered from the log as it is at that moment; nothing is kept on disk. Who reads it, delta-rs or
Spark, is decided in `readers.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.operations import LoggedOperation
from backfill_assets.core.live.receipts import LiveReceipt, live_receipt_from_json
from backfill_assets.core.state.receipts import Receipt, receipt_from_json
from backfill_assets.errors import ReceiptError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a table is at one version.

    Args:
        table_id: Delta's own id. A table that was created again, or cloned, has another one.
        schema: Delta's schema, as JSON has it: `{"type": "struct", "fields": [...]}`.
        files: Returns every data file, with the value of the partition column and its rows, which are None where the
            log does not tell them.
        tells_rows: Whether the rows of files are known at all: whoever reads the log may not see them.
    """

    version: int
    table_id: str
    schema: Mapping[str, Any]
    partition_columns: Sequence[str]
    properties: Mapping[str, str]
    files: Callable[[], list[LoggedFile]] = field(repr=False, compare=False)
    tells_rows: bool = True


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """One data file of a version.

    Args:
        path: As the log has it: below the table's folder, or a URI.
        value: Of the partition column; None for NULL, and where the table has not one such column.
        rows: Less those that a deletion vector removed; None where the log does not tell.
    """

    path: str
    value: str | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What a commit says of itself.

    Args:
        operation: Delta's word for what it did; empty where its writer did not say.
        properties: That it set, if it set any.
        user_metadata: What its writer put into it: of ours, a receipt.
    """

    version: int
    at: datetime
    operation: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    user_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """What one commit did to partitions, as the log has it.

    Args:
        rows: Rows by value of the partition column, summed over the files it added.
        size_bytes: Bytes by value of the partition column.
        rows_removed: Rows by value of the partition column, summed over the files it removed, without those that their
            deletion vectors had removed before; None where a file has no statistics.
        touched: Values of the partition column of every file it added or removed; not of those that it only stored
            otherwise, as OPTIMIZE does.
        touched_anything: Whether it may have written any partition: the log does not say where its files lie, or has
            forgotten the commit.
        stored: Values of the partition column of every file that it added or removed.
        changes_table: Whether it changed what the table is, its columns, properties or features; or stored a file of
            which the log does not say in which partition it lies.
        added, removed: Paths of the files that it added, and removed, as the log has them.
        receipt: Ours, if history was written by it.
        live_receipt: Ours, if it is a commit of the live side.
    """

    version: int
    rows: dict[str, int] = field(default_factory=dict[str, int])
    size_bytes: dict[str, int] = field(default_factory=dict[str, int])
    touched: frozenset[str] = frozenset()
    receipt: Receipt | None = None
    live_receipt: LiveReceipt | None = None
    touched_anything: bool = False
    rows_removed: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    changes_table: bool = False

    def left_alone(self, partition: Partition) -> bool:
        """Say whether a partition has the same files, of the same columns, as before the commit."""
        return not (self.changes_table or self.touched_anything or str(partition.value) in self.stored)

    def wrote(self, partition: Partition) -> bool:
        """Say whether the commit changed a partition, or may have.

        It did if it added or removed rows of it; or if its receipt names it: a partition that had no rows, and was
        published without any, has no file to show for it.
        """
        in_receipt = self.receipt is not None and partition.key in self.receipt.partitions
        return self.touched_anything or str(partition.value) in self.touched or in_receipt


class LogReader(Protocol):
    """Reads the log of one table. Every call looks anew."""

    def is_absent(self) -> bool:
        """Return whether the table certainly does not exist; false if only Spark could tell."""
        ...

    def commits(self) -> Mapping[int, datetime]:
        """Return when the file of each commit was made that the log still has, by version; none without a table."""
        ...

    def texts(self, versions: Sequence[int]) -> Mapping[int, bytes]:
        """Return the files of commits, an action in JSON a line, by version; a commit that is not there is missing."""
        ...

    def snapshot(self, version: int | None) -> Snapshot | None:
        """Return what the table is at a version, or now; None if there is no table, or no such version any more."""
        ...

    def rows(self, columns: Sequence[str] | None, version: int | None) -> list[dict[str, Any]] | None:
        """Return the rows of a small table at a version, or now, in some of its columns or all; None without one."""
        ...


@dataclass(frozen=True, slots=True)
class TableLog:
    """The log of the table at a path."""

    path: str
    reader: LogReader

    # -- what the table is ---------------------------------------------------------------------------------------------

    def version(self) -> int:
        """Return the newest version; -1 if the table was not made."""
        if commits := self.reader.commits():
            return max(commits)
        return -1 if (now := self.snapshot()) is None else now.version

    def exists(self) -> bool:
        """Say whether the table was made."""
        return self.version() >= 0

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """Return what the table is at a version, or now; None if it was not made, or the log has forgotten that."""
        return None if version is not None and version < 0 else self.reader.snapshot(version)

    def table_id(self) -> str:
        """Return the id that Delta gave the table; empty if it was not made."""
        return "" if (now := self.snapshot()) is None else now.table_id

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the table; none if it was not made."""
        return {} if (now := self.snapshot()) is None else now.properties

    def rows_by_value(self, version: int | None = None) -> dict[str, int | None] | None:
        """Return the rows of each value of the partition column, whoever wrote them; None where a file has no count.

        The rows are those that the files' statistics count (`numRecords`).

        Returns:
            Only None where the reader of the log does not see the rows of files, or where they lie.
        """
        if (now := self.snapshot(version)) is None:
            return {}
        if not now.tells_rows:
            return None
        found: dict[str, int | None] = {}
        for file in now.files():
            if file.value is None and file.rows is None:
                return None
            value = "NULL" if file.value is None else file.value
            so_far = found.get(value, 0)
            found[value] = None if so_far is None or file.rows is None else so_far + file.rows
        return found

    def rows(self, columns: Sequence[str] | None = None, *, version: int | None = None) -> list[dict[str, Any]] | None:
        """Return the rows of a small table at a version, or now, in some of its columns or all; None if never made.

        Raises:
            EngineFailedError: A file of it cannot be read.
        """
        return self.reader.rows(columns, version)

    # -- what its commits say ------------------------------------------------------------------------------------------

    def is_whole(self, most: int) -> bool:
        """Say whether the log still has every commit that was ever made, and not more than so many."""
        commits = self.reader.commits()
        return 0 < len(commits) <= most and commits.keys() == set(range(len(commits)))

    def commits(self, versions: Sequence[int], partition_column: str) -> list[LoggedCommit]:
        """Return what commits did, in order. A commit that Delta has cleaned counts as a write to every partition."""
        texts = self.reader.texts(versions)
        found: list[LoggedCommit] = []
        for version in sorted(versions):
            if version not in texts:
                found.append(LoggedCommit(version, touched_anything=True, changes_table=True))
                continue
            with self._readable(version):
                found.append(_commit_of(version, texts[version].decode().split("\n"), partition_column))
        return found

    def versions_writing(self, versions: range, partition_column: str, partitions: Sequence[Partition]) -> list[int]:
        """Return those of some versions that wrote any of these partitions, or may have; none without a table."""
        if not versions or not self.exists():
            return []
        commits = self.commits(versions, partition_column)
        return [commit.version for commit in commits if any(map(commit.wrote, partitions))]

    def infos(self, after: int = -1, *, newest: int | None = None, until: int | None = None) -> dict[int, CommitInfo]:
        """Return the infos of the commits after a version, in order. Earlier commits are not read.

        Args:
            newest: Read only this many of the newest commits.
            until: Read no commit after this version.
        """
        there = self.reader.commits()
        first = max(after + 1, 0 if newest is None else max(there, default=-1) - newest + 1)
        last = max(there, default=-1) if until is None else until
        texts = self.reader.texts(wanted := [version for version in sorted(there) if first <= version <= last])
        found: dict[int, CommitInfo] = {}
        for version in wanted:
            if version in texts:  # else Delta has cleaned it up meanwhile
                with self._readable(version):
                    found[version] = _info_of(version, texts[version].decode().split("\n"), there[version])
        return found

    def receipts(self, after: int = -1) -> dict[int, Receipt]:
        """Return our receipts in the log, by version, of the versions after one; none if there is no table."""
        return receipts_in(self.infos(after))

    def live_receipts(self, *, newest: int | None = None) -> Iterator[tuple[datetime, LiveReceipt]]:
        """Return the receipts of the live side in the log, the newest first, each with when it was committed."""
        for _, one in sorted(self.infos(newest=newest).items(), reverse=True):
            receipt = live_receipt_from_json(one.user_metadata)
            if receipt is not None:
                yield one.at, receipt

    def landed_until(self) -> datetime | None:
        """Return when the newest file landed that the table's stream has written; None if it has written nothing."""
        landed = [receipt.landed_utc for _, receipt in self.live_receipts()]
        return max((datetime.fromisoformat(newest) for _, newest in filter(None, landed)), default=None)

    def operations(self, after: int = -1) -> list[LoggedOperation]:
        """Return the operations of the commits after a version, in order."""
        return operations_in(self.infos(after))

    @contextmanager
    def _readable(self, version: int) -> Iterator[None]:
        """Say in words that a commit is damaged, while it is read.

        Raises:
            ReceiptError: It is.
        """
        try:
            yield
        except ValueError as error:  # of JSON, or of UTF-8
            raise ReceiptError(
                f"The commit `{self.path}/_delta_log/{version:020d}.json` cannot be read: {error}.",
                state="The table's rows were not touched.",
                remedy="Put the file back from a copy. Do not delete it: without it the table cannot be read. Only "
                "`<table>_history` may go, as a whole folder: the next launch fills it again.",
            ) from error


def receipts_in(infos: Mapping[int, CommitInfo]) -> dict[int, Receipt]:
    """Return the receipts in some commit infos, by version."""
    told = {version: receipt_from_json(one.user_metadata) for version, one in infos.items()}
    return {version: receipt for version, receipt in told.items() if receipt is not None}


def operations_in(infos: Mapping[int, CommitInfo]) -> list[LoggedOperation]:
    """Return the operations that some commit infos describe, in order."""
    found: list[LoggedOperation] = []
    for version in sorted(infos):
        one = infos[version]
        live = live_receipt_from_json(one.user_metadata)
        operation = LoggedOperation(version, one.at, one.operation, one.properties)
        found.append(replace(operation, live=live.kind, stream=live.stream, rows=live.rows) if live else operation)
    return found


def live_rows(file: Mapping[str, Any]) -> int | None:
    """Return how many rows of a file are in the table; None if the log does not say.

    Args:
        file: As the log has it: statistics as text, and which of its rows were deleted.
    """
    count: int | None = json.loads(file.get("stats") or "{}").get("numRecords")
    return None if count is None else count - (file.get("deletionVector") or {}).get("cardinality", 0)


_LOOSE_DATE, _DATE = re.compile(r"[+-]?\d+-\d+-\d+"), re.compile(r"\d{4}-\d\d-\d\d")


def _is_loose(value: Any) -> bool:
    """Return whether a value is a date in a spelling that Delta never writes. It may then be any partition."""
    return isinstance(value, str) and bool(_LOOSE_DATE.fullmatch(value)) and not _DATE.fullmatch(value)


def _info_of(version: int, lines: Sequence[str], changed: datetime) -> CommitInfo:
    """Return what a commit says of itself.

    Args:
        changed: When its file was made, for a writer that does not say when it committed.
    """
    naming = (json.loads(line) for line in lines if '"commitInfo"' in line)
    info = next((found for action in naming if (found := _commit_info(action))), {})
    return CommitInfo(
        version,
        _instant(info.get("inCommitTimestamp") or info.get("timestamp")) or changed,
        str(info.get("operation") or ""),
        _properties(info.get("operationParameters")),
        _text(info.get("userMetadata")),
    )


# Any writer can fill in a commit's info, so everything that does not parse is ignored.


def _commit_info(action: Any) -> dict[str, Any]:
    found: Any = action.get("commitInfo") if isinstance(action, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _instant(millis: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1_000, UTC) if isinstance(millis, int) else None
    except (ValueError, OverflowError, OSError):
        return None


def _properties(parameters: Any) -> dict[str, str]:
    told: Any = parameters.get("properties") if isinstance(parameters, dict) else None
    try:
        found: Any = json.loads(told) if isinstance(told, str) else told
    except ValueError:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _commit_of(version: int, lines: Sequence[str], partition_column: str) -> LoggedCommit:
    """Sum up the actions of one commit, a JSON text each."""
    rows: dict[str, int] = {}
    size_bytes: dict[str, int] = {}
    rows_removed: dict[str, int | None] = {}
    touched: set[str] = set()
    paths: dict[bool, set[str]] = {True: set(), False: set()}
    stored: set[str] = set()
    touched_anything = changes_table = False
    metadata: str | None = None
    for line in lines:
        action: dict[str, Any] = json.loads(line) if line else {}
        metadata = _text(_commit_info(action).get("userMetadata")) or metadata
        added, removed = action.get("add"), action.get("remove")
        file: dict[str, Any] = added or removed or {}
        values: dict[str, Any] | None = file.get("partitionValues")
        partition: Any = (values or {}).get(partition_column)  # None where others wrote NULL
        changes_table = changes_table or "metaData" in action or "protocol" in action
        is_anywhere = values is None or partition_column not in values or _is_loose(partition)
        if file:
            paths[bool(added)].add(file["path"])
            stored.add(str(partition))
            changes_table = changes_table or is_anywhere
        if removed:
            so_far, count = rows_removed.get(partition, 0), live_rows(removed)
            rows_removed[partition] = None if so_far is None or count is None else so_far + count
        if added:
            rows[partition] = rows.get(partition, 0) + (live_rows(file) or 0)
            size_bytes[partition] = size_bytes.get(partition, 0) + file["size"]
        if file and file.get("dataChange") is not False:
            if not is_anywhere:
                touched.add(partition)
            elif removed or values:  # of a table whose columns are mapped, the log has other names
                touched_anything = True
    receipt, live_receipt = receipt_from_json(metadata), live_receipt_from_json(metadata)
    return LoggedCommit(
        version,
        rows,
        size_bytes,
        frozenset(touched),
        receipt,
        live_receipt=live_receipt,
        touched_anything=touched_anything,
        rows_removed=rows_removed,
        added=frozenset(paths[True]),
        removed=frozenset(paths[False]),
        stored=frozenset(stored),
        changes_table=changes_table,
    )
