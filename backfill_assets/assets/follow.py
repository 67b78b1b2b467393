"""A table that follows the tables that it is made of: when their partitions were published, its own are launched.

A tick asks Dagster alone. Which of the partitions are really stale is found by the launch itself (`only: MISSING`),
which writes nothing where what it is made of has the content that it had. What was asked for is remembered until its
run has succeeded: one that failed, was killed or never began is asked for again, a few times, later and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG, SENSOR_NAME_TAG
from pydantic import BaseModel

from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.history.downstream import made_of
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import TableSpecError, WindowError
from backfill_assets.runs.recorded_evaluations import newest_event
from backfill_assets.runs.recording import TELLS_NOTHING
from backfill_assets.runs.run_tags import RANGE_END, RANGE_START, range_named
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import is_launch_of, under_way

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

EVERY_SECONDS = 30

AGAIN_AFTER_SECONDS = (60, 300, 1800)
"""How long after each failure the same partitions are asked for again; after the last one whoever was told looks."""

_EVENTS_AT_ONCE, _RANGES_AT_ONCE = 5_000, 20
_NOTHING = "Nothing is new."
_DONE = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)


class Asked(BaseModel):
    """Partitions for which a run was asked, and that has not succeeded yet as far as is known.

    Args:
        run_key: By which Dagster knows the request.
        partitions: Keys.
        attempt: Which one it was, from 1 on.
        again_utc: When the next one is due; None while the run is not known to have failed.
    """

    run_key: str
    partitions: list[str]
    attempt: int = 1
    again_utc: datetime | None = None


class Followed(BaseModel):
    """How far the sensor has come.

    Args:
        until: Storage id of the newest event that was looked at, by input.
        complete: The one up to which none can come any more, by input: a database may show an event after newer ones,
            but not after the run has ended that told of it.
        told: Time of the newest event that was looked at, by input, in seconds since 1970.
        after: Time up to which events are not followed, by input: of a history that has lost some.
        waiting: Keys of partitions that are to be launched as soon as nothing launches the inputs, or this table.
        asked: What was asked for, until it is done.
    """

    until: dict[str, int] = {}
    complete: dict[str, int] = {}
    told: dict[str, float] = {}
    after: dict[str, float] = {}
    waiting: list[str] = []
    asked: list[Asked] = []


def sensor_of(spec: TableSpec) -> str:
    """Return the name of a table's sensor."""
    return f"follow_{spec.key.replace('/', '_')}"


