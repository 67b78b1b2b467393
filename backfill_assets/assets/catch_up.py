"""A schedule that launches a table's missing partitions, a piece at a time, in the hours that its spec names.

A tick asks Dagster alone, so it takes milliseconds and starts no JVM: what is published, what runs now, and what this
schedule asked for before.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.assets.live import live_asset_key
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.catch_up import AGAIN_AFTER, next_pieces
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.table import CatchUp, TableSpec
from backfill_assets.core.state.fence import first_fence
from backfill_assets.core.state.partition_status import Known, State, status_of
from backfill_assets.errors import TableSpecError, WindowError
from backfill_assets.runs import killed as runs
from backfill_assets.runs.check_history import failed_comparisons
from backfill_assets.runs.partitions import materialized_partitions
from backfill_assets.runs.run_tags import PRIORITY, RANGE_END, RANGE_START
from backfill_assets.runs.table_runs import under_way

if TYPE_CHECKING:
    from backfill_assets.runs.table import Table

CATCH_UP, ASKED_AT = "backfill_assets/catch_up", "backfill_assets/catch_up_at"
RECENT_RUNS = 1_000
"""Runs of the schedule that are looked through for what was asked for before."""

_EVENTS = 5
"""So many of the stream's newest events are looked at for the fence."""


def wrong_crons(spec: TableSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a table's cron schedules, each with its place in the spec."""
    crons = {("catch_up", "cron"): spec.catch_up.cron} if spec.catch_up else {}
    crons |= {("pace", "off_peak", "cron"): spec.pace.off_peak.cron} if spec.pace.off_peak else {}
    for field, cron in crons.items():
        try:
            dg.ScheduleDefinition(name="cron", job_name="cron", cron_schedule=cron)
        except dg.DagsterInvalidDefinitionError:
            yield (
                field,
                f"`{cron}` is not a cron schedule of five fields (minute, hour, day, month, weekday), for example "
                "`*/30 1-5 * * *`",
            )


def refuse_wrong_crons(spec: TableSpec) -> None:
    """Raise if a cron schedule of a table is none.

    Raises:
        TableSpecError: It is not.
    """
    for field, what in wrong_crons(spec):
        raise TableSpecError(
            f"`{spec.key}`: {'.'.join(field)}: {what}.", state="Nothing was loaded.", remedy="Correct it in the spec."
        )


def catch_up_schedule(table: "Table", catch_up: CatchUp, job: Any) -> dg.ScheduleDefinition:
    """Return the schedule that launches a table's missing partitions (off until switched on).

    Args:
        job: Launches the table.
    """
    spec = table.spec

    @dg.schedule(
        name=f"catch_up_{spec.key.replace('/', '_')}",
        job=job,
        cron_schedule=catch_up.cron,
        execution_timezone=spec.time_zone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Launches the {'newest' if catch_up.newest_first else 'oldest'} missing partitions of "
        f"`{spec.key}`, at most "
        f"{catch_up.max_partitions:,} in one run, unless a run of it is in progress. What is still missing afterwards "
        "is requested again, in a run of its own, "
        f"{AGAIN_AFTER.total_seconds() / 3600:.0f} hours later.",
    )
    def launch_missing(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        now_utc = context.scheduled_execution_time.astimezone(UTC)
        for dead in runs.report_dead(context.instance):
            context.log.warning(f"Run {dead} was killed on this machine; it is marked as failed.")
        if running := str(under_way(context.instance, [table])):
            return dg.SkipReason(f"A launch of `{spec.key}` is in progress: {running}.")
        until_utc, asked = history_until(context.instance, spec, now_utc), _asked(context.instance, spec)
        present = _present(context.instance, table, until_utc)
        pieces = next_pieces(spec, catch_up, until_utc=until_utc, present=present, asked_utc=asked, now_utc=now_utc)
        if not pieces:
            return dg.SkipReason(
                f"No partition of `{spec.key}` that ends by {until_utc:%Y-%m-%d %H:%M} UTC is missing, apart from "
                f"those requested in the last {AGAIN_AFTER.total_seconds() / 3600:.0f} hours."
            )
        return [_request(table, piece, now_utc) for piece in pieces]

    return launch_missing


def _request(table: "Table", piece: Sequence[Partition], now_utc: datetime) -> dg.RunRequest:
    config = {"only": "MISSING", "may_find_nothing": True, "reason": "history missing: catch up"}
    return dg.RunRequest(
        run_key=f"{now_utc.isoformat()} {piece[0].key}",
        tags={
            RANGE_START: piece[0].key,
            RANGE_END: piece[-1].key,
            CATCH_UP: table.spec.key,
            PRIORITY: "-10",
            ASKED_AT: now_utc.isoformat(),
        },
        run_config={"ops": {table.asset_key.to_python_identifier(): {"config": config}}},
    )


def _present(instance: dg.DagsterInstance, table: "Table", until_utc: datetime) -> set[str]:
    """Return the keys of the partitions that need no launch, as far as Dagster knows: receipts are not read here."""
    keys = materialized_partitions(instance, table.asset_key)
    known = Known(published=dict.fromkeys(keys), differing=failed_comparisons(instance, table).keys())
    found = status_of(history_of(table.spec).until(until_utc), known)
    return {status.partition.key for status in found if status.state is State.PUBLISHED}


def history_until(instance: dg.DagsterInstance, spec: TableSpec, now_utc: datetime) -> datetime:
    """Return until when partitions are history and have ended: the fence, as the live writer last told it, or now."""
    fence = first_fence(spec)
    if fence is None:
        return now_utc
    newest = instance.fetch_materializations(live_asset_key(spec), limit=_EVENTS).records
    told = [record.asset_materialization.metadata for record in newest if record.asset_materialization]
    moved = [(one["epoch"].value if "epoch" in one else 0, one["fence"].value) for one in told if "fence" in one]
    # A writer that ends tells of batches from before the fence was moved.
    _, at = max(moved, default=(0, None), key=lambda one: int(str(one[0])))
    moved_utc = datetime.fromtimestamp(at, tz=UTC) if isinstance(at, int | float) else fence.at_utc
    return min(now_utc, max(fence.at_utc, moved_utc))


def _asked(instance: dg.DagsterInstance, spec: TableSpec) -> dict[str, datetime]:
    """Return when this schedule last asked for each partition, by key."""
    asked: dict[str, datetime] = {}
    for run in instance.get_runs(dg.RunsFilter(tags={CATCH_UP: spec.key}), limit=RECENT_RUNS):  # newest first
        with suppress(WindowError):  # the table began earlier then, or had another grain
            for partition in spec.grid.between(run.tags.get(RANGE_START, ""), run.tags.get(RANGE_END, "")):
                asked.setdefault(partition.key, datetime.fromisoformat(run.tags[ASKED_AT]))
    return asked
