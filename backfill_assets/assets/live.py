"""The live stream of a table in Dagster: an asset of its own; a launch of history never makes it look fresh.

The asset's events are the batches that were written. Materializing it writes what has landed and ends, which is what
the schedule for people without a running writer does. Its checks watch the fence.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.assets.live_partitions import LivePartitions
from backfill_assets.core.live.checks import CHECKS, LiveCheck
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence
from backfill_assets.runs import killed as runs
from backfill_assets.runs.check_history import EVALUATED
from backfill_assets.runs.recording import failures_for_dagster
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import PRIORITY, RANGE_END, RANGE_START
from backfill_assets.runs.table_runs import still_running

if TYPE_CHECKING:
    from backfill_assets.live.writer import BatchReport
    from backfill_assets.runs.table import Table

REPORT_SECONDS = 30.0
"""A running writer tells Dagster of its newest batch so often; every batch would be an event a second."""

COMMITTED_AT = "last_batch_at"
"""Metadata of the stream's events: when its newest batch was committed."""

MAX_NAMED = 30


def live_asset_key(spec: TableSpec) -> dg.AssetKey:
    """Return the key of the asset that stands for a table's live stream."""
    return dg.AssetKey([spec.layer, f"{spec.name}_live"])


def live_check_job_name(key: str) -> str:
    """Return the name of the job that runs the checks around a table's fence."""
    return f"inspect_{key.replace('/', '_')}"


def live_definitions(
    table: "Table", live: LiveStream, launch_job: Any, specs: Mapping[str, TableSpec]
) -> dg.Definitions:
    """Return the live asset of a table, its checks, and its schedules: the one that looks is on, the others are off.

    Args:
        launch_job: Launches the table that it writes.
        specs: All tables of the lakehouse, by key.
    """
    spec = table.spec
    name, key = spec.key.replace("/", "_"), live_asset_key(spec)
    first = {PRIORITY: "10"}  # live work waits for no launch
    live_only = dg.AssetSelection.assets(key).without_checks()
    write_job = dg.define_asset_job(f"live_{name}", selection=live_only, tags=first)
    check_job = dg.define_asset_job(live_check_job_name(spec.key), selection=dg.AssetSelection.checks_for_assets(key))
    return dg.Definitions(
        assets=[_live_asset(spec, live, specs)],
        asset_checks=[_fence_checks(spec, live)],
        jobs=[write_job, check_job],
        schedules=[
            _minute_schedule(spec, write_job),
            *([_fold_schedule(table, launch_job)] if live.late == "fold" else ()),
            _inspect_schedule(spec, check_job),
        ],
    )


