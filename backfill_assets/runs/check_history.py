"""What Dagster has recorded of a table's comparisons: which partitions differ, and since when."""

from collections.abc import Collection, Iterator, Sequence, Set
from datetime import UTC, datetime, timedelta

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

_MOST_NAMED = 500
"""So many records or partitions does one query name; databases have a limit."""

_MOST_RECORDS = 20_000
"""So many records are fetched at once where there is no database to ask."""

_ROWS = AssetCheckExecutionsTable.c


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
    in_database = isinstance(storage, SqlEventLogStorage)
    if in_database:  # Dagster's own call reads a row of every partition
        may_fail = {partition for partition, _ in _ids(storage, key, None, {CheckStatus.FAILED})}
    else:
        found = storage.get_asset_check_partition_info([key])
        may_fail = {one.partition_key for one in found if one.latest_execution_status is not CheckStatus.SUCCEEDED}
    # Of what lies before a start that was moved nothing is launched.
    open_keys = {partition for partition in may_fail if partition and table.spec.grid.is_key(partition)}
    if not open_keys:
        return {}
    return _since_in_database(storage, key, open_keys) if in_database else _since_in_pages(storage, key, open_keys)


def compared_since(instance: dg.DagsterInstance, table: Table, keys: Collection[str], made_at: str) -> set[str]:
    """Return which partitions were compared after an instant in ISO format; none if nobody knows the instant."""
    if not made_at:
        return set()
    key, since = dg.AssetCheckKey(table.asset_key, RECONCILED), datetime.fromisoformat(made_at)
    storage, keys = instance.event_log_storage, frozenset(keys)
    if isinstance(storage, SqlEventLogStorage):
        about = (since.astimezone(UTC) - timedelta(days=1)).replace(tzinfo=None)  # in whichever zone the column is
        is_later = _ROWS.evaluation_event_timestamp > about
        found = _records(storage, key, [at for _, at in _ids(storage, key, keys, EVALUATED, is_later)])
    else:
        found = _in_pages(storage, key, keys, EVALUATED)
    return {
        record.partition
        for record in found
        if record.partition and record.status in EVALUATED and _told(record) and record.event
        if record.event.timestamp > since.timestamp() + 1  # receipts have whole seconds
    }


# -- in a database -----------------------------------------------------------------------------------------------------


def _since_in_database(
    storage: SqlEventLogStorage, key: dg.AssetCheckKey, open_keys: Collection[str]
) -> dict[str, datetime | None]:
    """Return what `not_passed` does; of each partition the event of the oldest failure is read, and few others.

    Dagster's own call reads the event of each evaluation: one failure below a hundred thousand takes it a minute.
    """
    bounds = dict(_ids(storage, key, open_keys, {CheckStatus.SUCCEEDED}))  # the newest of each comes last
    says_so = _ROWS.evaluation_event.like(f'%"{PUT_BACK}"%')
    named = [at for partition, at in _ids(storage, key, open_keys, {CheckStatus.FAILED}, says_so)]
    since: dict[str, datetime | None] = {}
    for record in _records(storage, key, named):
        if record.partition and PUT_BACK in _told(record) and record.id > bounds.get(record.partition, 0):
            bounds[record.partition] = record.id
            since[record.partition] = None
    failures: dict[str, list[int]] = {}
    for partition, at in _ids(storage, key, open_keys, {CheckStatus.FAILED}):
        if at > bounds.get(partition, 0):
            failures.setdefault(partition, []).append(at)
    oldest_first = {partition: iter(ids) for partition, ids in failures.items()}
    while asked := {at: each for each, ids in oldest_first.items() if (at := next(ids, None)) is not None}:
        oldest_first = {partition: oldest_first[partition] for partition in asked.values()}
        for record in _records(storage, key, list(asked)):
            partition, told = asked[record.id], _told(record)
            if record.status is CheckStatus.SUCCEEDED:  # since it was asked for, as below; the next one tells
                since.pop(partition, None)
            elif PUT_BACK in told:
                since[partition] = None
            elif told:  # else it was left out of that comparison
                since[partition] = datetime.fromtimestamp(record.create_timestamp, tz=UTC)
                del oldest_first[partition]
    return since


