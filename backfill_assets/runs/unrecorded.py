"""What runs have published and Dagster has not heard of is recorded, from the receipts of their commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.core.spec.checks import Rule
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, undone_by
from backfill_assets.runs.check_history import compared_since
from backfill_assets.runs.comparisons import compare_with_receipts
from backfill_assets.runs.evaluations import evaluations_of, newest_materializations, newest_records
from backfill_assets.runs.killed import UNFINISHED
from backfill_assets.runs.recorded_evaluations import log_evaluations, newest_event, record_put_back
from backfill_assets.runs.recording import RECEIPT, TELLS_NOTHING, materialization, partition_metadata, recording

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table

RECENT_COMMITS = 1_000
"""Commits of a table that are looked through for what Dagster has not heard of, besides what the copy lacks."""

_PAGE, _MOST_PAGES = 1_000, 20
"""So many events are fetched at once, and so often, to find those of a run's partitions."""


def record_unrecorded(
    context: dg.AssetExecutionContext,
    table: Table,
    delta: LakeTable,
    receipts: Mapping[int, Receipt],
    *,
    of_this_run: bool = False,
) -> int:
    """Record commits that Dagster has not heard of; return how many partitions that were.

    Of a run that did not end well the newest receipt is looked at, since every earlier one was recorded before it; of a
    run that Dagster does not know, or knows no more, all are. If a launch put something back with a receipt, that
    published nothing; an `undo` did what it was to do. Nobody has held the last commit of a run against what was
    audited: that is done now. A partition that has other rows is not recorded as published, and fails its check.

    Args:
        receipts: The newest in the log, by version.
        of_this_run: Look at the run itself, which is being stopped, instead of all others.
    """
    by_run: dict[str, dict[int, Receipt]] = {}
    for version, receipt in sorted(receipts.items()):
        if receipt.partitions and (receipt.run.id == context.run.run_id) is of_this_run:
            by_run.setdefault(receipt.run.id, {})[version] = receipt
    last_written, recorded = dict[str, int](), 0
    for run_id, made in by_run.items():
        run = context.instance.get_run_by_id(run_id)
        if run is not None and (
            run.status == dg.DagsterRunStatus.SUCCESS or (run.status in UNFINISHED and not of_this_run)
        ):
            continue  # it told Dagster, or it lives and still can
        last_written = last_written or {key: v for v, one in sorted(receipts.items()) for key in one.partitions}
        lacking: dict[int, list[str]] = {}
        for version, receipt in made.items() if run is None else [max(made.items())]:
            is_undo = bool(undone_by(receipt))
            if receipt.kind == "put_back" and not is_undo:
                continue
            keys = _without_event(context.instance, table.asset_key, version, receipts, last_written)
            lacking[version] = _not_compared(context.instance, table, keys, receipt) if is_undo else keys
        found = {v: (receipts[v], keys) for v, keys in lacking.items() if keys}
        recorded += _record(context, table, delta, found, max(made))
    return recorded


def untold(
    instance: dg.DagsterInstance, table: Table, restored: Sequence[tuple[str, PublishedPartition]]
) -> list[tuple[str, PublishedPartition]]:
    """Return of partitions that were put back those of which Dagster has no event, and which nobody compared since."""
    receipts = {one.version: one.receipt for _, one in restored}
    last_written, lacking = {key: one.version for key, one in restored}, set[str]()
    for version, receipt in receipts.items():
        without_event = _without_event(instance, table.asset_key, version, receipts, last_written)
        lacking.update(_not_compared(instance, table, without_event, receipt))
    return [(key, one) for key, one in restored if key in lacking]


def told_receipts(instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Sequence[str]) -> dict[str, object]:
    """Return the id of the newest receipt that Dagster was told of for each partition, by key.

    An event that tells nothing, since a launch found the partition as it is, is passed over for the one before it.
    """
    told, silent = dict[str, object](), set[str]()
    for record in newest_records(instance, asset_key, keys):
        _take(record, told, silent)
    for record in _events_of(instance, asset_key, silent):
        _take(record, told, silent)
    return told


def _take(record: dg.EventLogRecord, told: dict[str, object], silent: set[str]) -> None:
    """Note what an event tells of its partition, if nothing newer has told of it; or that it tells nothing."""
    event = record.asset_materialization
    if event is None or event.partition is None or event.partition in told:
        return
    if RECEIPT not in event.metadata or TELLS_NOTHING & event.metadata.keys():
        silent.add(event.partition)
    else:
        told[event.partition] = event.metadata[RECEIPT].value
        silent.discard(event.partition)


def _not_compared(instance: dg.DagsterInstance, table: Table, keys: Sequence[str], receipt: Receipt) -> list[str]:
    """Return the partitions that were not compared after a receipt."""
    compared = compared_since(instance, table, keys, receipt.made_at)
    return [key for key in keys if key not in compared]