def follow_sensor(
    table: Table, specs: Mapping[str, TableSpec], launch_job: UnresolvedAssetJobDefinition
) -> dg.SensorDefinition:
    """Return the sensor that launches what is made of partitions that were published; it is on.

    Args:
        specs: Of all tables of the lakehouse, by key.
        launch_job: Launches the table.
    """
    spec = table.spec
    if unknown := [reading.table for reading in spec.inputs if reading.table not in specs]:
        raise TableSpecError(
            f"`{spec.key}` follows `{unknown[0]}`, whose spec was not given.",
            state="Nothing was loaded.",
            remedy="Give `build_lakehouse_table` the specs of what it is made of, as `inputs=`.",
        )
    inputs = {reading.table: Table(specs[reading.table]) for reading in spec.inputs}

    @dg.sensor(
        name=sensor_of(spec),
        job=launch_job,
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Launches the partitions of `{spec.key}` that are made of partitions of "
        f"{', '.join(f'`{key}`' for key in inputs)} that were published, when no launch of these goes on.",
    )
    def follow(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        seen = Followed.model_validate_json(context.cursor) if context.cursor else Followed()
        _notice_lost_history(context, seen)
        waiting = set(seen.waiting)
        running = str(under_way(context.instance, [*inputs.values(), table]))
        if not running:  # before events are read: then all that ended runs have told of is there
            seen.until |= seen.complete
        for key, source in inputs.items():
            waiting |= _touched(context.instance, table, source, seen, is_first=key not in seen.until)
        seen.waiting = sorted(waiting)
        seen.complete = {**seen.until, **(seen.complete if running else {})}
        now_utc = datetime.now(UTC)
        seen.asked = list(_not_done(context, spec, seen, now_utc))
        if running:
            return _result(seen, f"{len(waiting):,} partitions wait for {running}." if waiting else _NOTHING)
        requests = _requests(spec, seen, now_utc)
        return _result(seen, _what_waits(seen), requests)

    return follow


def _notice_lost_history(context: dg.SensorEvaluationContext, seen: Followed) -> None:
    """Look for events of later times only, where Dagster's history was wiped, or lost its newest run.

    Its events are counted anew then, from one on or from where the newest that is left stands. Where nothing is known
    of the time of what was followed, nothing that is there is.
    """
    newest = newest_event(context.instance)
    for key in [key for key, until in seen.until.items() if max(until, seen.complete.get(key, 0)) > newest]:
        context.log.warning(f"Dagster's history has lost events of `{key}`: newer ones are looked for by their time.")
        seen.after[key] = seen.told.get(key, 0.0)
        seen.until[key] = 0 if key in seen.told else newest
        seen.complete.pop(key, None)


def _result(seen: Followed, why: str, requests: list[dg.RunRequest] | None = None) -> dg.SensorResult:
    if requests:
        return dg.SensorResult(run_requests=requests, cursor=seen.model_dump_json())
    return dg.SensorResult(skip_reason=why, cursor=seen.model_dump_json())


def _touched(instance: dg.DagsterInstance, table: Table, source: Table, seen: Followed, *, is_first: bool) -> set[str]:
    """Return the keys of the partitions that are made of what was published since the last look; note how far it is.

    What was found in the table as it would be written has changed nothing; what a run has launched of this table too is
    followed already, but not what is made of it beside that. Before the first look nothing is followed.
    """
    spec, key = table.spec, source.spec.key
    if is_first:
        newest = instance.fetch_materializations(source.asset_key, limit=1).records
        seen.until[key] = newest[0].storage_id if newest else 0
        seen.told[key] = newest[0].timestamp if newest else 0.0
        return set()
    after = dg.AssetRecordsFilter(asset_key=source.asset_key, after_storage_id=seen.until[key])
    records = instance.fetch_materializations(after, limit=_EVENTS_AT_ONCE, ascending=True).records
    changed: dict[str, set[str]] = {}
    runs = instance.get_runs(dg.RunsFilter(run_ids=list({record.run_id for record in records}))) if records else []
    launched = {
        run.run_id: _named_by(run, spec) for run in runs if run.is_success and is_launch_of(instance, run, table)
    }
    for record in records:
        told = record.asset_materialization if record.timestamp > seen.after.get(key, -1.0) else None
        if told and told.partition and not TELLS_NOTHING & told.metadata.keys():
            changed.setdefault(record.run_id, set()).add(told.partition)
        seen.until[key] = max(seen.until[key], record.storage_id)
        seen.told[key] = max(seen.told.get(key, 0.0), record.timestamp)
    touched: set[str] = set()
    for run_id, names in changed.items():
        partitions = source.spec.grid.from_start(filter(source.spec.grid.is_key, names))
        below = made_of(key, partitions, {spec.key: spec}).get(spec.key, [])
        touched |= {partition.key for partition in below} - launched.get(run_id, set())
    return touched


def _named_by(run: dg.DagsterRun, spec: TableSpec) -> set[str]:
    """Return the keys of a table's partitions that a run names; none if they are not of its grid."""
    with suppress(WindowError):
        if named := range_named(run.tags):
            return {partition.key for partition in spec.grid.around_start(*named)[1]}
    return set()


def _not_done(
    context: dg.SensorEvaluationContext, spec: TableSpec, seen: Followed, now_utc: datetime
) -> Iterator[Asked]:
    """Yield what was asked for, except what is published; what has failed with when it is asked for again.

    | run           | what is done                                                |
    |---------------|-------------------------------------------------------------|
    | succeeded     | forgotten                                                   |
    | was stopped   | forgotten: somebody did not want it                         |
    | goes on       | nothing                                                     |
    | failed        | asked for again, later; after the last attempt forgotten    |
    | never was one | as if it had failed: Dagster ended between tick and request |
    """
    for asked in seen.asked:
        asked.partitions = [key for key in asked.partitions if key not in seen.waiting]  # newer events ask for them
        standing = None if asked.again_utc else _standing(context.instance, spec, asked.run_key)
        if not asked.partitions or standing in _DONE:
            continue
        if standing is dg.DagsterRunStatus.FAILURE:
            if asked.attempt > len(AGAIN_AFTER_SECONDS):
                context.log.error(
                    f"{len(asked.partitions):,} partitions from `{asked.partitions[0]}` on could not be launched: "
                    f"{asked.attempt} runs have failed. The table keeps what it had there. Correct what their "
                    "alerts tell of, and launch them."
                )
                continue
            asked.again_utc = now_utc + timedelta(seconds=AGAIN_AFTER_SECONDS[asked.attempt - 1])
        yield asked


def _standing(instance: dg.DagsterInstance, spec: TableSpec, run_key: str) -> dg.DagsterRunStatus:
    """Return how the run of a request stands; one that never was has failed."""
    for run in instance.get_runs(dg.RunsFilter(tags={RUN_KEY_TAG: run_key})):
        if run.tags.get(SENSOR_NAME_TAG) == sensor_of(spec):
            return run.status
    return dg.DagsterRunStatus.FAILURE


def _what_waits(seen: Followed) -> str:
    """Say when what has failed is asked for again."""
    again = [asked for asked in seen.asked if asked.again_utc]
    if not again:
        return f"{len(seen.waiting):,} partitions are launched when they are over." if seen.waiting else _NOTHING
    count, soonest = sum(len(asked.partitions) for asked in again), min(filter(None, (one.again_utc for one in again)))
    return f"{count:,} partitions are launched again at {soonest:%H:%M:%S} UTC: their run has failed."


def _requests(spec: TableSpec, seen: Followed, now_utc: datetime) -> list[dg.RunRequest]:
    """Return a request for each range that has failed and is due, and of what waits; note that they were asked for."""
    due = [asked for asked in seen.asked if asked.again_utc and asked.again_utc <= now_utc]
    seen.asked = [asked for asked in seen.asked if asked not in due]
    ranges = [(part, asked.attempt + 1) for asked in due for part in runs_of(_known(spec, asked.partitions))]
    waiting = _known(spec, seen.waiting)
    is_copy = spec.source.is_of_version  # it takes a partition as it is; other launches leave out what is not over
    over = [partition for partition in waiting if is_copy or partition.window.end_utc <= now_utc]
    first = [(part, 1) for part in runs_of(over)][: max(0, _RANGES_AT_ONCE - len(ranges))]
    begun = {partition.key for part, _ in first for partition in part}
    seen.waiting = [partition.key for partition in waiting if partition.key not in begun]
    requests: list[dg.RunRequest] = []
    for part, attempt in [*ranges, *first]:
        run_key = f"{sum(seen.until.values())} {part[0].key} {attempt}"
        requests.append(_request(spec, part, run_key))
        seen.asked.append(Asked(run_key=run_key, partitions=[one.key for one in part], attempt=attempt))
    return requests


def _known(spec: TableSpec, keys: Iterable[str]) -> list[Partition]:
    """Return the partitions of keys, in order; not of those that the spec has left behind."""
    return spec.grid.from_start(key for key in keys if spec.grid.is_key(key))


def _request(spec: TableSpec, partitions: list[Partition], run_key: str) -> dg.RunRequest:
    inputs = ", ".join(reading.table for reading in spec.inputs)
    config = {"only": "MISSING", "may_find_nothing": True, "reason": f"source changed: follows {inputs}"}
    run_config: dict[str, Any] = {"ops": {spec.key.replace("/", "__"): {"config": config}}}
    return dg.RunRequest(
        run_key=run_key,
        tags={RANGE_START: partitions[0].key, RANGE_END: partitions[-1].key},
        run_config=run_config,
    )
