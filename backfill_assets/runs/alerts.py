"""What Dagster's history and the streams say that somebody should know of, looked at without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus

from backfill_assets.core.history.causes import cause_name
from backfill_assets.core.state.alerts import Alert, AlertKind, AlertMemory, StreamMemory, behind, lag, silence
from backfill_assets.core.words import range_in_words
from backfill_assets.runs.check_history import EVALUATED, RECONCILED, failed_comparisons
from backfill_assets.runs.killed import NOT_ENDED, project_of
from backfill_assets.runs.launch_report import REFUSED
from backfill_assets.runs.recorded_evaluations import newest_event
from backfill_assets.runs.recording import failure_in_words
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import assets_of

MOST_NAMED = 100
"""So many partitions are named in one alert."""

UNRECONCILED_KEYS = "unreconciled_partitions"
"""Metadata of a check of a whole table: the keys of the partitions that are not reconciled."""

STOPPED = "stopped"
"""Metadata of a change feed: why its capture has ended; not there if it has not."""

COMMITTED_AT = "last_batch_at"
"""Metadata of a stream: when its newest batch was written. Of the last ones is told when the writer ends."""

_AT_ONCE = 1_000

_ENDED = dg.RunsFilter(statuses=[status for status in dg.DagsterRunStatus if status not in NOT_ENDED])


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched over.

    Args:
        tables: By key.
        whole_checks: Checks of no partition, and the table of each: around the fence, and of every partition.
        gap_asset: The asset of which each check says whether any partition of a table is not as its source.
        streams: The live asset of each table that has a stream, or a change feed.
        known_every: Seconds in which whoever writes a table's stream tells of it once, and then is looked at, by table.
        jobs: Names of the project's jobs.
        project: Name of the project, whose failed runs are told; other projects may have runs in the same Dagster.
    """

    tables: Mapping[str, Table]
    whole_checks: Mapping[dg.AssetCheckKey, str]
    gap_asset: dg.AssetKey
    streams: Mapping[str, dg.AssetKey]
    known_every: Mapping[str, float]
    jobs: Collection[str] = ()
    project: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found.

    Args:
        happened: What is told once, runs that failed, each with when it was last changed.
        runs_until: When the newest failed run was last changed; None if there is none.
        found: What is so now.
        looked_at: Names of what could be in `found`.
        checks: Id of the newest evaluation of each check that was looked at.
        changed: Which run that has ended was changed last, and when.
    """

    happened: Sequence[tuple[Alert, datetime]]
    runs_until: datetime | None
    found: Sequence[Alert]
    looked_at: Collection[str]
    checks: Mapping[str, int]
    changed: str


def look(instance: dg.DagsterInstance, watched: Watched, memory: AlertMemory, now_utc: datetime) -> Look:
    """Look at runs, checks and streams; at a check only if it may have been evaluated since the last look.

    An evaluation has the id that it was planned with: that of a run which was made before another one and ended after
    it is no new one. But when it ended, it was changed.
    """
    changed = _newest_change(instance)
    found, looked_at, known, checks = list[Alert](), set[str](), set[str](), dict[str, int]()
    of_tables = {dg.AssetCheckKey(table.asset_key, RECONCILED): key for key, table in watched.tables.items()}
    for check, key in {**of_tables, **watched.whole_checks}.items():
        kind = AlertKind.GAP_FOUND if check.asset_key == watched.gap_asset else AlertKind.CHECK_FAILED
        alert = Alert(kind, str(check.to_user_string()), "", key)
        known.add(alert.name)
        newest = _newest_evaluation(instance, check)
        if newest is None or (memory.checks.get(alert.subject) == newest.id and memory.changed == changed):
            continue
        checks[alert.subject] = newest.id
        looked_at.add(alert.name)
        found += _differing(instance, watched.tables[key], alert) if check in of_tables else _failed(alert, newest)
    for key, asset_key in watched.streams.items():
        of_stream = {f"{kind} stream {key}" for kind in (AlertKind.STREAM_SILENT, AlertKind.STREAM_LAGS)}
        known |= of_stream
        looked_at |= of_stream
        stream = memory.streams.setdefault(key, StreamMemory())
        _read_events(instance, asset_key, stream)
        found += _of_stream(watched, key, stream, now_utc)
    happened, until = _failed_runs(instance, watched, memory)
    gone = memory.open.keys() - known  # of tables that are no more
    return Look(happened, until, found, looked_at | gone, checks, changed=changed)


def _newest_change(instance: dg.DagsterInstance) -> str:
    """Return which run that has ended was changed last, and when; empty if there is none."""
    newest = instance.get_run_records(_ENDED, limit=1, order_by="update_timestamp")
    return " ".join(f"{record.dagster_run.run_id} {record.update_timestamp.isoformat()}" for record in newest)


def _newest_evaluation(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> AssetCheckExecutionRecord | None:
    """Return the newest evaluation of a check, of whatever partition; one that was only planned is none."""
    found = instance.event_log_storage.get_asset_check_execution_history(check, limit=1, status=EVALUATED)
    return found[0] if found else None


def _differing(instance: dg.DagsterInstance, table: Table, alert: Alert) -> Iterator[Alert]:
    """Yield an alert if partitions of a table were refused, or differ from their source."""
    failed = failed_comparisons(instance, table)
    if not failed:
        return
    keys = sorted(failed)
    what = (
        f"`{alert.table}`: {len(keys):,} partitions ({range_in_words(keys[0], keys[-1])}) were refused, or differ from "
        "their source or their receipt."
    )
    since = min(failed.values()).isoformat(timespec="seconds")
    yield _with(alert, what, since=since, partitions=keys)


def _failed(alert: Alert, record: AssetCheckExecutionRecord) -> Iterator[Alert]:
    """Yield an alert if the newest evaluation of a check of no partition failed, and more than warns."""
    evaluation = record.evaluation
    if record.status is not CheckStatus.FAILED or evaluation is None:
        return
    if evaluation.severity != dg.AssetCheckSeverity.ERROR:
        return
    metadata = {name: value.value for name, value in evaluation.metadata.items()}
    partitions: Any = metadata.get(UNRECONCILED_KEYS) or metadata.get("partitions")
    keys = sorted(partitions) if isinstance(partitions, dict | list) else []
    details = str([metadata.get(name) for name in ("which", "unreconciled")] if not keys else partitions)
    details = details if keys or "which" in metadata else str(evaluation.description)
    yield _with(alert, f"`{alert.table}`: {evaluation.description or 'it failed.'}", partitions=keys, details=details)


def _with(alert: Alert, what: str, *, since: str = "", partitions: Sequence[str] = (), details: str = "") -> Alert:
    everything = sha256("\n".join([*partitions, details]).encode()).hexdigest()[:16]
    named = tuple(partitions[:MOST_NAMED])
    return Alert(alert.kind, alert.subject, what, alert.table, since, partitions=named, details=everything)


def _read_events(instance: dg.DagsterInstance, asset_key: dg.AssetKey, stream: StreamMemory) -> None:
    """Note the newest batch that a stream has told of since it was last looked at.

    Whoever writes by a schedule tells every minute that nothing had landed: that is no batch.
    """
    if stream.until > newest_event(instance):  # Dagster's history was wiped, and counts its events anew
        stream.until = 0
    newest, until = stream.until, stream.until
    before: int | None = None
    while True:
        wanted = dg.AssetRecordsFilter(asset_key=asset_key, after_storage_id=until or None, before_storage_id=before)
        records = instance.fetch_materializations(wanted, limit=_AT_ONCE).records
        for record in records:
            newest, before = max(newest, record.storage_id), record.storage_id
            told = record.asset_materialization
            if told is None or ("batches" in told.metadata and not told.metadata["batches"].value):
                continue
            metadata: dict[str, Any] = {name: value.value for name, value in told.metadata.items()}
            written = min(record.timestamp, metadata.get(COMMITTED_AT, record.timestamp))
            stream.newest = datetime.fromtimestamp(written, tz=UTC).isoformat()
            stream.lag_seconds, stream.until = metadata.get("lag_seconds"), newest
            stream.stopped = str(metadata.get(STOPPED, ""))
            return
        if len(records) < _AT_ONCE:
            stream.until = newest
            return


def _of_stream(watched: Watched, key: str, stream: StreamMemory, now_utc: datetime) -> Iterator[Alert]:
    """Yield alerts of a stream, or of a change feed, by what its writer told Dagster of."""
    spec = watched.tables[key].spec
    written_by = spec.live or spec.changes
    if written_by is None or not stream.newest:
        return
    newest, every = datetime.fromisoformat(stream.newest), watched.known_every[key]
    silent = written_by.silent_after_seconds
    if alert := silence(key, newest, now_utc, silent_after_seconds=silent, known_every=every):
        yield alert
    late = (
        behind(key, stream.lag_seconds, spec.changes.max_lag_seconds, stopped=stream.stopped)
        if spec.changes
        else lag(key, stream.lag_seconds, written_by.max_lag_seconds)
    )
    if late:
        yield late


def _failed_runs(
    instance: dg.DagsterInstance, watched: Watched, memory: AlertMemory
) -> tuple[list[tuple[Alert, datetime]], datetime | None]:
    """Return an alert for each run that has failed since the last look, and when the newest was last changed."""
    began = datetime.fromisoformat(memory.began).timestamp()
    after, found, seen = datetime.fromisoformat(memory.runs_until), list[tuple[Alert, datetime]](), set[str]()
    newest: datetime | None = None
    while True:
        failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=after)
        page = instance.get_run_records(failed, limit=_AT_ONCE, order_by="update_timestamp", ascending=True)
        for record in page:
            run_id, newest = record.dagster_run.run_id, record.update_timestamp
            is_old = record.end_time is not None and record.end_time < began
            is_told = run_id in seen or run_id in memory.runs
            if not is_told and not is_old and _is_watched(watched, record.dagster_run):
                alert = _failed_run(instance, watched, record)
                if memory.has_told_refusal(alert):
                    memory.runs[run_id] = newest.isoformat()
                else:
                    found.append((alert, newest))
            seen.add(run_id)
        if len(page) < _AT_ONCE or newest is None or newest <= after:
            return found, newest
        after = newest - timedelta(microseconds=1)  # several may have changed at that very moment


def _is_watched(watched: Watched, run: dg.DagsterRun) -> bool:
    """Say whether a run is one of the watched project: by its tag, or before it has begun by what it names."""
    project = project_of(run)
    if project is not None:
        return project == watched.project
    named = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    mine = {watched.gap_asset, *watched.streams.values()}
    for table in watched.tables.values():
        mine |= {table.asset_key, *(dg.AssetKey(flow.key.split("/")) for flow in table.spec.once_flows)}
    return bool(named & mine) if named else run.job_name in watched.jobs


def _failed_run(instance: dg.DagsterInstance, watched: Watched, record: dg.RunRecord) -> Alert:
    run, assets = record.dagster_run, {table.asset_key: key for key, table in watched.tables.items()}
    keys = [assets[asset] for asset in run.asset_selection or () if asset in assets]
    what = f"Run {run.run_id} of `{', '.join(keys) or run.job_name}` failed: {_why(instance, run.run_id)}"
    ended = datetime.fromtimestamp(record.end_time, tz=UTC).isoformat(timespec="seconds") if record.end_time else ""
    table = keys[0] if len(keys) == 1 else ""
    refused = _refused_in(instance, watched, run.run_id)
    return Alert(AlertKind.RUN_FAILED, f"run {run.run_id}", what, table, ended, run.run_id, refused=refused)


def _refused_in(instance: dg.DagsterInstance, watched: Watched, run_id: str) -> dict[str, str]:
    """Return why partitions were refused in a run, and since when, by table and key; nothing if it failed otherwise."""
    steps = {key.to_python_identifier(): table for table in watched.tables.values() for key in assets_of(table)}
    found: dict[str, str] = {}
    kinds = {dg.DagsterEventType.STEP_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=kinds, limit=_AT_ONCE).records:
        event = record.event_log_entry.get_dagster_event()
        failure, table = event.step_failure_data.user_failure_data, steps.get(event.step_key or "")
        told = failure.metadata.get(REFUSED) if failure else None
        if told is None or table is None:
            return {}
        causes: Any = told.value
        whys: dict[str, set[str]] = {}
        for cause in causes:
            for key in cause["partitions"]:
                whys.setdefault(key, set()).add(cause_name(cause["why"]))
        since = failed_comparisons(instance, table)
        for key, names in whys.items():
            digest = sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]
            found[f"{table.spec.key} {key}"] = f"{digest} {since.get(key, '')}"
    return found


def _why(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return why a run failed, in the words of our own error if it was one."""
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=kinds, limit=1).records:
        event = record.event_log_entry.dagster_event
        if event is not None and (why := failure_in_words(event) or event.message):
            return why
    return "its log does not say why."
