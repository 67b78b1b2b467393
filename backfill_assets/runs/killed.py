"""Runs that were killed: found by their process, reported as failed, and what they published is recorded."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.executor.child_process_executor import _execute_command_in_child_process
from dagster._core.storage.tags import HIDDEN_TAG_PREFIX

from backfill_assets.core.spec.checks import Rule
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, undone_by
from backfill_assets.runs.check_history import compared_since
from backfill_assets.runs.comparisons import compare_with_receipts
from backfill_assets.runs.evaluations import evaluations_of, newest_materializations
from backfill_assets.runs.recorded_evaluations import log_evaluations, newest_event, record_put_back
from backfill_assets.runs.recording import RECEIPT, materialization, partition_metadata, recording

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table

RUN, HOST, MACHINE, BOOT, NAMESPACE, PID, STARTED = (
    f"{HIDDEN_TAG_PREFIX}backfill_assets/{name}"
    for name in ("run", "host", "machine", "boot", "namespace", "pid", "started")
)
"""Where a run lives; the UI does not show these tags. A process id means something only in its namespace, since a boot;
and Dagster copies a run's tags when it is executed again."""

_PROC = Path("/proc")
_ALIVE = "alive"
"""What is known of a living process that `/proc` does not show."""

RECENT_COMMITS = 1_000
"""Commits of a table that are looked through for runs that were killed, besides all that the copy of receipts lacks."""

_PAGE, _MOST_PAGES = 1_000, 20
"""So many events are fetched at once, and so often, to find those of a killed run's partitions."""

UNFINISHED = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.CANCELING]
NOT_BEGUN = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
NOT_ENDED = [*NOT_BEGUN, *UNFINISHED]


def tag_with_process(instance: dg.DagsterInstance, run_id: str) -> None:
    """Tag a run with the process that it lives in, so that others can tell whether it still does."""
    instance.add_run_tags(run_id, process_tags(run_id, pid_of_run()))


def pid_of_run() -> int:
    """Return the process of a run: this one, or the one that gave a process to its step, but not its code server."""
    before, of_step = multiprocessing.parent_process(), getattr(multiprocessing.current_process(), "_target", None)
    return before.pid if before and before.pid and of_step is _execute_command_in_child_process else os.getpid()


def process_tags(run_id: str, pid: int) -> dict[str, str]:
    """Return the tags of a run that lives in a process of this machine."""
    return {**_here(), RUN: run_id, PID: str(pid), STARTED: _start_of(pid) or _ALIVE}


def report_dead(instance: dg.DagsterInstance) -> Iterator[str]:
    """Mark tagged runs of this machine whose process is gone as failed, and free their pool slots.

    A run of which that is not certain is left alone: another container of this host, another host of this name.

    Yields:
        The id of each run that was found dead.
    """
    here = _here()
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags={HOST: here[HOST]})):
        if run.tags.get(RUN) != run.run_id or not _is_gone(run.tags, here):
            continue
        again = instance.get_run_by_id(run.run_id)  # it may have ended, as runs do, since it was looked up
        if again is None or again.status not in UNFINISHED:
            continue
        instance.report_run_failed(run, "The process of this run is gone: it was killed, or the machine was restarted.")
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        yield run.run_id


def _is_gone(tags: Mapping[str, str], here: Mapping[str, str]) -> bool:
    """Say whether the process that a run was tagged with is certainly gone.

    | host | machine        | boot    | namespace | process                      | gone |
    |------|----------------|---------|-----------|------------------------------|------|
    | same | any            | same    | same      | lives, and started then      | no   |
    | same | any            | same    | same      | lives, started nobody knows  | no   |
    | same | any            | same    | same      | none, or started another day | yes  |
    | same | any            | same    | another   | of another container         | no   |
    | same | same and known | another | any       | from before a restart        | yes  |
    | same | another        | another | any       | of another machine           | no   |
    """
    if tags.get(BOOT) != here[BOOT]:
        return bool(here[MACHINE]) and tags.get(MACHINE) == here[MACHINE]
    if tags.get(NAMESPACE) != here[NAMESPACE]:
        return False
    pid = tags.get(PID, "")
    return pid.isdigit() and _start_of(int(pid)) not in (tags.get(STARTED), _ALIVE)


def process_here(run: dg.DagsterRun) -> int | None:
    """Return the process id of a run that certainly lives on this machine, where this process can reach it."""
    here, tags, pid = _here(), run.tags, run.tags.get(PID, "")
    if tags.get(RUN) != run.run_id:  # it has not begun, or has the tags of the run that it executes again
        return None
    if any(tags.get(name) != here[name] for name in (HOST, MACHINE, BOOT, NAMESPACE)) or not pid.isdigit():
        return None
    return int(pid) if _start_of(int(pid)) == tags.get(STARTED) else None


