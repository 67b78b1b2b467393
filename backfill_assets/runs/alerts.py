"""What Dagster's history and the streams say that somebody should know of, looked at without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus

from backfill_assets.core.state.alerts import Alert, AlertKind, AlertMemory, lag, silence
from backfill_assets.core.words import range_in_words
from backfill_assets.runs.comparisons import EVALUATED, RECONCILED, failed_comparisons
from backfill_assets.runs.table import Table

MOST_NAMED = 100
"""So many partitions are named in one alert."""

_RUNS_AT_ONCE, _EVENTS_AT_ONCE = 100, 1_000


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched over.

    Args:
        tables: By key.
        whole_checks: Checks of no partition, and the table of each: around the fence, and of every partition.
        gap_asset: The asset of which each check says whether any partition of a table is not as its source.
        streams: The live asset of each table that has one.
        reported_every: Seconds in which a running writer tells of its batches once.
    """

    tables: Mapping[str, Table]
    whole_checks: Mapping[dg.AssetCheckKey, str]
    gap_asset: dg.AssetKey
    streams: Mapping[str, dg.AssetKey]
    reported_every: float


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found.

    Args:
        happened: What is told once, runs that failed, each with when it was last changed, in that order.
        found: What is so now.
        looked_at: Names of what could be in `found`.
        checks: Id of the newest evaluation of each check that was looked at.
    """

    happened: Sequence[tuple[Alert, datetime]]
    found: Sequence[Alert]
    looked_at: Collection[str]
    checks: Mapping[str, int]


def look(instance: dg.DagsterInstance, watched: Watched, told: AlertMemory, now_utc: datetime) -> Look:
    """Look at runs, checks and streams; at a check only if it was evaluated since the last look."""
    found, looked_at, checks = list[Alert](), set[str](), dict[str, int]()
    for key, table in watched.tables.items():
        check = dg.AssetCheckKey(table.asset_key, RECONCILED)
        alert = Alert(AlertKind.CHECK_FAILED, str(check.to_user_string()), "", key)
        newest = _newest_id(instance, check)
        if newest is not None and told.checks.get(alert.subject) != newest:
            checks[alert.subject] = newest
            looked_at.add(alert.name)
            found += _differing(instance, table, alert)
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key([*watched.whole_checks])
    for check, record in records.items():
        kind = AlertKind.GAP_FOUND if check.asset_key == watched.gap_asset else AlertKind.CHECK_FAILED
        alert = Alert(kind, str(check.to_user_string()), "", watched.whole_checks[check])
        if record.status in EVALUATED and told.checks.get(alert.subject) != record.id:
            checks[alert.subject] = record.id
            looked_at.add(alert.name)
            found += _failed(alert, record)
    for key, asset_key in watched.streams.items():
        looked_at |= {f"{kind} stream {key}" for kind in (AlertKind.STREAM_SILENT, AlertKind.STREAM_LAGS)}
        found += _of_stream(instance, watched, key, asset_key, now_utc)
    return Look(list(_failed_runs(instance, watched, told)), found, looked_at, checks)


def _newest_id(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> int | None:
    """Return the id of the newest evaluation of a check, of whatever partition; None if there is none."""
    found = instance.event_log_storage.get_asset_check_execution_history(check, limit=1, status=EVALUATED)
    return found[0].id if found else None


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
    partitions: Any = metadata.get("partitions")
    keys = sorted(partitions) if isinstance(partitions, dict) else []
    details = str(metadata.get("which") or metadata.get("unreconciled") or ("" if keys else evaluation.description))
    yield _with(alert, f"`{alert.table}`: {evaluation.description or 'it failed.'}", partitions=keys, details=details)


def _with(alert: Alert, what: str, *, since: str = "", partitions: Sequence[str] = (), details: str = "") -> Alert:
    everything = sha256("\n".join([*partitions, details]).encode()).hexdigest()[:16]
    named = tuple(partitions[:MOST_NAMED])
    return Alert(alert.kind, alert.subject, what, alert.table, since, partitions=named, details=everything)


def _of_stream(
    instance: dg.DagsterInstance, watched: Watched, key: str, asset_key: dg.AssetKey, now_utc: datetime
) -> Iterator[Alert]:
    """Yield alerts of a stream by the batches that its writer told Dagster of."""
    live = watched.tables[key].spec.live
    events = _newest_batches(instance, asset_key)
    if live is None or not events:
        return
    newest = datetime.fromtimestamp(events[-1].timestamp, tz=UTC)
    silent, every = live.silent_after_seconds, watched.reported_every
    told = events[-1].asset_materialization
    metadata = told.metadata if told else {}
    if alert := silence(key, newest, now_utc, silent_after_seconds=silent, reported_every=every):
        yield alert if _has_batches(metadata) else replace(alert, since="")  # so long at least, nobody knows since when
    seconds: Any = metadata["lag_seconds"].value if "lag_seconds" in metadata else None
    if alert := lag(key, seconds, live.max_lag_seconds):
        yield alert


def _newest_batches(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> list[dg.EventLogEntry]:
    """Return the newest events of a stream, up to the newest that tells of a batch; none if there never was one.

    Whoever writes by a schedule tells every minute that nothing had landed.
    """
    events: list[dg.EventLogEntry] = []
    for most in (1, _EVENTS_AT_ONCE):
        records = instance.fetch_materializations(asset_key, limit=most).records
        events = []
        for record in records:
            events.append(record.event_log_entry)
            told = record.event_log_entry.asset_materialization
            if told and _has_batches(told.metadata):
                return events
    return events if len(events) == _EVENTS_AT_ONCE else []


def _has_batches(metadata: Mapping[str, dg.MetadataValue[Any]]) -> bool:
    return "batches" not in metadata or bool(metadata["batches"].value)


def _failed_runs(instance: dg.DagsterInstance, watched: Watched, told: AlertMemory) -> Iterator[tuple[Alert, datetime]]:
    """Yield an alert for each run that has failed since the last look."""
    began = datetime.fromisoformat(told.began).timestamp()
    until = datetime.fromisoformat(told.runs_until)
    failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=until)
    assets = {table.asset_key: key for key, table in watched.tables.items()}
    for record in instance.get_run_records(failed, limit=_RUNS_AT_ONCE, order_by="update_timestamp", ascending=True):
        run = record.dagster_run
        if run.run_id in told.runs or (record.end_time is not None and record.end_time < began):
            continue
        keys = [assets[asset] for asset in run.asset_selection or () if asset in assets]
        what = f"Run {run.run_id} of `{', '.join(keys) or run.job_name}` failed: {_why(instance, run.run_id)}"
        ended = datetime.fromtimestamp(record.end_time, tz=UTC).isoformat(timespec="seconds") if record.end_time else ""
        table = keys[0] if len(keys) == 1 else ""
        alert = Alert(AlertKind.RUN_FAILED, f"run {run.run_id}", what, table, since=ended, run_id=run.run_id)
        yield alert, record.update_timestamp


def _why(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return why a run failed, in the words of our own error if it was one."""
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=kinds, limit=1).records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error:
                return data.error.message.strip()
        if event.message:
            return event.message
    return "its log does not say why."
