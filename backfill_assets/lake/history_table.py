"""`<table>_history`: an append-only Delta table that records what was done to a table. Anyone can query it.

It has a row for each commit in the table's log and for each partition of a receipt. These rows stay when Delta cleans
the log. It also has a row for each partition that a launch refused, for each launch that stopped or failed, and for
each step of a version.

A table that was restored from a backup, or cloned, has other commits than its history shows. So each append records up
to which version the history agreed with the log, and overrules earlier rows about later versions. A reader believes the
history up to that version, and the log from there on.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.core.history.effects import ATTEMPTS
from backfill_assets.core.history.operations import LoggedOperation, batches_as_one
from backfill_assets.core.state.attempts import Attempt
from backfill_assets.core.state.receipts import (
    PartitionReceipt,
    PublishedPartition,
    Receipt,
    Run,
    marked_body,
    newest_by_partition,
    receipt_from_json,
    undone_by,
)
from backfill_assets.core.state.tallies import instant_of
from backfill_assets.core.state.version_steps import VersionStep
from backfill_assets.errors import TRIED_AGAIN, BackfillAssetsError, CommitConflictError, ReceiptError
from backfill_assets.lake.paths import history_path
from backfill_assets.lake.saving import saving
from backfill_assets.lake.small_tables import frame_of, small_table_options
from backfill_assets.lake.unreadable import lost_files
from backfill_assets.spark.failures import SPARK_FAILURES, first_words
from backfill_assets.table.log import TableLog, operations_in, receipts_in
from backfill_assets.table.readers import log_of

_COLUMNS = (
    "what string, at string, version bigint, last_version bigint, partition string, rows bigint, checksum string, "
    "first_event_time timestamp, last_event_time timestamp, run_id string, by string, reason string, detail string, "
    "fill bigint, after bigint, table_id string"
)
_COMMIT = "commit"
_OF_COMMITS = ("what", "at", "version", "last_version", "partition", "rows", "detail", "fill", "after", "table_id")
"""The columns that a reader of commits and receipts needs."""

Row = Mapping[str, Any]

_FILL = "backfill_assets_fill"
"""The transaction id of each append, and the key of its user metadata. That holds the append's id and number, and the
newest commit that the history contains. Delta commits only one of two appends with the same number."""

_RECENT = 20
"""An append looks for itself in this many of the newest commits."""

FILLED_EVERY = timedelta(days=1)
FILLED_EACH = 500
"""A stream fills the history after this time or this many commits, whichever comes first."""

_LOCK_TIMEOUT_SECONDS = 60.0
"""Shorter than the table's own timeout, because whoever holds the lock fills the history."""


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """The history of one table.

    Args:
        spark: Asked only to append.
        table: Key of the table, for messages.
        log: Of the table itself.
    """

    spark: SparkSession
    table: str
    log: TableLog

    @property
    def path(self) -> str:
        return history_path(self.log.path)

    @property
    def _own(self) -> TableLog:
        return log_of(self.spark, self.path)

    @property
    def _table_id(self) -> str:
        return self.log.table_id()

    # -- read ----------------------------------------------------------------------------------------------------------

    def receipts(self) -> dict[int, Receipt]:
        """Return every receipt there is, by version of the table."""
        stored, until = self._stored()
        return _receipts_in(stored) | self.log.receipts(until)

    def newest(self, *, until: int | None = None) -> dict[str, PublishedPartition]:
        """Return the newest publish of each partition, as of a version of the table or the newest."""
        return newest_by_partition(self._newest_receipts(until))

    def undone(self) -> set[str]:
        """Return the keys of partitions that were written last by an undo."""
        receipts = sorted(self._newest_receipts().items())
        newest = {key: receipt for _, receipt in receipts for key in receipt.partitions}
        return {key for key, receipt in newest.items() if undone_by(receipt)}

    def in_log(self, *, newest: int = 1_000) -> dict[int, Receipt]:
        """Return, by version, the receipts in the newest commits and all that the history does not contain yet.

        A killed launch does not fill the history. A stream may then commit any number of batches before the next
        launch looks for what the killed one published.
        """
        before = self.log.version() - newest
        return self.log.receipts(min(before, self._agreed_to(self._newest_fill())) if before >= 0 else -1)

    def operations(self) -> list[LoggedOperation]:
        """Return every known commit, in order. Consecutive batches of a stream may be one operation."""
        stored, until = self._stored()
        told = [_operation_of(row) for row in stored if row["what"] == _COMMIT]
        return sorted([*told, *self.log.operations(until)], key=lambda one: one.version)

    def attempts(self) -> list[Attempt]:
        """Return the partitions that launches refused, and the launches that stopped or failed, oldest first."""
        found: dict[tuple[str, str, str], Attempt] = {}
        for row in self._rows("refused", "stopped", "failed"):
            name = row["at"], row["run_id"], row["what"]
            fields: dict[str, Any] = json.loads(row["detail"])
            known = found.get(name)
            partitions, why = dict(known.partitions) if known else {}, fields["why"]
            if row["partition"] is not None:
                partitions[row["partition"]], why = why, ""
            run = Run(row["run_id"], fields["root_run_id"], by=row["by"], reason=row["reason"])
            found[name] = Attempt(row["at"], row["what"], row["version"], run, why=why, partitions=partitions)
        return list(found.values())

    def steps(self) -> list[VersionStep]:
        """Return the steps of all versions of the table, oldest first."""
        return [VersionStep(**json.loads(row["detail"])) for row in self._rows("step")]

    # -- appended to ---------------------------------------------------------------------------------------------------

    def fill(self, attempts: Sequence[Attempt] = (), *, commits: bool = True) -> int:
        """Append the commits that the log has and the history does not; return the number of receipts among them.

        Args:
            attempts: Refusals and failures of a launch. They go into the same commit.
            commits: If false, only the attempts are appended.

        Raises:
            ReceiptError: The history cannot be read. Nothing was appended.
            TableLockedError, CommitConflictError: Another writer is there. Nothing was appended.
        """
        with self._saving():
            if lost := lost_files(self.spark, self._own):
                raise self._unreadable(f"{len(lost):,} of its files are gone, first `{min(lost)}`")
            for _ in range(ATTEMPTS):
                before = self._newest_fill()
                after = self._agreed_to(before)
                infos = self.log.infos(after) if commits else {}
                receipts = receipts_in(infos)
                operations = batches_as_one(operations_in(infos))
                rows = [row for one in operations for row in _rows_of(one, receipts.get(one.version))]
                rows += [row for one in attempts for row in _rows_of_attempt(one)]
                if self._append(rows, before, after):
                    return len(receipts)
        raise self._overtaken()

    def fill_if_due(self, now_utc: datetime, warn: Callable[[str], None]) -> None:
        """Fill the history once a day, or after some hundred commits. A failure is only logged."""
        try:
            if self._is_due(now_utc):
                self.fill()
        except (*SPARK_FAILURES, BackfillAssetsError) as error:
            warn(f"What the log tells could not be copied to `{self.path}`; that is tried again. {first_words(error)}")

    def add_steps(self, steps: Sequence[VersionStep]) -> None:
        """Append steps of the table's versions in one commit. The table itself may not exist."""
        with self._saving():
            of_step = {"what": "step", "table_id": ""}
            told = [
                {"at": one.at, "by": one.by, "reason": one.reason, "detail": json.dumps(asdict(one))} for one in steps
            ]
            rows = [{**of_step, **row} for row in told]
            for _ in range(ATTEMPTS):
                before = self._newest_fill()
                if self._append(rows, before, self._agreed_to(before)):
                    return
        raise self._overtaken()

    def _saving(self) -> Any:
        return saving(self.path, self.table, timeout_seconds=_LOCK_TIMEOUT_SECONDS)

    def _append(self, rows: Sequence[Row], before: _Fill, after: int) -> bool:
        """Append rows in one commit. Return whether they are in the history now.

        They are not if another append followed the same one: Delta sees the number twice and makes no second commit.

        Args:
            before: The newest append when the rows were computed.
            after: The version up to which the history agrees with the log.
        """
        if not rows:
            return True
        table_id, append_id = self._table_id, uuid.uuid4().hex
        commits = [(row["last_version"], row["at"]) for row in rows if row["what"] == _COMMIT]
        of_all = {"fill": before.number + 1, "after": after, "table_id": table_id}
        newest = max(commits, default=before.newest if before.table_id == table_id else (-1, ""))
        carried = json.dumps({_FILL: append_id, "number": before.number + 1, "newest": newest, "table_id": table_id})
        writer = frame_of(self.spark, [{**of_all, **row} for row in rows], _COLUMNS).write.format("delta")
        writer.mode("append").options(**small_table_options(self.spark, self.path), userMetadata=carried).options(
            txnAppId=_FILL, txnVersion=str(before.number + 1)
        ).save(self.path)
        recent = self._own.infos(newest=_RECENT).values()
        return any((marked_body(one.user_metadata, _FILL) or {}).get(_FILL) == append_id for one in recent)

    def _is_due(self, now_utc: datetime) -> bool:
        """Return whether the last fill (or the first commit) is a day old, or many commits are missing."""
        commits = self.log.reader.commits()
        filled = self._own.reader.commits()
        times = [max(filled.values())] if filled else [min(commits.values())] if commits else []
        lacks = max(commits, default=-1) - self._agreed_to(self._newest_fill())
        return lacks >= FILLED_EACH or (bool(times) and now_utc - times[0] >= FILLED_EVERY)

    # -- which rows count ----------------------------------------------------------------------------------------------

    def _stored(self) -> tuple[list[Row], int]:
        """Return the believed rows of commits and receipts, and the last version that they cover."""
        try:
            rows = _counting(self._read(*_OF_COMMITS), self._table_id)
        except ReceiptError:
            if not self.log.is_whole(sys.maxsize):
                raise
            rows = []  # the log still has every commit
        until = self._agreed(rows)
        return [row for row in rows if row["last_version"] <= until], until

    def _newest_fill(self) -> _Fill:
        """Return the newest append. Its commit says all of it; rows are read only if somebody else committed last."""
        for one in self._own.infos(newest=1).values():
            carried = marked_body(one.user_metadata, _FILL)
            if carried is not None:
                version, at = carried["newest"]
                return _Fill(carried["number"], (version, at), carried["table_id"])
        rows = self._read(*_OF_COMMITS)
        number = max([self._own.version(), *(row["fill"] for row in rows)], default=-1)
        return _Fill(number, _newest(_counting(rows, self._table_id)), self._table_id)

    def _agreed_to(self, fill: _Fill) -> int:
        """Return the last version up to which the history is believed; -1 if there is none."""
        if fill.table_id == self._table_id and self._is_in_log(*fill.newest):
            return fill.newest[0]
        return self._agreed(_counting(self._read(*_OF_COMMITS), self._table_id))

    def _is_in_log(self, version: int, at: str) -> bool:
        """Return whether the log has this version with the same commit time."""
        found = self.log.infos(version - 1, until=version).get(version)
        return found is not None and found.at.isoformat() == at

    def _agreed(self, rows: Sequence[Row]) -> int:
        """Return the newest version that both these rows and the log have, with the same time; -1 if there is none.

        If Delta has cleaned every commit of these rows from the log, nothing contradicts them, and all are believed.
        """
        told = sorted({(row["last_version"], row["at"]) for row in rows if row["what"] == _COMMIT}, reverse=True)
        oldest = min(self.log.reader.commits(), default=0)
        if told and told[0][0] < oldest:
            return told[0][0]
        return next((version for version, at in told if version >= oldest and self._is_in_log(version, at)), -1)

    def _newest_receipts(self, until: int | None = None) -> dict[int, Receipt]:
        """Return the receipts that say which the newest publish of each partition is.

        A table that follows a database gets receipts with each refresh, without end. So only the newest receipts of
        each partition are assembled, and all receipts of partitions that an undo restored. Each receipt then contains
        only the partitions that were asked for.
        """
        stored, agreed = self._stored()
        logged = self.log.receipts(agreed)
        if until is not None:
            stored = [row for row in stored if row["version"] <= until]
            logged = {version: one for version, one in logged.items() if version <= until}
        of_partitions = [row for row in stored if row["partition"] is not None]
        newest = {row["partition"]: row["version"] for row in sorted(of_partitions, key=lambda row: row["version"])}
        put_back = {key for one in logged.values() if one.kind == "put_back" for key in one.partitions}
        put_back |= {row["partition"] for row in of_partitions if row["what"] == "put_back"}
        chosen = [r for r in of_partitions if r["partition"] in put_back or newest[r["partition"]] == r["version"]]
        named = {row["version"] for row in chosen}
        of_commits = [row for row in stored if row["what"] == _COMMIT and row["version"] in named]
        return _receipts_in([*of_commits, *chosen]) | logged

    def _rows(self, *what: str) -> list[Row]:
        """Return the rows of some kinds, oldest first."""
        mine = self._table_id, ""
        found = [row for row in self._read() if row["what"] in what and row["table_id"] in mine]
        return sorted(found, key=lambda row: [row[name] or "" for name in ("at", "run_id", "partition")])

    def _read(self, *columns: str) -> list[Row]:
        """Return all rows, in some columns or in all."""
        try:
            rows = self._own.rows(columns or None)
        except BackfillAssetsError as error:
            raise self._unreadable(error.what) from error
        return [*rows] if rows else []

    def _overtaken(self) -> CommitConflictError:
        return CommitConflictError(
            f"`{self.table}`: in each of {ATTEMPTS} attempts, another writer appended to `{self.path}` first.",
            state="The table's rows are not affected; nothing was appended.",
            remedy=TRIED_AGAIN,
        )

    def _unreadable(self, why: str) -> ReceiptError:
        return ReceiptError(
            f"`{self.table}`: its history at `{self.path}` cannot be read: {why}",
            state="The table's rows are not affected.",
            remedy="Put the folder back from a backup; or move it away, and the next launch fills it again from the "
            "table's log: partitions that were published before that begins are launched again.",
        )


