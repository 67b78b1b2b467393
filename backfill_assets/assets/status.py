"""How far the backfill of every table is, as a page in Dagster's UI that renews itself.

It says what Dagster knows, so that a look costs no JVM. `backfill-assets status` also asks receipts and sources.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import dagster as dg

from backfill_assets.assets.catch_up import history_until
from backfill_assets.assets.factory import tables_of
from backfill_assets.assets.feed import NOT_CAPTURED, STOPPED
from backfill_assets.assets.live import live_asset_key
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.state.backfill_state import NewestLaunch, backfill_state
from backfill_assets.core.words import range_in_words, seconds_in_words
from backfill_assets.runs.check_history import not_passed
from backfill_assets.runs.killed import RUN
from backfill_assets.runs.partitions import materialized_partitions
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import LAUNCHES, PARTITIONS, REASON, launched_by, limit_pool
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import Launched, newest_launches, under_way

STATUS = "status"
"""Name of the asset and of its sensor, after the project's own."""

EVERY_SECONDS = 30

Launches = Mapping[str, Launched]


def status_definitions(definitions: dg.Definitions, lakehouse: Lakehouse) -> dg.Definitions:
    """Return the asset with the page, and the sensor that renews it when something has changed."""
    tables, _ = tables_of(definitions)
    if not tables:
        return dg.Definitions()
    name = lakehouse.own_name(STATUS)
    page = dg.AssetSpec(
        name,
        description="How far the backfill of every table is, as Dagster knows it: below, in *Metadata*. "
        "`backfill-assets status` asks the sources too.",
        group_name="reconciliation",
    )

    @dg.sensor(
        name=name,
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Renews the page on the asset `{name}` when a launch begins, goes on or ends, and gives the pool "
        "`launches` its limit in a new DAGSTER_HOME. Starts no run and no JVM.",
    )
    def renew(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        limit_pool(context.instance, LAUNCHES)
        seen = _fingerprint(context.instance, tables)
        if seen == context.cursor:
            return dg.SkipReason("Nothing has changed.")
        launches = newest_launches(context.instance, tables)
        page_of = status_of_tables(context.instance, tables, launches, now_utc=datetime.now(UTC))
        metadata = {key: dg.MetadataValue.md(text) for key, text in page_of.items()}
        context.instance.report_runless_asset_event(dg.AssetMaterialization(name, metadata=metadata))
        context.update_cursor(seen)
        return dg.SkipReason("The page was renewed.")

    return dg.Definitions(assets=[page], sensors=[renew])


def status_of_tables(
    instance: dg.DagsterInstance, tables: Mapping[str, Table], launches: Launches, *, now_utc: datetime
) -> dict[str, str]:
    """Return how far each table is, in Markdown, by key: a few short lines, for a narrow column."""
    return {key: _status(instance, tables[key], launches.get(key), now_utc) for key in sorted(tables)}


def _status(instance: dg.DagsterInstance, table: Table, newest: Launched | None, now_utc: datetime) -> str:
    spec = table.spec
    until = history_until(instance, spec, now_utc)
    over = {p.key for p in history_of(spec).until(until) if p.window.end_utc <= until}
    recorded = over & materialized_partitions(instance, table.asset_key)
    open_ = not_passed(instance, table)
    failed = sorted(key for key, since in open_.items() if since is not None)
    undone = sorted((recorded & open_.keys()).difference(failed))
    published = recorded.difference(undone)
    standing: NewestLaunch = newest.standing if newest else "none"
    refresh = _newest_refresh(instance, table) if spec.changes else LastRefresh("")
    state = backfill_state(len(published - set(failed)), len(over), standing, feed_has_stopped=refresh.has_stopped)
    lines = [f"**{state}**: {len(published):,} of {len(over):,} partitions"]
    unset = [name for name in spec.source.variables if not os.environ.get(name)]
    if unset and not published:
        lines += [f"Set `{unset[0]}`: it is to hold the address of its database"]
    if failed:
        lines += [f"{len(failed):,} differ or were refused: {range_in_words(failed[0], failed[-1])}"]
    if undone:
        lines += [f"{len(undone):,} were put back, and not compared since: {range_in_words(undone[0], undone[-1])}"]
    if newest:
        lines += [_launch_in_words(newest, spec.key)]
    if spec.live:
        lines += [f"Live: {_newest_batch(instance, table)}"]
    if spec.changes:
        lines += [f"Changes: {refresh.what}"]
    return "  \n".join(lines)


def _launch_in_words(newest: Launched, key: str) -> str:
    """Return the newest launch: a link to it, its range, how far it is, by whom, and why."""
    tags, at = newest.tags, newest.launch_id if newest.run else f"b/{newest.launch_id}"
    far = f": {tags[key]}" if tags.get(RUN) == at and key in tags else ""  # else they are of the one before
    said = f"Launch [{newest.standing}](/runs/{at}) {tags.get(PARTITIONS, '')}{far}, by {launched_by(tags)}"
    reason = " ".join(tags.get(REASON, "").split())
    return f"{said}: {reason}" if reason else said


def _newest_batch(instance: dg.DagsterInstance, table: Table) -> str:
    event = instance.get_latest_materialization_event(live_asset_key(table.spec))
    if event is None or event.asset_materialization is None:
        return "no batch"
    batches = event.asset_materialization.metadata.get("batches")
    what = "nothing new had landed" if batches and batches.value == 0 else "newest batch told"
    return f"{what} at {datetime.fromtimestamp(event.timestamp, tz=UTC):%Y-%m-%d %H:%M} UTC"


class LastRefresh(NamedTuple):
    """What was told of a feed last."""

    what: str
    has_stopped: bool = False


def _newest_refresh(instance: dg.DagsterInstance, table: Table) -> LastRefresh:
    event = instance.get_latest_materialization_event(live_asset_key(table.spec))
    told = event.asset_materialization if event else None
    if event is None or told is None:
        return LastRefresh("not followed yet")
    at = f"{datetime.fromtimestamp(event.timestamp, tz=UTC):%Y-%m-%d %H:%M} UTC"
    metadata: dict[str, Any] = {name: value.value for name, value in told.metadata.items()}
    if STOPPED in metadata:
        said = f"the capture has stopped, as was told at {at}: {metadata[STOPPED]}"
        return LastRefresh(said, has_stopped=True)
    if NOT_CAPTURED in metadata:
        return LastRefresh(f"{metadata['feed']}, as was told at {at}", has_stopped=True)
    far = f", {seconds_in_words(metadata['lag_seconds'])} behind the database" if "lag_seconds" in metadata else ""
    return LastRefresh(f"newest refresh told at {at}{far}")


def _fingerprint(instance: dg.DagsterInstance, tables: Mapping[str, Table]) -> str:
    """Return what changes when the page may; batches of a stream, of which there are many, only by the hour."""
    seen: list[object] = [datetime.now(UTC).strftime("%Y-%m-%d %H")]
    for run in instance.get_run_records(limit=1, order_by="update_timestamp"):
        seen += [run.dagster_run.run_id, run.update_timestamp, run.dagster_run.status]
    seen += [(one.backfill_id, one.status) for one in under_way(instance, tables.values()).backfills]
    for record in instance.get_asset_records([table.asset_key for table in tables.values()]):
        newest = record.asset_entry.last_materialization_record
        seen.append(newest.storage_id if newest else None)
    return sha256(repr(seen).encode()).hexdigest()[:16]
