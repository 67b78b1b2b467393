"""A table held against its source, or against its receipts, inside a run."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus
from dagster._core.storage.event_log.base import EventLogStorage

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.comparison import Comparison, compare
from backfill_assets.core.history.reconcile import reconcile
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.partition_status import Known, lost_at_source, status_of
from backfill_assets.core.state.receipts import audited_contents, has_other_columns
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.errors import SourceIncompleteError
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable

RECONCILED = "reconciled"
"""The check of each partition: it equals its source."""

PUT_BACK = "put_back"
"""Metadata of an evaluation that compared nothing: why the rows that were compared before are taken back."""

EVALUATED = frozenset({CheckStatus.SUCCEEDED, CheckStatus.FAILED})
MOST_RECORDS = 20_000
"""So many records of Dagster's history are fetched at once."""

FEW_PARTITIONS = 100
"""Of so many partitions each one's history is asked for; of more, that of all of them."""


def reconcile_table(
    table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse, wanted: Sequence[Partition], log: Any
) -> Iterator[Comparison]:
    """Read source and table afresh and compare them, partition by partition.

    Raises:
        SourceIncompleteError: The source is complete for none of them.
        SameTableError: The source lies among the lakehouse's tables.
        SchemaMismatchError: The table has other columns than its spec.
    """
    delta = lakehouse.table(table.spec, log)
    delta.refuse_another_schema()
    source = lakehouse.source(table.spec, specs, table.transform() if table.transform else None, log)
    yield from reconcile(table.spec, wanted, source, delta, code_version=table.code_version, log=log)


def complete_partitions(
    table: "Table", specs: Mapping[str, TableSpec], lakehouse: Lakehouse, log: Any
) -> list[Partition]:
    """Return all partitions that are to be compared: history for which the source is complete, or was.

    Raises:
        SourceIncompleteError: It is complete for none.
    """
    source, delta = lakehouse.source(table.spec, specs, None, log), lakehouse.table(table.spec, log)
    until, published = source.complete_until(), delta.published()
    bounds = Known(published, fence=delta.fence(), complete_until=until, is_source_known=True)
    partitions = table.spec.grid.until(until) if until else []
    complete = [status.partition for status in status_of(partitions, bounds) if status.can_be_compared]
    if table.spec.changes and table.spec.changes.backfill == "excluded":
        surveys = source.survey(complete)
        complete = [partition for partition in complete if surveys[partition.key].is_expected]
    if not complete:
        raise SourceIncompleteError(
            f"`{table.spec.key}`: its source has nothing yet.",
            state="Nothing was compared.",
            remedy="Run it again when the source has a whole partition.",
        )
    lost = lost_at_source(table.spec.grid.from_start(published), bounds)
    return sorted([*complete, *(status.partition for status in lost)])


def compare_with_receipts(
    wanted: Sequence[Partition],
    delta: "LakeTable",
    code_version: str,
    read: Mapping[str, tuple[int, Tally]] | None = None,
) -> tuple[list[Comparison], list[Partition]]:
    """Read partitions of the table back and hold them against their receipts, both as of one version of the table.

    Args:
        code_version: Of the code that reads. What was published with other columns is held against its receipt by
            count alone.
        read: What this run has read already, by partition key, each with a version after which it was; it counts if
            nobody has written the partition since.

    Returns:
        The comparisons; and the partitions without a receipt, with which nothing is to be compared.
    """
    version = delta.version()
    published = delta.published(until=version)
    present = [partition for partition in wanted if partition.key in published]
    tallies = _still_so(delta, present, read or {}, version)
    unread = [partition for partition in present if partition.key not in tallies]
    unique = audited_contents(published, unread, delta.spec, code_version)
    tallies |= delta.tally(unread, version=version, unique=unique) if unread else {}
    schema_problems = delta.schema_problems() if present else []
    compared = [
        compare(
            partition,
            table=tallies.get(partition.key, EMPTY),
            source=published[partition.key].partition,
            schema_problems=schema_problems,
            has_other_columns=has_other_columns(published[partition.key].receipt, delta.spec, code_version),
        )
        for partition in present
    ]
    return compared, [partition for partition in wanted if partition.key not in published]