@dataclass(frozen=True, slots=True)
class _Fill:
    """The newest append.

    Args:
        newest: The newest version of the table that the history contained then, and its commit time.
    """

    number: int
    newest: tuple[int, str]
    table_id: str


def _counting(rows: Iterable[Row], table_id: str) -> list[Row]:
    """Return the rows of a table's commits and receipts that no later append has overruled."""
    mine = [row for row in rows if row["table_id"] == table_id and row["last_version"] is not None]
    most, limits, after = sys.maxsize, dict[int, int](), {row["fill"]: row["after"] for row in mine}
    for fill in sorted(after, reverse=True):
        limits[fill] = most
        most = min(most, after[fill])
    return [row for row in mine if row["last_version"] <= limits[row["fill"]]]


def _newest(rows: Iterable[Row]) -> tuple[int, str]:
    """Return the newest version among some rows, and its commit time; -1 if there are none."""
    told = ((row["last_version"], row["at"]) for row in rows if row["what"] == _COMMIT)
    return max(told, default=(-1, ""))


# -- as rows, and back -------------------------------------------------------------------------------------------------


def _rows_of(one: LoggedOperation, receipt: Receipt | None) -> list[dict[str, Any]]:
    """Return the row of a commit, and one for each partition that its receipt names."""
    detail = {
        "operation": one.name,
        "properties": dict(one.properties),
        "live": one.live,
        "stream": one.stream,
        "batches": one.batches,
        "receipt": receipt and replace(receipt, partitions={}).to_json(),
    }
    of_commit = {"at": one.at.astimezone(UTC).isoformat(), "version": one.version, "last_version": one.last_version}
    if receipt is None:
        return [{**of_commit, "what": _COMMIT, "rows": one.rows, "detail": json.dumps(detail)}]
    of_commit |= {"run_id": receipt.run.id, "by": receipt.run.by, "reason": receipt.run.reason}
    return [
        {**of_commit, "what": _COMMIT, "detail": json.dumps(detail)},
        *(
            {
                **of_commit,
                "what": receipt.kind,
                "partition": key,
                "rows": part.rows,
                "checksum": part.checksum,
                "first_event_time": _iso(part.first_event_micros),
                "last_event_time": _iso(part.last_event_micros),
                "detail": json.dumps(asdict(part)),
            }
            for key, part in receipt.partitions.items()
        ),
    ]