def _here() -> dict[str, str]:
    """Return the tags of every process here that sees the same process ids; empty where something is not known."""
    try:
        namespace = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return {
        HOST: socket.gethostname(),
        MACHINE: _text_of(Path("/etc/machine-id")),
        BOOT: _text_of(_PROC / "sys/kernel/random/boot_id"),
        NAMESPACE: namespace,
    }


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; None if there is none. Process ids come round again."""
    try:
        stat = (_PROC / f"{pid}/stat").read_text()
    except OSError:
        return _alive_unseen(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _alive_unseen(pid: int) -> str | None:
    """Return what is known of a process where there is no `/proc`, or where it hides other users' processes."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return None if isinstance(error, ProcessLookupError) else _ALIVE
    return _ALIVE


def record_unrecorded(
    context: dg.AssetExecutionContext,
    table: Table,
    delta: LakeTable,
    receipts: Mapping[int, Receipt],
    *,
    of_this_run: bool = False,
) -> int:
    """Record commits of runs that were killed before they could tell Dagster; return how many partitions that were.

    Looks at the newest receipt of each run that did not end well, since every earlier one was recorded before it. If a
    launch put something back with it, that published nothing; an `undo` did what it was to do. Nobody has held the
    commit against what was audited: that is done now. A partition that has other rows is not recorded as published, and
    fails its check.

    Args:
        receipts: The newest in the log, by version.
        of_this_run: Look at the run itself, which is being stopped, instead of all others.
    """
    newest: dict[str, tuple[int, Receipt]] = {}
    for version, receipt in sorted(receipts.items()):
        if receipt.partitions:
            newest[receipt.run_id] = (version, receipt)
    last_written, recorded = dict[str, int](), 0
    for run_id, (version, receipt) in newest.items():
        is_undo = bool(undone_by(receipt))
        if (run_id == context.run.run_id) is not of_this_run or (receipt.kind == "put_back" and not is_undo):
            continue
        run = context.instance.get_run_by_id(run_id)
        if run is not None and (
            run.status == dg.DagsterRunStatus.SUCCESS or (run.status in UNFINISHED and not of_this_run)
        ):
            continue  # it told Dagster, or it lives and still can
        last_written = last_written or {key: v for v, one in sorted(receipts.items()) for key in one.partitions}
        lacking = _without_event(context.instance, table.asset_key, version, receipts, last_written)
        if is_undo:
            lacking = _not_compared(context.instance, table, lacking, receipt)
        if lacking:
            as_audited = _as_audited(context, table, delta, lacking, is_undo=is_undo)
            _record(context, table, version, receipt, as_audited)
            recorded += len(as_audited)
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
        context.log.error(f"A run that was killed did not write what was audited: {comparison}")
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
    ids, cursor = {receipt.receipt_id for v, receipt in receipts.items() if v >= version}, None
    for _ in range(_MOST_PAGES):
        if not lacking:
            break
        page = instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=asset_key, asset_partitions=sorted(lacking)), limit=_PAGE, cursor=cursor
        )
        for record in page.records:
            event = record.asset_materialization
            if event and event.partition and _tells_of(event.metadata, version, ids):
                lacking.discard(event.partition)
        cursor = page.cursor
        if not page.has_more:
            break
    return [key for key in receipts[version].partitions if key in lacking]


def _tells_of(metadata: Mapping[str, Any], version: int, receipt_ids: Set[str]) -> bool:
    """Say whether an event is of a version of this table, or of a later one."""
    found, receipt = metadata.get("table_version"), metadata.get(RECEIPT)
    if found is None or not isinstance(found.value, int) or found.value < version:
        return False
    return receipt is None or receipt.value in receipt_ids  # events of earlier versions of this project name none


def _record(
    context: dg.AssetExecutionContext, table: Table, version: int, receipt: Receipt, keys: Sequence[str]
) -> None:
    if not keys:
        return
    is_undo = bool(undone_by(receipt))
    context.log.warning(
        f"Version {version} {'put back' if is_undo else 'published'} {len(keys)} partitions ({keys[0]} to {keys[-1]}) "
        f"in run {receipt.run_id}, which ended before Dagster heard of it; recorded now from the commit's receipt."
    )
    written = [(key, PublishedPartition(version, receipt, receipt.partitions[key])) for key in keys]
    if is_undo:
        record_put_back(context, table, written)
        return
    with recording(context.instance, context.run.run_id):
        for key, published in written:
            metadata = partition_metadata(published) | {
                "recorded_from": dg.MetadataValue.text(f"receipt of version {version}")
            }
            context.log_event(materialization(table, key, published, metadata, {}))