def _still_so(
    delta: "LakeTable", partitions: Sequence[Partition], read: Mapping[str, tuple[int, Tally]], version: int
) -> dict[str, Tally]:
    """Return of what was read before what nobody has written since, up to a version."""
    by_version: dict[int, list[Partition]] = {}
    for partition in partitions:
        if partition.key in read:
            by_version.setdefault(read[partition.key][0], []).append(partition)
    same = [p for at, some in by_version.items() if not delta.versions_writing(at, version + 1, some) for p in some]
    return {partition.key: read[partition.key][1] for partition in same}


def failed_comparisons(instance: dg.DagsterInstance, table: Table) -> dict[str, datetime]:
    """Return the partitions whose newest comparison failed, and since when they fail without a pass between."""
    return {key: since for key, since in not_passed(instance, table).items() if since is not None}


def not_passed(instance: dg.DagsterInstance, table: Table) -> dict[str, datetime | None]:
    """Return the partitions whose newest check has not passed, and since when they differ without a pass between.

    A check that was only planned, by a run that goes on or was killed, compared nothing: what came before it counts.
    So does it for a partition that was left out of a comparison. One that was put back, and not compared since, has
    None: what was found before is of rows that are gone.
    """
    key = dg.AssetCheckKey(table.asset_key, RECONCILED)
    storage, newest = instance.event_log_storage, _newest(instance, key)
    open_keys = {partition for partition, status in newest.items() if status is CheckStatus.FAILED}
    if CheckStatus.PLANNED in newest.values():
        planned = {partition for partition, status in newest.items() if status is CheckStatus.PLANNED}
        failed = _evaluated(storage, key, planned, frozenset({CheckStatus.FAILED}))
        open_keys |= planned & {record.partition for record in failed}
    since: dict[str, datetime | None] = {}
    for record in _evaluated(storage, key, open_keys, EVALUATED):
        partition = record.partition
        if partition is None or partition not in open_keys:
            continue
        told = _told(record)
        if record.status is CheckStatus.SUCCEEDED:
            open_keys.remove(partition)
        elif PUT_BACK in told:
            open_keys.remove(partition)
            since.setdefault(partition, None)
        elif told:
            since[partition] = datetime.fromtimestamp(record.create_timestamp, tz=UTC)
    return since


def compared_since(instance: dg.DagsterInstance, table: Table, keys: Collection[str], made_at: str) -> set[str | None]:
    """Return which partitions were compared after an instant in ISO format; none if nobody knows the instant."""
    if not made_at:
        return set()
    key, since = dg.AssetCheckKey(table.asset_key, RECONCILED), datetime.fromisoformat(made_at).timestamp()
    return {
        record.partition
        for record in _evaluated(instance.event_log_storage, key, keys, EVALUATED)
        if record.partition in keys and _told(record) and record.event
        if record.event.timestamp > since + 1  # receipts have whole seconds
    }


def _newest(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dict[str | None, CheckStatus]:
    """Return how the newest evaluation of a check ended, or that it was only planned, by partition."""
    found = instance.event_log_storage.get_asset_check_partition_info([key])
    return {info.partition_key: info.latest_execution_status for info in found}


def _evaluated(
    storage: EventLogStorage,
    key: dg.AssetCheckKey,
    partitions: Collection[str | None],
    status: Set[CheckStatus],
) -> Iterator[AssetCheckExecutionRecord]:
    """Yield the evaluations of a check, the newest first, at least until each partition was compared in one.

    A single comparison of a table of hours may have more of them than are fetched at once; so of a few partitions
    their own are asked for.
    """
    few = [PartitionKeyFilter(key=partition) for partition in partitions] if len(partitions) <= FEW_PARTITIONS else None
    for asked in [None] if few is None else few:
        unseen, cursor = set(partitions), None
        while unseen:
            page = storage.get_asset_check_execution_history(key, MOST_RECORDS, cursor, status, asked)
            yield from page
            if len(page) < MOST_RECORDS:
                break
            cursor = page[-1].id
            unseen -= {record.partition for record in page if _told(record)}


def _told(record: AssetCheckExecutionRecord) -> Collection[str]:
    """Return of what an evaluation has told; nothing if its partition was left out of the comparison."""
    return record.evaluation.metadata.keys() if record.evaluation else {"what cannot be read"}
