"""What watches over whole tables: one check for each, that every partition is reconciled, and what evaluates it.

These checks belong to an asset of their own. On the tables' assets they would be planned in every ranged launch, once
for each partition, and never be evaluated.
"""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from backfill_assets.assets.factory import tables_of
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.spec.versions import name_of
from backfill_assets.core.state.partition_status import PartitionStatus, State, outside_in_words
from backfill_assets.core.state.surveys import Survey
from backfill_assets.errors import AddressMissingError, BackfillAssetsError
from backfill_assets.runs.evaluations import OUTSIDE
from backfill_assets.runs.killed import report_dead, tag_with_process
from backfill_assets.runs.partitions import materialized_partitions
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import still_running
from backfill_assets.runs.table_status import TableStatus, look_at_table

RECONCILIATION, RECONCILIATION_JOB = "reconciliation", "reconciliation_job"
"""Names of the asset and of its job, after the project's own."""

UNRECONCILED_KEYS = "unreconciled_partitions"
"""Metadata of a table's check: the keys of the partitions that are not reconciled."""

MAX_NAMED, MOST_KEYS = 30, 2_000


@dataclass(frozen=True, slots=True)
class Unreconciled:
    """A partition that is not known to equal its source, why, and since when."""

    partition: Partition
    why: str
    since: datetime


def check_name(key: str) -> str:
    """Return the name of a table's check on the reconciliation asset."""
    return f"{key.replace('/', '_')}_reconciled"


def reconciliation_definitions(definitions: dg.Definitions, lakehouse: Lakehouse) -> dg.Definitions:
    """Return the asset that holds one check for each table, its job and its schedule."""
    tables, specs = tables_of(definitions)
    if not tables:
        return dg.Definitions()
    name = lakehouse.own_name(RECONCILIATION)
    asset_key = dg.AssetKey(name)
    checks = {
        key: dg.AssetCheckSpec(
            check_name(key),
            asset=asset_key,
            description=f"Every partition of {key} for which the source is complete is published, from the source's "
            "content as it is now, "
            "and its newest comparison found no difference.",
        )
        for key in tables
    }

    @dg.multi_asset(
        name=name,
        specs=[
            dg.AssetSpec(
                asset_key,
                description="Whether every partition of every table is reconciled. Materialize it to find out now; "
                "it writes nothing.",
                group_name="reconciliation",
            )
        ],
        check_specs=list(checks.values()),
        can_subset=True,
    )
    def every_partition_reconciled(context: dg.AssetExecutionContext, lakehouse: Lakehouse) -> Iterator[Any]:
        tag_with_process(context.instance, context.run.run_id, lakehouse.project)
        wanted = {key: check.name for key, check in checks.items() if check.key in context.selected_asset_check_keys}
        results = [_result(context, check, tables[key], specs, lakehouse) for key, check in wanted.items()]
        if asset_key in context.selected_asset_keys:  # not in a run of one table's check alone
            yield dg.MaterializeResult(asset_key=asset_key)
        yield from results

    job = dg.define_asset_job(lakehouse.own_name(RECONCILIATION_JOB), selection=dg.AssetSelection.assets(asset_key))
    nightly = _nightly(tables, job, f"{name}_nightly")
    return dg.Definitions(assets=[every_partition_reconciled], jobs=[job], schedules=[nightly])


def _nightly(tables: Mapping[str, Table], job: Any, name: str) -> dg.ScheduleDefinition:
    """Return the schedule that evaluates every table's check each night; on by default."""

    @dg.schedule(
        name=name,
        job=job,
        cron_schedule="0 5 * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks whether every partition of every table is reconciled, as soon as one was published. It "
        "writes nothing.",
    )
    def nightly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        list(report_dead(context.instance))  # a run that was killed looks no more
        if not any(materialized_partitions(context.instance, table.asset_key) for table in tables.values()):
            return dg.SkipReason("Nothing was published yet.")
        running = still_running(context.instance, job.name)
        return dg.SkipReason(f"Run {running} is still looking.") if running else dg.RunRequest()

    return nightly


def reconciliation_job_of(definitions: dg.Definitions, lakehouse: Lakehouse, key: str) -> dg.JobDefinition:
    """Return the job that evaluates one table's check alone: it looks at no other table."""
    wanted = dg.AssetCheckKey(dg.AssetKey(lakehouse.own_name(RECONCILIATION)), check_name(key))
    job = definitions.resolve_job_def(lakehouse.own_name(RECONCILIATION_JOB))
    return job.get_subset(asset_check_selection={wanted})


