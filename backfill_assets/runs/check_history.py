"""What Dagster has recorded of a table's comparisons: which partitions differ, and since when."""

from collections.abc import Collection, Iterator, Set
from datetime import UTC, datetime

import dagster as dg
import sqlalchemy as db
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus
from dagster._core.storage.event_log.base import EventLogStorage
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

from backfill_assets.runs.table import Table

RECONCILED = "reconciled"
"""The check of each partition: it equals its source."""

PUT_BACK = "put_back"
"""Metadata of an evaluation that compared nothing: why the rows that were compared before are taken back."""

EVALUATED = frozenset({CheckStatus.SUCCEEDED, CheckStatus.FAILED})
MOST_RECORDS = 20_000
"""So many records of Dagster's history are fetched at once."""

_MOST_NAMED = 500
"""So many records or partitions does one query name; databases have a limit."""


def failed_comparisons(instance: dg.DagsterInstance, table: Table) -> dict[str, datetime]:
    """Return the partitions whose newest comparison failed, and since when they fail without a pass between."""
    return {key: since for key, since in not_passed(instance, table).items() if since is not None}


def not_passed(instance: dg.DagsterInstance, table: Table) -> dict[str, datetime | None]:
    """Return the partitions whose newest check has not passed, and since when they differ without a pass between.

    A check that was only planned, by a run that goes on or was killed, compared nothing: what came before it counts.
    So does it for a partition that was left out of a comparison. One that was put back, and not compared since, has
    None: what was found before is of rows that are gone.
    """
    key, storage = dg.AssetCheckKey(table.asset_key, RECONCILED), instance.event_log_storage
    found = storage.get_asset_check_partition_info([key])
    open_keys = {
        info.partition_key
        for info in found
        if info.partition_key is not None and info.latest_execution_status is not CheckStatus.SUCCEEDED
    }
    since: dict[str, datetime | None] = {}
    for record in _evaluated(storage, key, open_keys, failures_only=True):
        partition, told = record.partition, _told(record)
        if partition not in open_keys:
            continue
        if PUT_BACK in told:
            open_keys.remove(partition)
            since.setdefault(partition, None)
        elif told:
            since[partition] = datetime.fromtimestamp(record.create_timestamp, tz=UTC)
    return since


def compared_since(instance: dg.DagsterInstance, table: Table, keys: Collection[str], made_at: str) -> set[str]:
    """Return which partitions were compared after an instant in ISO format; none if nobody knows the instant."""
    if not made_at:
        return set()
    key, since = dg.AssetCheckKey(table.asset_key, RECONCILED), datetime.fromisoformat(made_at).timestamp()
    return {
        record.partition
        for record in _evaluated(instance.event_log_storage, key, keys)
        if record.partition and _told(record) and record.event
        if record.event.timestamp > since + 1  # receipts have whole seconds
    }


def _evaluated(
    storage: EventLogStorage, key: dg.AssetCheckKey, partitions: Collection[str], *, failures_only: bool = False
) -> Iterator[AssetCheckExecutionRecord]:
    """Yield the evaluations of partitions, the newest first: of each what failed since its newest pass, and that."""
    if isinstance(storage, SqlEventLogStorage):
        yield from _in_database(storage, key, partitions, failures_only)
        return
    if failures_only:  # the others passed, or were never evaluated
        failed = _in_pages(storage, key, partitions, frozenset({CheckStatus.FAILED}))
        partitions = {record.partition for record in failed if record.partition}
    passed = set[str | None]()
    for record in _in_pages(storage, key, partitions, EVALUATED):
        if record.partition in passed:
            continue
        if record.status is CheckStatus.SUCCEEDED:
            passed.add(record.partition)
        if record.status is CheckStatus.FAILED or not failures_only:
            yield record


def _in_database(
    storage: SqlEventLogStorage, key: dg.AssetCheckKey, partitions: Collection[str], failures_only: bool
) -> Iterator[AssetCheckExecutionRecord]:
    """Ask the database which records are wanted, and read no others' events.

    Dagster's own call reads the event of each: one failure below a hundred thousand others takes it a minute.
    """
    rows = AssetCheckExecutionsTable.c
    of_check = db.and_(rows.asset_key == key.asset_key.to_string(), rows.check_name == key.name)
    if len(partitions) <= _MOST_NAMED:
        of_check = db.and_(of_check, rows.partition.in_(partitions))
    is_pass, is_failure = (rows.execution_status == each.value for each in (CheckStatus.SUCCEEDED, CheckStatus.FAILED))
    passes = db.select(rows.partition, db.func.max(rows.id)).where(of_check, is_pass).group_by(rows.partition)
    failures = db.select(rows.partition, rows.id).where(of_check, is_failure)
    with storage.index_connection() as connection:
        passed = {partition: at for partition, at in connection.execute(passes) if partition in partitions}
        failed = {
            at
            for partition, at in connection.execute(failures)
            if partition in partitions and at > passed.get(partition, 0)
        }
    ids = sorted(failed if failures_only else failed | set(passed.values()), reverse=True)
    for first in range(0, len(ids), _MOST_NAMED):
        some = rows.id.in_(ids[first : first + _MOST_NAMED])
        with storage.index_connection() as connection:
            found = connection.execute(db.select(AssetCheckExecutionsTable).where(some).order_by(rows.id.desc()))
            records = [AssetCheckExecutionRecord.from_db_row(row, key) for row in found.mappings()]
        yield from records


def _in_pages(
    storage: EventLogStorage, key: dg.AssetCheckKey, partitions: Collection[str], status: Set[CheckStatus]
) -> Iterator[AssetCheckExecutionRecord]:
    """Yield the evaluations of partitions, the newest first, at least until each was compared in one.

    A single comparison of a table of hours may have more of them than are fetched at once.
    """
    unseen, cursor = set(partitions), None
    while unseen:
        page = storage.get_asset_check_execution_history(key, MOST_RECORDS, cursor, status)
        yield from (record for record in page if record.partition in partitions)
        if len(page) < MOST_RECORDS:
            break
        cursor = page[-1].id
        unseen -= {record.partition for record in page if record.partition and _told(record)}


def _told(record: AssetCheckExecutionRecord) -> Collection[str]:
    """Return of what an evaluation has told; nothing if its partition was left out of the comparison."""
    return record.evaluation.metadata.keys() if record.evaluation else {"what cannot be read"}