def _rows_of_attempt(one: Attempt) -> list[dict[str, Any]]:
    """Return a row for each refused partition, or one row for the launch if none was refused."""
    of_all = {
        "what": one.outcome,
        "at": one.at,
        "version": one.version,
        "run_id": one.run.id,
        "by": one.run.by,
        "reason": one.run.reason,
    }
    told = {"root_run_id": one.run.root_id, "why": one.why}
    if not one.partitions:
        return [{**of_all, "detail": json.dumps(told)}]
    return [
        {**of_all, "partition": key, "detail": json.dumps({**told, "why": why})} for key, why in one.partitions.items()
    ]


def _iso(micros: int | None) -> str | None:
    instant = instant_of(micros)
    return None if instant is None else instant.isoformat(timespec="microseconds")


def _operation_of(row: Row) -> LoggedOperation:
    detail: dict[str, Any] = json.loads(row["detail"])
    return LoggedOperation(
        row["version"],
        datetime.fromisoformat(row["at"]),
        detail["operation"],
        detail["properties"],
        detail["live"],
        stream=detail["stream"],
        rows=row["rows"] or 0,
        batches=detail["batches"],
    )


def _receipts_in(rows: Iterable[Row]) -> dict[int, Receipt]:
    """Return the receipts in rows of commits and partitions, by version."""
    partitions: dict[int, dict[str, PartitionReceipt]] = {}
    found: dict[int, Receipt] = {}
    for row in rows:
        told: Any = json.loads(row["detail"])
        if row["what"] != _COMMIT:
            of_version = partitions.setdefault(row["version"], {})
            of_version[row["partition"]] = PartitionReceipt.from_values(*told.values())
        elif (receipt := receipt_from_json(told["receipt"])) is not None:
            found[row["version"]] = receipt
    return {version: replace(found[version], partitions=partitions.get(version, {})) for version in sorted(found)}