def _result(
    context: dg.AssetExecutionContext, name: str, table: Table, specs: Mapping[str, TableSpec], lakehouse: Lakehouse
) -> dg.AssetCheckResult:
    """Evaluate one table's check; a table that cannot be looked at fails its own check and no other."""
    from backfill_assets.spark.failures import first_words, looked_at

    try:
        key, log = table.spec.key, context.log.info
        seen = looked_at(key, lambda: look_at_table(context.instance, table, specs, lakehouse, log), log)
        found, known = unreconciled(seen, _may_wait(table.spec)), seen.total
        outside = looked_at(key, lambda: lakehouse.table(table.spec, log).rows_outside_grid(), log)
        without_spec = looked_at(key, lambda: _current_without_spec(lakehouse, specs, key), log)
    except AddressMissingError as error:  # a table that nobody uses here: not green, and no alarm
        return dg.AssetCheckResult(
            asset_key=dg.AssetKey(lakehouse.own_name(RECONCILIATION)),
            check_name=name,
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=str(error),
        )
    except BackfillAssetsError as error:
        return dg.AssetCheckResult(
            asset_key=dg.AssetKey(lakehouse.own_name(RECONCILIATION)),
            check_name=name,
            passed=False,
            description=str(error),
        )
    except Exception as error:  # noqa: BLE001 (whatever it is, the other tables are looked at; the log has all of it)
        what = f"`{table.spec.key}` could not be looked at: {type(error).__name__}: {first_words(error).rstrip('.')}."
        context.log.error(f"{what}\n{traceback.format_exc()}")  # noqa: TRY400 (Dagster stores the message alone)
        return dg.AssetCheckResult(
            asset_key=dg.AssetKey(lakehouse.own_name(RECONCILIATION)),
            check_name=name,
            passed=False,
            description=f"{what} Nothing was changed. Nobody foresaw this error; the run's log says where it arose.",
        )
    return dg.AssetCheckResult(
        asset_key=dg.AssetKey(lakehouse.own_name(RECONCILIATION)),
        check_name=name,
        passed=not found and not outside and not without_spec,
        description=" ".join(
            filter(None, [describe(found, known), outside_in_words(table.spec.key, outside), *without_spec])
        ),
        metadata=summary_metadata(found, known) | {OUTSIDE: dg.MetadataValue.int(sum(outside.values()))},
    )


def _current_without_spec(lakehouse: Lakehouse, specs: Mapping[str, TableSpec], key: str) -> list[str]:
    """Return what is wrong if readers of a table are given a version that has no spec: no check is of that one."""
    without = lakehouse.current_table().without_spec(specs)
    return [str(why) for one, why in without.items() if one == "_current" or name_of(one) == name_of(key)]


def _may_wait(spec: TableSpec) -> timedelta:
    """Return how long a change of the source may wait to be folded in: of a table without a feed not at all."""
    return timedelta(seconds=spec.changes.max_lag_seconds if spec.changes else 0)


def unreconciled(looked_at: TableStatus, may_wait: timedelta = timedelta()) -> list[Unreconciled]:
    """Return the partitions of a table that are not reconciled.

    Args:
        may_wait: How long a change of the source may be there that the table lacks.
    """
    now = datetime.now(UTC)
    found = [
        (status, Unreconciled(status.partition, status.reason, _since(status, looked_at.surveys, looked_at.failing)))
        for status in looked_at.unreconciled
    ]
    waits = [bool(may_wait) and status.states == (State.STALE_SOURCE,) for status, _ in found]
    return [each for (_, each), late in zip(found, waits, strict=True) if not late or now - each.since >= may_wait]


def _since(status: PartitionStatus, surveys: Mapping[str, Survey], failing: Mapping[str, datetime]) -> datetime:
    """Return since when a partition is as it is, as far as that is known."""
    key = status.partition.key
    if status.state in (State.DIFFERS, State.FOREIGN) and key in failing:
        return failing[key]
    if status.state is State.STALE_SOURCE:
        return surveys[key].changed_utc or datetime.fromtimestamp(0, tz=UTC)
    made_at = status.published.receipt.made_at if status.published else ""
    if status.state in (State.STALE_CODE, State.SOURCE_INCOMPLETE) and made_at:
        return datetime.fromisoformat(made_at)
    return status.partition.window.end_utc


def describe(found: Sequence[Unreconciled], known: int) -> str:
    """Return in one sentence how many partitions are not reconciled, which, and since when."""
    if not found:
        return f"All {known:,} partitions are reconciled."
    first = min(found, key=lambda item: item.since)
    return (
        f"{len(found):,} of {known:,} partitions are not reconciled, from {found[0].partition.key} to "
        f"{found[-1].partition.key}; "
        f"the oldest since {first.since:%Y-%m-%d %H:%M} UTC ({first.partition.key}: {first.why})."
    )


def summary_metadata(found: Sequence[Unreconciled], known: int) -> dict[str, Any]:
    """Return the numbers and a table of the partitions that are not reconciled."""
    metadata: dict[str, Any] = {
        "partitions": dg.MetadataValue.int(known),
        "unreconciled": dg.MetadataValue.int(len(found)),
    }
    if found:
        metadata[UNRECONCILED_KEYS] = dg.MetadataValue.json([item.partition.key for item in found[:MOST_KEYS]])
        lines = ["| partition | why | since |", "|---|---|---|"]
        lines += [
            f"| {item.partition.key} | {item.why} | {item.since:%Y-%m-%d %H:%M} UTC |" for item in found[:MAX_NAMED]
        ]
        if len(found) > MAX_NAMED:
            lines.append(f"| and {len(found) - MAX_NAMED:,} more | | |")
        metadata["which"] = dg.MetadataValue.md("\n".join(lines))
    return metadata
