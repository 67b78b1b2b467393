"""The sensor that tells somebody: of failed runs, failed checks, gaps, and streams that fall silent or lag."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import dagster as dg

from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.feed import SIGN_OF_LIFE_SECONDS
from backfill_assets.assets.live import REPORT_SECONDS, live_asset_key
from backfill_assets.assets.reconciliation import RECONCILIATION, check_name
from backfill_assets.core.live.checks import CHECKS
from backfill_assets.core.state.alerts import Alert, AlertMemory, news
from backfill_assets.errors import AlertError
from backfill_assets.runs.alert_hook import ALERTS_URL, checked_url, post
from backfill_assets.runs.alerts import Watched, look
from backfill_assets.runs.killed import report_dead
from backfill_assets.runs.resources import Lakehouse

SENSOR = "alerts"
EVERY_SECONDS = 30
POSTING_SECONDS = 20.0
"""After so long no other post is begun: Dagster ends a tick after 60 seconds, and forgets what it has done."""

_CLOCKS_MAY_DIFFER = timedelta(minutes=10)


def alert_definitions(definitions: dg.Definitions, lakehouse: Lakehouse) -> dg.Definitions:
    """Return the sensor; it is on, and does nothing until the environment names a URL."""
    tables, _ = tables_of(definitions)
    if not tables:
        return dg.Definitions()
    lives = {key: live_asset_key(table.spec) for key, table in tables.items() if table.spec.live}
    feeds = {key: live_asset_key(table.spec) for key, table in tables.items() if table.spec.changes}
    reconciliation = dg.AssetKey(lakehouse.own_name(RECONCILIATION))
    whole = {dg.AssetCheckKey(reconciliation, check_name(key)): key for key in tables}
    fence = [check for check in CHECKS if check != "live_is_writing"]  # the streams' own batches say it sooner
    whole |= {dg.AssetCheckKey(asset, check): key for key, asset in lives.items() for check in fence}
    every = dict.fromkeys(lives, REPORT_SECONDS) | dict.fromkeys(feeds, SIGN_OF_LIFE_SECONDS)
    known = {key: seconds + EVERY_SECONDS for key, seconds in every.items()}
    jobs = frozenset(job.name for job in definitions.jobs or [])
    watched = Watched(tables, whole, reconciliation, lives | feeds, known, jobs, lakehouse.project)

    @dg.sensor(
        name=lakehouse.own_name(SENSOR),
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Posts a JSON object to the URL in `{ALERTS_URL}`: once when a run or a check fails, a gap is "
        "found, or a stream is silent or lags; again when that changes, or is over. Marks runs that were killed on "
        "this machine as failed. Starts no run and no JVM.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        for dead in report_dead(context.instance):  # else it would hold its place in the pool of launches
            context.log.warning(f"Run {dead} was killed on this machine; it is marked as failed.")
        url = os.environ.get(ALERTS_URL, "")
        if not url:
            return dg.SkipReason(f"{ALERTS_URL} is not set: nobody is told.")
        memory = AlertMemory.from_json(context.cursor)
        said = tell(context.instance, watched, memory, checked_url(url), now_utc=datetime.now(UTC))
        context.update_cursor(memory.to_json())
        return dg.SkipReason(said)

    return dg.Definitions(sensors=[alerts])


def tell(instance: dg.DagsterInstance, watched: Watched, memory: AlertMemory, url: str, *, now_utc: datetime) -> str:
    """Look, post what is new, and note in `memory` what was; return in one sentence what was done.

    What nobody took is not noted, so that it is posted at the next look; so is what there was no time for.
    """
    if not memory.began:
        memory.began = memory.runs_until = now_utc.isoformat()
    seen, project = look(instance, watched, memory, now_utc), watched.project
    opened, over = news(memory.open, seen.found, seen.looked_at)
    memory.found = {a.alert_id: memory.found.get(a.alert_id, now_utc.isoformat()) for a in (*opened, *over)}
    posts: list[tuple[dict[str, object], Callable[[], None]]] = [
        *(
            (alert.to_body(now_utc, project=project), partial(_note_run, memory, alert, changed))
            for alert, changed in seen.happened
        ),
        *(
            (a.to_body(now_utc, project=project, began=memory.found[a.alert_id]), partial(_note_open, memory, a))
            for a in opened
        ),
        *(
            (
                a.to_body(now_utc, project=project, began=memory.found[a.alert_id], is_over=True),
                partial(_note_over, memory, a),
            )
            for a in over
        ),
    ]
    until, count, untold = time.monotonic() + POSTING_SECONDS, 0, ""
    for body, note in posts:
        if time.monotonic() > until:
            untold = untold or "The rest is told at the next look."
            break
        try:
            post(url, body)
        except AlertError as error:
            untold = str(error)
            if error.facts["is_away"]:
                break
        else:
            note()
            count += 1
    if untold:
        return f"{untold} {count:,} of {len(posts):,} alerts were told."
    memory.checks |= seen.checks
    memory.changed = seen.changed
    if seen.runs_until is not None:
        _forget_runs(memory, seen.runs_until - _CLOCKS_MAY_DIFFER)
    return f"{count:,} alerts were told; {len(memory.open):,} are open."


def _note_run(memory: AlertMemory, alert: Alert, changed: datetime) -> None:
    memory.runs[alert.run_id] = changed.isoformat()
    memory.refused |= alert.refused


def _note_open(memory: AlertMemory, alert: Alert) -> None:
    memory.open[alert.name] = alert
    del memory.found[alert.alert_id]


def _note_over(memory: AlertMemory, alert: Alert) -> None:
    del memory.open[alert.name]
    del memory.found[alert.alert_id]


def _forget_runs(memory: AlertMemory, until: datetime) -> None:
    """Look from an instant on the next time, and forget the runs that changed before it."""
    if until > datetime.fromisoformat(memory.runs_until):
        memory.runs_until = until.isoformat()
        memory.runs = {run_id: at for run_id, at in memory.runs.items() if datetime.fromisoformat(at) >= until}
