"""What watches over whole tables: one check for each, that every partition is reconciled, and what evaluates it.

These checks belong to an asset of their own. On the tables' assets they would be planned in every ranged launch, once for
each partition, and never be evaluated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from backfill_assets.assets.checks import RECONCILED
from backfill_assets.assets.factory import Table, tables_of
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.history.ports import Survey
from backfill_assets.core.state.fence import is_history
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import BackfillAssetsError, SourceMissingError

RECONCILIATION = dg.AssetKey("reconciliation")
RECONCILIATION_JOB = "reconciliation_job"
MAX_NAMED = 30


@dataclass(frozen=True, slots=True)
class Unreconciled:
    """A partition that is not known to equal its source, why, and since when."""

    partition: Partition
    why: str
    since: datetime


def check_name(key: str) -> str:
    """Return the name of a table's check on the reconciliation asset."""
    return f"{key.replace('/', '_')}_every_partition_reconciled"


def reconciliation_definitions(definitions: dg.Definitions) -> dg.Definitions:
    """Return the asset that holds one check for each table, its job and its schedule (off until switched on)."""
    tables, specs = tables_of(definitions)
    if not tables:
        return dg.Definitions()
    checks = {
        key: dg.AssetCheckSpec(
            check_name(key),
            asset=RECONCILIATION,
            description=f"Every partition of {key} for which the source is complete is published, from the source's content as it is now, "
            "and its newest comparison found no difference.",
        )
        for key in tables
    }

    @dg.multi_asset(
        name="reconciliation",
        specs=[
            dg.AssetSpec(
                RECONCILIATION,
                description="Whether every partition of every table is reconciled. Materialize it to find out now; it writes nothing.",
                group_name="reconciliation",
            )
        ],
        check_specs=list(checks.values()),
    )
    def every_partition_reconciled(context: dg.AssetExecutionContext, lakehouse: Lakehouse) -> Iterator[Any]:
        results = [_result(context, check.name, tables[key], specs, lakehouse) for key, check in checks.items()]
        yield dg.MaterializeResult(asset_key=RECONCILIATION)
        yield from results

    job = dg.define_asset_job(RECONCILIATION_JOB, selection=dg.AssetSelection.assets(RECONCILIATION))
    schedule = dg.ScheduleDefinition(
        name="reconciliation_nightly", job=job, cron_schedule="0 5 * * *", default_status=dg.DefaultScheduleStatus.STOPPED
    )
    return dg.Definitions(assets=[every_partition_reconciled], jobs=[job], schedules=[schedule])


def _result(
    context: dg.AssetExecutionContext, name: str, table: Table, specs: Mapping[str, TableSpec], lakehouse: Lakehouse
) -> dg.AssetCheckResult:
    """Evaluate one table's check; a table that cannot be looked at fails its own check and no other."""
    try:
        found, known = unreconciled(context.instance, table, specs, lakehouse, context.log.info)
    except BackfillAssetsError as error:
        return dg.AssetCheckResult(asset_key=RECONCILIATION, check_name=name, passed=False, description=str(error))
    return dg.AssetCheckResult(
        asset_key=RECONCILIATION,
        check_name=name,
        passed=not found,
        description=describe(found, known),
        metadata=summary_metadata(found, known),
    )


def unreconciled(
    instance: dg.DagsterInstance,
    table: Table,
    specs: Mapping[str, TableSpec],
    lakehouse: Lakehouse,
    log: Callable[[str], None],
) -> tuple[list[Unreconciled], int]:
    """Return the partitions of a table that are not reconciled, and how many there are in all.

    Reads no rows: it holds the receipts against the source's listing, and looks up the newest comparisons in Dagster.
    """
    delta = lakehouse.table(table.spec, log)
    delta.create()
    source = lakehouse.source(table.spec, specs, None, log)
    try:
        until = source.complete_until()
    except SourceMissingError:
        return [], 0
    if until is None:
        return [], 0
    complete = [p for p in table.spec.grid.until(until) if p.window.end_utc <= until]
    fence = delta.fence()
    complete = [p for p in complete if fence is None or is_history(p, fence)]
    published = delta.published()
    late = delta.late(complete).rows if complete else {}
    surveys = source.survey(complete)
    failed = _failed_comparisons(instance, table)
    found: list[Unreconciled] = []
    for partition in complete:
        receipt = published.get(partition.key)
        if receipt is None:
            found.append(Unreconciled(partition, "never published", partition.window.end_utc))
        elif partition.key in failed:
            found.append(Unreconciled(partition, "differs from its source", failed[partition.key]))
        elif receipt.partition.fingerprint != surveys[partition.key].fingerprint:
            found.append(Unreconciled(partition, "its source changed after it was published", _source_changed(surveys[partition.key])))
        elif late.get(partition.key, 0) > receipt.partition.late_rows:
            waiting = late[partition.key] - receipt.partition.late_rows
            found.append(Unreconciled(partition, f"stale: {waiting:,} late rows wait to be folded in", partition.window.end_utc))
    return found, len(complete)


def _source_changed(survey: Survey) -> datetime:
    """Return when a source changed, as far as its files tell; else the beginning of time."""
    changed = [file.modified_micros for file in survey.files if hasattr(file, "modified_micros")]
    return datetime.fromtimestamp(max(changed) / 1e6, tz=UTC) if changed else datetime.fromtimestamp(0, tz=UTC)


def _failed_comparisons(instance: dg.DagsterInstance, table: Table) -> dict[str, datetime]:
    """Return the partitions whose newest comparison failed, and since when they fail without a pass between."""
    key = dg.AssetCheckKey(table.asset_key, RECONCILED)
    infos = instance.event_log_storage.get_asset_check_partition_info([key])
    failing = {info.partition_key for info in infos if info.latest_execution_status.value == "FAILED" and info.partition_key}
    since: dict[str, datetime] = {}
    if not failing:
        return since
    settled: set[str] = set()
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=20_000):
        partition = record.partition
        if partition is None or partition not in failing or partition in settled:
            continue
        if record.status.value == "SUCCEEDED":
            settled.add(partition)
        elif record.status.value == "FAILED":
            since[partition] = datetime.fromtimestamp(record.create_timestamp, tz=UTC)
    return since


def describe(found: Sequence[Unreconciled], known: int) -> str:
    """Return in one sentence how many partitions are not reconciled, which, and since when."""
    if not found:
        return f"All {known:,} partitions are reconciled."
    first = min(found, key=lambda item: item.since)
    return (
        f"{len(found):,} of {known:,} partitions are not reconciled, from {found[0].partition.key} to {found[-1].partition.key}; "
        f"the oldest since {first.since:%Y-%m-%d %H:%M} UTC ({first.partition.key}: {first.why})."
    )


def summary_metadata(found: Sequence[Unreconciled], known: int) -> dict[str, Any]:
    """Return the numbers and a table of the partitions that are not reconciled."""
    metadata: dict[str, Any] = {"partitions": dg.MetadataValue.int(known), "unreconciled": dg.MetadataValue.int(len(found))}
    if found:
        lines = ["| partition | why | since |", "|---|---|---|"]
        lines += [f"| {item.partition.key} | {item.why} | {item.since:%Y-%m-%d %H:%M} UTC |" for item in found[:MAX_NAMED]]
        if len(found) > MAX_NAMED:
            lines.append(f"| and {len(found) - MAX_NAMED:,} more | | |")
        metadata["which"] = dg.MetadataValue.md("\n".join(lines))
    return metadata
