"""The sensor that tells somebody: of failed runs, failed checks, gaps, and streams that fall silent or lag."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import dagster as dg

from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.live import REPORT_SECONDS, live_asset_key
from backfill_assets.assets.reconciliation import RECONCILIATION, check_name
from backfill_assets.core.live.checks import CHECKS
from backfill_assets.core.state.alerts import AlertMemory, news
from backfill_assets.errors import AlertError
from backfill_assets.runs.alert_hook import ALERTS_URL, checked_url, post
from backfill_assets.runs.alerts import Watched, look
from backfill_assets.runs.killed import report_dead

SENSOR = "alerts"
EVERY_SECONDS = 30
_RUNS_KEPT = 1_000
_CLOCKS_MAY_DIFFER = timedelta(minutes=10)


def alert_definitions(definitions: dg.Definitions) -> dg.Definitions:
    """Return the sensor; it is on, and does nothing until the environment names a URL."""
    tables, _ = tables_of(definitions)
    if not tables:
        return dg.Definitions()
    streams = {key: live_asset_key(table.spec) for key, table in tables.items() if table.spec.live}
    whole = {dg.AssetCheckKey(RECONCILIATION, check_name(key)): key for key in tables}
    fence = [check for check in CHECKS if check != "live_is_writing"]  # the streams' own batches say it sooner
    whole |= {dg.AssetCheckKey(asset, check): key for key, asset in streams.items() for check in fence}
    watched = Watched(tables, whole, RECONCILIATION, streams, REPORT_SECONDS)

    @dg.sensor(
        name=SENSOR,
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
        told = AlertMemory.from_json(context.cursor)
        said = tell(context.instance, watched, told, checked_url(url), now_utc=datetime.now(UTC))
        context.update_cursor(told.to_json())
        return dg.SkipReason(said)

    return dg.Definitions(sensors=[alerts])


def tell(instance: dg.DagsterInstance, watched: Watched, told: AlertMemory, url: str, *, now_utc: datetime) -> str:
    """Look, post what is new, and note in `told` what was; return in one sentence what was done.

    What nobody took is not noted, so that it is posted at the next look.
    """
    if not told.began:
        told.began = told.runs_until = now_utc.isoformat()
    seen = look(instance, watched, told, now_utc)
    opened, over = news(told.open, seen.found, seen.looked_at)
    count = 0
    try:
        for alert, changed in seen.happened:
            post(url, alert.to_body(now_utc))
            count += 1
            told.runs = [*told.runs, alert.run_id][-_RUNS_KEPT:]
            until = max(datetime.fromisoformat(told.runs_until), changed - _CLOCKS_MAY_DIFFER)
            told.runs_until = until.isoformat()
        for alert in opened:
            post(url, alert.to_body(now_utc))
            count += 1
            told.open[alert.name] = alert
        for alert in over:
            post(url, alert.to_body(now_utc, is_over=True))
            count += 1
            del told.open[alert.name]
    except AlertError as error:
        return f"{error} {count:,} alerts were told before."
    told.checks |= seen.checks
    return f"{count:,} alerts were told; {len(told.open):,} are open."