def _as_audited(
    context: dg.AssetExecutionContext, table: Table, delta: LakeTable, keys: Sequence[str], *, is_undo: bool
) -> list[str]:
    """Return the keys of the partitions that hold what their receipts name; fail the check of the others.

    What an undo puts back may be rows that break another rule: nobody has audited them.
    """
    partitions = [table.spec.grid.partition(key) for key in keys if table.spec.grid.is_key(key)]
    since = newest_event(context.instance)
    targets = newest_materializations(context.instance, table.asset_key, partitions)
    compared, _ = compare_with_receipts(partitions, delta, table.code_version)
    rules = {Rule.ROWS_MATCH_SOURCE} if is_undo else set(Rule)
    wrong = [c for c in compared if any(verdict.rule in rules for verdict in c.failures)]
    for comparison in wrong:
        context.log.error(f"A run did not write what was audited, or somebody has changed it since: {comparison}")
    log_evaluations(context, list(evaluations_of(table, wrong, targets)), since=since)
    wrong_keys = {comparison.partition.key for comparison in wrong}
    return [key for key in keys if key not in wrong_keys]


def _without_event(
    instance: dg.DagsterInstance,
    asset_key: dg.AssetKey,
    version: int,
    receipts: Mapping[int, Receipt],
    last_written: Mapping[str, int],
) -> list[str]:
    """Return the partitions that a version published last, and of which Dagster has no materialization of it.

    What a later version has replaced is told of by that one's event. An event counts if its receipt is in the log: a
    table that was deleted and made again begins to count its versions again.

    Args:
        receipts: The newest in the log, by version.
        last_written: Version of the newest of each partition among them.
    """
    lacking = {key for key, newest in last_written.items() if newest == version}
    ids = {receipt.receipt_id for v, receipt in receipts.items() if v >= version}
    for record in _events_of(instance, asset_key, lacking):
        event = record.asset_materialization
        if event and event.partition and _tells_of(event.metadata, version, ids):
            lacking.discard(event.partition)
    return [key for key in receipts[version].partitions if key in lacking]


def _events_of(instance: dg.DagsterInstance, asset_key: dg.AssetKey, keys: Set[str]) -> Iterator[dg.EventLogRecord]:
    """Yield the materializations of partitions, the newest first, page by page, until none of the keys is left.

    Args:
        keys: Whoever reads takes away those of which it has what it looks for.
    """
    cursor = None
    for _ in range(_MOST_PAGES):
        if not keys:
            return
        wanted = dg.AssetRecordsFilter(asset_key=asset_key, asset_partitions=sorted(keys))
        page = instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
        yield from page.records
        cursor = page.cursor
        if not page.has_more:
            return


def _tells_of(metadata: Mapping[str, Any], version: int, receipt_ids: Set[str]) -> bool:
    """Say whether an event is of a version of this table, or of a later one."""
    found, receipt = metadata.get("table_version"), metadata.get(RECEIPT)
    if TELLS_NOTHING & metadata.keys():
        return False  # a launch found it there, before whoever published it was known to have ended
    if found is None or not isinstance(found.value, int) or found.value < version:
        return False
    return receipt is not None and receipt.value in receipt_ids


def _record(
    context: dg.AssetExecutionContext,
    table: Table,
    delta: LakeTable,
    lacking: Mapping[int, tuple[Receipt, Sequence[str]]],
    newest: int,
) -> int:
    """Record partitions of a run's commits; return how many that are.

    Of its last one those that hold what was audited: the run had looked at every earlier one itself.

    Args:
        lacking: Receipt and partitions of which Dagster has no event, by version.
        newest: The version of its last commit.
    """
    if not lacking:
        return 0
    is_undo = any(undone_by(receipt) for receipt, _ in lacking.values())
    last = lacking.get(newest, (None, ()))[1]
    as_audited = {key for version, (_, keys) in lacking.items() if version != newest for key in keys}
    as_audited.update(_as_audited(context, table, delta, last, is_undo=is_undo) if last else ())
    for version, (receipt, wanted) in lacking.items():
        keys = [key for key in wanted if key in as_audited]
        if not keys:
            continue
        context.log.warning(
            f"Version {version} {'put back' if is_undo else 'published'} {len(keys)} partitions ({keys[0]} to "
            f"{keys[-1]}) in run {receipt.run.id}, and Dagster has not heard of it; recorded now from the commit's "
            "receipt."
        )
        written = [(key, PublishedPartition(version, receipt, receipt.partitions[key])) for key in keys]
        if is_undo:
            record_put_back(context, table, written)
            continue
        with recording(context.instance, context.run.run_id):
            for key, published in written:
                metadata = partition_metadata(published) | {
                    "recorded_from": dg.MetadataValue.text(f"receipt of version {version}")
                }
                context.log_event(materialization(table, key, published, metadata, {}))
    return len(as_audited)