def _ids(
    storage: SqlEventLogStorage,
    key: dg.AssetCheckKey,
    partitions: Collection[str] | None,
    status: Set[CheckStatus],
    *more: db.ColumnElement[bool],
) -> list[tuple[str, int]]:
    """Return partition and id of a check's evaluations, in the order in which they were planned.

    Args:
        partitions: The ones to look at; None for all.
    """
    conditions = [
        _ROWS.asset_key == key.asset_key.to_string(),
        _ROWS.check_name == key.name,
        _ROWS.execution_status.in_([each.value for each in status]),
        *more,
    ]
    if partitions is not None and len(partitions) <= _MOST_NAMED:
        conditions.append(_ROWS.partition.in_(partitions))
    query = db.select(_ROWS.partition, _ROWS.id).where(*conditions).order_by(_ROWS.id)
    with storage.index_connection() as connection:
        return [
            (partition, at)
            for partition, at in connection.execute(query)
            if partitions is None or partition in partitions
        ]


def _records(
    storage: SqlEventLogStorage, key: dg.AssetCheckKey, ids: Sequence[int]
) -> Iterator[AssetCheckExecutionRecord]:
    """Yield records with their events, in order."""
    for first in range(0, len(ids), _MOST_NAMED):
        some = _ROWS.id.in_(ids[first : first + _MOST_NAMED])
        with storage.index_connection() as connection:
            found = connection.execute(db.select(AssetCheckExecutionsTable).where(some).order_by(_ROWS.id))
            records = [AssetCheckExecutionRecord.from_db_row(row, key) for row in found.mappings()]
        yield from records


# -- elsewhere ---------------------------------------------------------------------------------------------------------


def _since_in_pages(
    storage: EventLogStorage, key: dg.AssetCheckKey, open_keys: Collection[str]
) -> dict[str, datetime | None]:
    """Return what `not_passed` does; `since` may be younger where there are more failures than are fetched at once."""
    failed = _in_pages(storage, key, open_keys, frozenset({CheckStatus.FAILED}))
    left = {record.partition for record in failed if record.partition}  # the others passed, or were never evaluated
    since: dict[str, datetime | None] = {}
    for record in _in_pages(storage, key, frozenset(left), EVALUATED):
        partition, told = record.partition, _told(record)
        if partition is None or partition not in left:
            continue
        if record.status is CheckStatus.SUCCEEDED:
            left.remove(partition)
        elif PUT_BACK in told:
            left.remove(partition)
            since.setdefault(partition, None)
        elif told:
            since[partition] = datetime.fromtimestamp(record.create_timestamp, tz=UTC)
    return since


def _in_pages(
    storage: EventLogStorage, key: dg.AssetCheckKey, partitions: Collection[str], status: Set[CheckStatus]
) -> Iterator[AssetCheckExecutionRecord]:
    """Yield the evaluations of partitions, the newest first, at least until each was compared in one.

    A single comparison of a table of hours may have more of them than are fetched at once.
    """
    unseen, cursor = set(partitions), None
    while unseen:
        page = storage.get_asset_check_execution_history(key, _MOST_RECORDS, cursor, status)
        yield from (record for record in page if record.partition in partitions)
        if len(page) < _MOST_RECORDS:
            break
        cursor = page[-1].id
        unseen -= {record.partition for record in page if record.partition and _told(record)}


def _told(record: AssetCheckExecutionRecord) -> Collection[str]:
    """Return of what an evaluation has told; nothing if its partition was left out of the comparison."""
    return record.evaluation.metadata.keys() if record.evaluation else {"what cannot be read"}
