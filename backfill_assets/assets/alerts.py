"""Alerts: a sensor posts what is wrong to a webhook, once; again when it changes; and once when it has ended.

Each look finds the problems that exist now. The sensor's cursor holds what the receiver knows. The messages are the
difference between the two, and only an accepted message changes the cursor: every other one is posted again.
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.client import HTTPException
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as CheckStatus
from dagster._core.storage.tags import RUN_FAILURE_REASON_TAG
from pydantic import TypeAdapter, ValidationError

from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.feed import SIGN_OF_LIFE_SECONDS, STOPPED
from backfill_assets.assets.live import COMMITTED_AT, REPORT_SECONDS, live_asset_key
from backfill_assets.assets.reconciliation import RECONCILIATION, UNRECONCILED_KEYS, check_name
from backfill_assets.core.live.checks import CHECKS
from backfill_assets.core.words import range_in_words, shortened
from backfill_assets.runs.check_history import EVALUATED, RECONCILED, failed_comparisons
from backfill_assets.runs.killed import project_of, report_dead
from backfill_assets.runs.launch_report import REFUSED
from backfill_assets.runs.recording import failure_in_words
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table

ALERTS_URL = "LAKEHOUSE_ALERTS_URL"  # names the URL, which is a secret: nothing shows any part of it
EVERY_SECONDS, TIMEOUT_SECONDS = 30, 4.0
POSTING_SECONDS = 20.0  # Dagster stops a sensor after 60 seconds, and the cursor would be lost
MOST_NAMED, MOST_LETTERS = 100, 2_000
_CLOCKS_MAY_DIFFER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong now. It has changed when its sentence or its partitions are others.

    Args:
        subject: A run, a check, or the table of a stream. With the kind, it names the problem while that changes.
        ended: When a failed run ended; None for every other problem, which can end later.
    """

    kind: str
    subject: str
    table: str
    what: str
    partitions: tuple[str, ...] = ()
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What is posted about a problem. Its id depends on the message before it about the same problem."""

    id: str
    is_over: bool
    problem: Problem


@dataclass(slots=True)
class Known:
    """What the receiver knows: the last accepted message about each problem, and all runs that ended before `since`."""

    since: datetime
    accepted: dict[str, Message] = field(default_factory=dict[str, Message])


Tables = Mapping[str, Table]
_CURSOR = TypeAdapter(Known)


def alert_definitions(definitions: dg.Definitions, lakehouse: Lakehouse) -> dg.Definitions:
    """Return the sensor; it is on, and does nothing until the environment names a URL."""
    tables, _ = tables_of(definitions)
    gaps, project = dg.AssetKey(lakehouse.own_name(RECONCILIATION)), lakehouse.project

    def is_ours(run: dg.DagsterRun) -> bool:
        if (begun_by := project_of(run)) is not None:
            return begun_by == project
        named = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
        ours = {gaps}.union(*(one.keys for one in definitions.assets or () if isinstance(one, dg.AssetsDefinition)))
        return bool(named & ours) if named else run.job_name in {job.name for job in definitions.jobs or ()}

    @dg.sensor(
        name=lakehouse.own_name("alerts"),
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Posts to the URL in `{ALERTS_URL}` what is wrong, what has changed, and what is over. Marks runs "
        "that were killed on this machine as failed. Starts no run and no JVM.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        now, instance = datetime.now(UTC), context.instance
        for dead in report_dead(instance):  # else it would hold its place in the pool of launches
            context.log.warning(f"Run {dead} was killed on this machine; it is marked as failed.")
        if not (url := os.environ.get(ALERTS_URL)):
            return dg.SkipReason(f"{ALERTS_URL} is not set: nobody is notified.")
        try:
            known = _CURSOR.validate_json(context.cursor or "")
        except ValidationError:
            known = Known(now)
        wrong = (*_problems(instance, tables, gaps, now), *_failed_runs(instance, tables, known, is_ours))
        news = messages({f"{one.kind} {one.subject}": one for one in wrong}, known.accepted, project)
        said = _deliver(news, known, url, {"project": project, "at": now.isoformat(timespec="seconds")})
        untold = [news[name].problem.ended or now for name in news if known.accepted.get(name) != news[name]]
        since = max(known.since, min([now, *untold]) - _CLOCKS_MAY_DIFFER)
        kept = {name: one for name, one in known.accepted.items() if (one.problem.ended or since) >= since}
        context.update_cursor(_CURSOR.dump_json(Known(since, kept)).decode())
        return dg.SkipReason(said)

    return dg.Definitions(sensors=[alerts] if tables else [])


def messages(found: Mapping[str, Problem], accepted: Mapping[str, Message], project: str = "") -> dict[str, Message]:
    """Return what the receiver does not know: what is new, has changed, or is over. A failed run is never over."""
    still_open = {name: last.problem for name, last in accepted.items() if not last.is_over}
    opened = {name: problem for name, problem in found.items() if still_open.get(name) != problem}
    over = {name: one for name, one in still_open.items() if name not in found and one.ended is None}
    news: dict[str, Message] = {}
    for name, problem in (opened | over).items():
        facts = repr((accepted[name].id if name in accepted else "", project, problem, name in over))
        news[name] = Message(sha256(facts.encode()).hexdigest()[:16], name in over, problem)
    return news


def _deliver(news: Mapping[str, Message], known: Known, url: str, more: dict[str, str]) -> str:
    """Post messages until the time is up, and note those that are accepted; return in one sentence what was done."""
    until, count, why = time.monotonic() + POSTING_SECONDS, 0, ""
    for name in random.sample([*news], len(news)):  # so none is always behind those that are refused slowly
        one, problem, state = news[name], news[name].problem, "over" if news[name].is_over else "open"
        body = asdict(problem) | more | {"id": one.id, "state": state, "partitions": problem.partitions[:MOST_NAMED]}
        if refused := "there was no time" if time.monotonic() > until else post(url, body):
            why = refused
        else:
            known.accepted[name] = one
            count += 1
    why = f"; the others are posted again at the next look: {why}" if why else ""
    return f"{count:,} of {len(news):,} messages were accepted{why}."


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: a redirected POST becomes a GET without its body, and a login page would accept that."""