def _live_asset(spec: TableSpec, live: LiveStream, specs: Mapping[str, TableSpec]) -> dg.AssetsDefinition:
    """Return the asset whose events are the batches of a live stream; materializing it writes what has landed."""

    @dg.asset(
        key=live_asset_key(spec),
        description=f"Events that land in `{live.path}` and are appended to `{spec.key}` at or after its "
        "fence.\n\nMaterialize it to write "
        f"what has landed; `backfill-assets live {spec.key}` writes without a pause, and tells of its batches here.",
        group_name=spec.layer,
        kinds={"streaming"},
        owners=spec.owners,
        tags=spec.tags,
        metadata={"dagster/table_name": spec.key.replace("/", ".")},
    )
    def write_landed_events(context: dg.AssetExecutionContext, lakehouse: Lakehouse) -> dg.MaterializeResult[Any]:
        runs.tag_with_process(context.instance, context.run.run_id, lakehouse.project)
        with failures_for_dagster(spec.key):
            reports: list[BatchReport] = []
            writer = lakehouse.live_writer(spec, live, context.log.info, tables=specs)
            writer.report = lambda report: (reports.append(report), context.log.info(str(report)))[0]
            writer.run(once=True)
            fence = None if reports else writer.table.fence()
        try:
            LivePartitions(writer.table).look(context.instance, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 (whatever it is, the batches are written; the next run tells it)
            context.log.warning(f"Dagster could not be told of live partitions: {type(error).__name__}: {error}")
        before = context.instance.get_latest_materialization_event(live_asset_key(spec))
        told = before.asset_materialization.metadata if before and before.asset_materialization else {}
        newest = {name: told[name] for name in (COMMITTED_AT,) if name in told}  # still is, if nothing has landed
        return dg.MaterializeResult(metadata={**newest, **batch_metadata(reports, fence)})

    return write_landed_events


def _fence_checks(spec: TableSpec, live: LiveStream) -> dg.AssetChecksDefinition:
    """Return the checks around a table's fence; they write nothing."""
    key = live_asset_key(spec)

    @dg.multi_asset_check(
        name=f"{spec.key.replace('/', '_')}_live_checks",
        specs=[dg.AssetCheckSpec(check, asset=key, description=what) for check, what in CHECKS.items()],
    )
    def inspect_fence(context: dg.AssetCheckExecutionContext, lakehouse: Lakehouse) -> Iterator[dg.AssetCheckResult]:
        from backfill_assets.live.fence_queries import inspect

        runs.tag_with_process(context.instance, context.run.run_id, lakehouse.project)
        with failures_for_dagster(spec.key):
            table = lakehouse.live_table(spec, context.log.info)
            table.table.refuse_another_schema()
            folder, at = lakehouse.landing_path(live.path), lakehouse.checkpoint_path(spec.key)
            found = inspect(table, live, folder, checkpoint=at, now=datetime.now(UTC))
        for check in found:
            yield _result(key, check)

    return inspect_fence


def _fold_schedule(table: "Table", launch_job: Any) -> dg.ScheduleDefinition:
    """Return the schedule that folds late rows in; off until switched on."""
    spec, key = table.spec, live_asset_key(table.spec)

    @dg.schedule(
        name=f"fold_late_{spec.key.replace('/', '_')}",
        job=launch_job,
        cron_schedule="30 4 * * *",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Launches the partitions that late rows have made stale, as the newest `late_rows_are_folded` "
        "names them.",
    )
    def fold_late(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        stale = stale_partitions(context.instance, key)
        if not stale:
            yield dg.SkipReason("No partition is stale; `late_rows_are_folded` says so, or was never evaluated.")
        for first, last in _ranges(spec, stale):
            tags = {RANGE_START: first, RANGE_END: last}
            config = {"may_find_nothing": True, "reason": "source changed: late rows are folded in"}
            yield dg.RunRequest(
                run_key=f"{context.scheduled_execution_time:%Y-%m-%d %H:%M} {first}",
                tags=tags,
                run_config={"ops": {table.asset_key.to_python_identifier(): {"config": config}}},
            )

    return fold_late


def _minute_schedule(spec: TableSpec, write_job: Any) -> dg.ScheduleDefinition:
    """Return the schedule that writes what has landed, one run at a time; off until switched on."""

    @dg.schedule(
        name=f"live_{spec.key.replace('/', '_')}_every_minute",
        job=write_job,
        cron_schedule="* * * * *",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"For those who do not keep `backfill-assets live {spec.key}` running.",
    )
    def every_minute(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return _one_at_a_time(context, write_job, "writing")

    return every_minute


def _inspect_schedule(spec: TableSpec, check_job: Any) -> dg.ScheduleDefinition:
    """Return the schedule that looks around the fence once an hour, so that a silent stream is seen; on by default."""

    @dg.schedule(
        name=f"inspect_{spec.key.replace('/', '_')}_hourly",
        job=check_job,
        cron_schedule="17 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Runs the checks around the fence of `{spec.key}` as soon as its stream has written a batch. They "
        "write nothing.",
    )
    def hourly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if context.instance.get_latest_materialization_event(live_asset_key(spec)) is None:
            return dg.SkipReason("Its stream has not written a batch yet.")
        return _one_at_a_time(context, check_job, "looking")

    return hourly


def _one_at_a_time(context: dg.ScheduleEvaluationContext, job: Any, doing: str) -> dg.RunRequest | dg.SkipReason:
    """Request a run of a job, unless one goes on; one that was killed does not."""
    list(runs.report_dead(context.instance))
    running = still_running(context.instance, job.name)
    return dg.SkipReason(f"Run {running} is still {doing}.") if running else dg.RunRequest()


def batch_metadata(reports: Sequence["BatchReport"], fence: Fence | None = None) -> dict[str, dg.MetadataValue[Any]]:
    """Return what a person wants to see of some batches; numbers are plotted.

    Args:
        fence: The table's, where nothing had landed: what is launched by itself goes by the one that was told last.
    """
    if not reports:
        nothing: dict[str, dg.MetadataValue[Any]] = {"batches": dg.MetadataValue.int(0)}
        if fence:
            nothing |= {"fence": dg.MetadataValue.timestamp(fence.at_utc), "epoch": dg.MetadataValue.int(fence.epoch)}
        return nothing
    last, seconds = reports[-1], sum(report.seconds for report in reports)
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "batches": dg.MetadataValue.int(len(reports)),
        "last_batch": dg.MetadataValue.int(last.receipt.batch),
        COMMITTED_AT: dg.MetadataValue.timestamp(last.committed_at),
        "rows": dg.MetadataValue.int(sum(report.receipt.rows for report in reports)),
        "late_rows": dg.MetadataValue.int(sum(report.receipt.late_rows for report in reports)),
        "quarantined_rows": dg.MetadataValue.int(sum(report.receipt.quarantined_rows for report in reports)),
        "rows_per_second": dg.MetadataValue.float(
            round(sum(report.rows for report in reports) / max(seconds, 0.001), 1)
        ),
        "fence": dg.MetadataValue.timestamp(last.receipt.fence),
        "epoch": dg.MetadataValue.int(last.receipt.epoch),
    }
    unread = sum((Counter(report.unread_fields) for report in reports), Counter[str]())
    if unread:
        metadata["unread_fields"] = dg.MetadataValue.json(dict(unread.most_common()))
    lags = [report.lag_seconds for report in reports if report.lag_seconds is not None]
    if lags:
        metadata["lag_seconds"] = dg.MetadataValue.float(round(max(lags), 2))
    return metadata


class LiveReporter:
    """Tells Dagster of the batches of a running writer, every so often, and of the last ones when it ends.

    A database that is locked, or away, costs the stream at most a tenth of its time: the longer it took to find that
    out, the later it is tried again.

    Args:
        instance: Returns Dagster's instance, or raises while it cannot be opened.
        partitions: Records the partitions that the stream has written.
    """

    def __init__(
        self,
        instance: Callable[[], dg.DagsterInstance],
        key: dg.AssetKey,
        partitions: LivePartitions | None = None,
        *,
        every_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._instance, self._key, self._partitions = instance, key, partitions
        self._every_seconds = self._pause_seconds = every_seconds
        self._untold: list[BatchReport] = []
        self._told_at: float | None = None

    def saw(self, report: "BatchReport") -> None:
        """Take one batch into account; tell of it if it is time."""
        self._untold.append(report)
        if self._told_at is None or time.monotonic() - self._told_at >= self._pause_seconds:
            began, self._pause_seconds = time.monotonic(), self._every_seconds
            try:
                self.record()
                if self._partitions:
                    self._partitions.look_if_due(self._instance(), datetime.now(UTC))
            except Exception:
                self._pause_seconds = max(self._every_seconds, 10 * (time.monotonic() - began))
                raise
            finally:
                self._told_at = time.monotonic()

    def end(self) -> None:
        """Tell Dagster of what it was not told of yet: of batches, and of partitions."""
        self.record()
        if self._partitions and self._told_at is not None:
            self._partitions.look(self._instance(), datetime.now(UTC))

    def record(self) -> None:
        """Tell Dagster of the batches that it was not told of yet."""
        if self._untold:
            metadata = batch_metadata(self._untold)
            self._instance().report_runless_asset_event(dg.AssetMaterialization(self._key, metadata=metadata))
            self._untold = []


def stale_partitions(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """Return the partitions that the newest evaluation of `late_rows_are_folded` names."""
    check = dg.AssetCheckKey(key, "late_rows_are_folded")
    told = instance.event_log_storage.get_asset_check_execution_history(check, limit=10, status=EVALUATED)
    for record in told:
        evaluation = record.event.asset_check_evaluation if record.event and record.event.dagster_event else None
        if evaluation is not None:
            value: Any = evaluation.metadata["partitions"].value if "partitions" in evaluation.metadata else []
            return list(value)
    return []


def _ranges(spec: TableSpec, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Join consecutive partitions to ranges."""
    partitions = spec.grid.from_start(keys)
    places = (
        {p.key: n for n, p in enumerate(spec.grid.between(partitions[0].key, partitions[-1].key))} if partitions else {}
    )
    for _, run in groupby(enumerate(partitions), key=lambda pair: places[pair[1].key] - pair[0]):
        members = [partition for _, partition in run]
        yield members[0].key, members[-1].key


def _result(key: dg.AssetKey, check: LiveCheck) -> dg.AssetCheckResult:
    metadata: dict[str, Any] = dict(check.numbers)
    if check.partitions:
        metadata["which"] = dg.MetadataValue.md(_table(check.partitions))
        metadata["partitions"] = dg.MetadataValue.json(list(check.partitions))
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=check.name,
        passed=check.passed,
        severity=dg.AssetCheckSeverity.WARN if check.is_warning else dg.AssetCheckSeverity.ERROR,
        description=check.what,
        metadata=metadata,
    )


def _table(partitions: Mapping[str, str]) -> str:
    lines = [
        "| partition | |",
        "|---|---|",
        *(f"| {key} | {what} |" for key, what in list(partitions.items())[:MAX_NAMED]),
    ]
    if len(partitions) > MAX_NAMED:
        lines.append(f"| and {len(partitions) - MAX_NAMED:,} more | |")
    return "\n".join(lines)
