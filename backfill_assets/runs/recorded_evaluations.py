"""Evaluations of checks are recorded, and shown whichever run came first."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.utils import make_new_run_id
from dagster_shared.record import replace

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.comparison import Comparison
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.runs.check_history import EVALUATED, PUT_BACK, RECONCILED
from backfill_assets.runs.comparisons import compare_with_receipts
from backfill_assets.runs.evaluations import (
    evaluations_of,
    left_out_evaluations,
    newest_ids,
    newest_materializations,
    refusals_of,
)
from backfill_assets.runs.recording import materialization, partition_metadata, recording

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table

_KEYS_AT_ONCE = 1_000


def newest_event(instance: dg.DagsterInstance) -> int:
    """Return the storage id of the newest event: what is recorded from now on has a greater one."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def record_evaluations(
    context: dg.AssetExecutionContext,
    table: "Table",
    delta: "LakeTable",
    published: Sequence[Partition],
    refused: Sequence[Verdict] = (),
    *,
    before: Mapping[str, int] | None = None,
    differing: Collection[str] = (),
    left_out: Sequence[Partition] = (),
) -> list[Comparison]:
    """Log the evaluations that the check's own step would make, where it will not run: a failed launch, a once-flow.

    Args:
        before: As `newest_ids` gave them when the launch began: what was refused is told of what was there then.
        differing: Keys of partitions that are known to differ from their source: that one is as its receipt says is no
            news.
        left_out: Partitions that a launch did not look at; Dagster would say of each that its check was not executed.
    """
    instance, key, since = context.instance, table.asset_key, newest_event(context.instance)
    targets = newest_materializations(instance, key, published)
    refused_of = newest_materializations(instance, key, [verdict.partition for verdict in refused], before)
    compared, _ = compare_with_receipts(published, delta, table.code_version)
    news = [comparison for comparison in compared if not (comparison.passed and comparison.partition.key in differing)]
    found = [*evaluations_of(table, news, targets), *refusals_of(table, refused, refused_of)]
    log_evaluations(context, found, since=since, beside=[*left_out_evaluations(table, left_out)])
    return compared


def log_evaluations(
    context: dg.AssetExecutionContext,
    evaluations: Sequence[dg.AssetCheckEvaluation],
    *,
    since: int,
    beside: Sequence[dg.AssetCheckEvaluation] = (),
) -> None:
    """Record evaluations in the step of an asset.

    Args:
        since: As `newest_event` gave it before anything was read.
        beside: Those that say nothing about rows, and so hide nothing that another run has found.
    """
    with recording(context.instance, context.run.run_id):
        for evaluation in (*evaluations, *beside):
            context.log_event(evaluation)  # pyright: ignore[reportArgumentType] (Dagster takes it, its annotation lags behind)
    show_hidden(context.instance, context.run.run_id, evaluations, since=since)


def record_put_back(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    table: "Table",
    restored: Sequence[tuple[str, PublishedPartition]],
) -> None:
    """Tell Dagster what partitions hold that were put back; and of their check that it says nothing of that.

    A failed comparison would be an error, and a schedule would launch the partition again.
    """
    with recording(context.instance, context.run.run_id):
        for key, published in restored:
            as_of = published.receipt.source["version"]
            why = f"Put back as it was in version {as_of}: {published.receipt.run.reason}."
            metadata = partition_metadata(published) | {"restored": dg.MetadataValue.text(why)}
            context.log_event(materialization(table, key, published, metadata, {}))
            context.log_event(
                dg.AssetCheckEvaluation(  # pyright: ignore[reportArgumentType] (Dagster takes it)
                    asset_key=table.asset_key,
                    check_name=RECONCILED,
                    passed=False,
                    severity=dg.AssetCheckSeverity.WARN,
                    partition=key,
                    description=f"{why} It was not compared with its source.",
                    metadata={PUT_BACK: dg.MetadataValue.text(why)},
                    blocking=False,
                )
            )


def show_hidden(
    instance: dg.DagsterInstance, run_id: str, recorded: Iterable[dg.AssetCheckEvaluation], *, since: int
) -> None:
    """Record once more, of a run id that no run has, what a run has recorded and Dagster does not take for the newest.

    It takes the evaluation of the run that was made last, whenever it came: what a run finds that has waited in the
    queue, while one that was made later has looked, would stay unseen; by `only: MISSING` too. The id is a new one each
    time: Dagster's database has one evaluation of a partition by a run, and one of all that are of none. The run that
    found it is in its metadata.

    | what Dagster takes for the newest is  | this one | shown |
    |---------------------------------------|----------|-------|
    | -, and what this one saw is replaced  | -        | no    |
    | from before this run looked           | -        | yes   |
    | from then on                          | failed   | yes   |
    | from then on: it may have seen more   | passed   | no    |
    | that one is planned, and may be never | failed   | yes   |
    | that one is planned                   | passed   | no    |

    Args:
        since: As `newest_event` gave it before anything was read.
    """
    mine = [one for one in recorded if one.partition is not None]
    if not mine:
        return
    checks, keys = list({one.asset_check_key for one in mine}), list({one.partition for one in mine if one.partition})
    infos = instance.event_log_storage.get_asset_check_partition_info(
        checks, partition_keys=keys if len(keys) <= _KEYS_AT_ONCE else None
    )
    others = {(info.check_key, info.partition_key): info for info in infos if info.latest_planned_run_id != run_id}
    hidden = []
    for one in mine:
        other = others.get((one.asset_check_key, one.partition))
        if other is None:
            continue
        is_older = other.latest_execution_status in EVALUATED and other.latest_check_event_storage_id <= since
        if is_older or not one.passed:
            hidden.append(one)
    if not hidden:
        return
    newest = {key: newest_ids(instance, key) for key in {one.asset_key for one in hidden}}
    again = make_new_run_id()
    with recording(instance, again):
        for one in hidden:
            seen = one.target_materialization_data
            if newest[one.asset_key].get(one.partition or "", 0) <= (seen.storage_id if seen else 0):
                instance.report_dagster_event(_event_of(one, run_id), run_id=again)


def _event_of(one: dg.AssetCheckEvaluation, found_by: str) -> dg.DagsterEvent:
    """Return the event of an evaluation that names the run; without metadata it compared nothing, and stays so."""
    if one.metadata:
        one = replace(one, metadata={**one.metadata, "found_by": dg.MetadataValue.dagster_run(found_by)})
    return dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, job_name="", event_specific_data=one
    )