def post(url: str, body: Mapping[str, object]) -> str:
    """Post a JSON object once. Return why it was not accepted, without any part of the URL; empty if it was."""
    if not url.startswith(("https://", "http://")):
        return f"{ALERTS_URL} does not begin with `https://` or `http://`"
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(body["id"])}
    try:
        request = urllib.request.Request(url, json.dumps(body, default=str).encode(), headers)  # noqa: S310 (http or https, see above)
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"the receiver answered {error.code}"
    except (OSError, HTTPException, ValueError) as error:  # the texts of some contain the URL
        return type(getattr(error, "reason", error)).__name__


def _problems(instance: dg.DagsterInstance, tables: Tables, gaps: dg.AssetKey, now: datetime) -> Iterator[Problem]:
    """Yield failed checks, gaps, and streams that are silent or lag, as Dagster's history has them; without Spark."""
    for key, table in tables.items():
        spec, live = table.spec, live_asset_key(table.spec)
        if failed := failed_comparisons(instance, table):
            yield _failing("check_failed", dg.AssetCheckKey(table.asset_key, RECONCILED), key, failed)
        yield from _of_check(instance, "gap_found", dg.AssetCheckKey(gaps, check_name(key)), key)
        for check in CHECKS if spec.live else ():
            if check != "live_is_writing":  # the stream's own events say it sooner
                yield from _of_check(instance, "check_failed", dg.AssetCheckKey(live, check), key)
        if (spec.live or spec.changes) and (event := instance.get_latest_materialization_event(live)):
            yield from _of_stream(table, event, now)


def _of_check(instance: dg.DagsterInstance, kind: str, check: dg.AssetCheckKey, table: str) -> Iterator[Problem]:
    """Yield a problem if the newest evaluation of a check, planned ones aside, is an error."""
    for record in instance.event_log_storage.get_asset_check_execution_history(check, limit=1, status=EVALUATED):
        evaluation = record.evaluation
        if record.status is CheckStatus.FAILED and evaluation and evaluation.severity == dg.AssetCheckSeverity.ERROR:
            facts: dict[str, Any] = {name: value.value for name, value in evaluation.metadata.items()}
            named = facts.get(UNRECONCILED_KEYS) or facts.get("partitions")
            keys = named if isinstance(named, list) else []
            yield _failing(kind, check, table, keys, evaluation.description or "")


def _failing(kind: str, check: dg.AssetCheckKey, table: str, partitions: Iterable[str], why: str = "") -> Problem:
    keys, what = tuple(sorted(partitions)), f"`{table}`: the check `{check.name}` fails"
    many = f"{len(keys):,} partition{'s' * (len(keys) > 1)}"
    what += f" for {many} ({range_in_words(keys[0], keys[-1])})." if keys else f". {why}"
    return Problem(kind, check.to_user_string(), table, shortened(what, MOST_LETTERS), keys)


def _of_stream(table: Table, event: dg.EventLogEntry, now: datetime) -> Iterator[Problem]:
    """Yield problems of a stream, or of a change feed, by its newest event."""
    key, spec, told = table.spec.key, table.spec.live or table.spec.changes, event.asset_materialization
    if spec is None or told is None:
        return
    facts: dict[str, Any] = {name: value.value for name, value in told.metadata.items()}
    written = facts.get(COMMITTED_AT, None if facts.get("batches") == 0 else event.timestamp)
    if written is not None:  # else it has not begun
        newest = datetime.fromtimestamp(min(written, event.timestamp), tz=UTC)
        heard_every = EVERY_SECONDS + (REPORT_SECONDS if table.spec.live else SIGN_OF_LIFE_SECONDS)
        if (now - newest).total_seconds() > spec.silent_after_seconds - heard_every:
            since = f"{newest:%Y-%m-%d %H:%M:%S} UTC"
            yield Problem("stream_silent", key, key, f"The stream of `{key}` has been silent since {since}.")
    lag, most = facts.get("lag_seconds"), spec.max_lag_seconds
    if STOPPED in facts:
        yield Problem("stream_lags", key, key, f"`{key}` falls behind: its capture has stopped. {facts[STOPPED]}")
    elif lag is not None and most is not None and lag > most:  # by how much, changes all the time
        yield Problem("stream_lags", key, key, f"`{key}` is more than `max_lag_seconds`, {most:,.0f} s, behind.")


def _failed_runs(
    instance: dg.DagsterInstance, tables: Tables, known: Known, is_ours: Callable[[dg.DagsterRun], bool]
) -> Iterator[Problem]:
    """Yield runs that failed since; not if only partitions were refused, of which their check notifies."""
    by_asset = {table.asset_key: key for key, table in tables.items()}
    failures = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=known.since)
    kinds = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
    for record in instance.get_run_records(failures):
        run, ended = record.dagster_run, datetime.fromtimestamp(record.end_time or 0, tz=UTC)
        if ended < known.since or f"run_failed {run.run_id}" in known.accepted or not is_ours(run):
            continue
        records = instance.get_records_for_run(run.run_id, of_type=kinds).records
        events = [event for record in records if (event := record.event_log_entry.dagster_event)]
        steps = [event.step_failure_data.user_failure_data for event in events if event.is_step_failure]
        was_killed = run.tags.get(RUN_FAILURE_REASON_TAG) != "STEP_FAILURE"
        if steps and not was_killed and all(data and REFUSED in data.metadata for data in steps):
            continue
        whys = [failure_in_words(event) or event.message for event in events]
        keys = [by_asset[asset] for asset in run.asset_selection or () if asset in by_asset]
        what = f"Run {run.run_id} of `{', '.join(keys) or run.job_name}` failed: {next(filter(None, whys), 'why?')}"
        table = keys[0] if len(keys) == 1 else ""
        yield Problem("run_failed", run.run_id, table, shortened(what, MOST_LETTERS), ended=ended)
