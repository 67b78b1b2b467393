"""A launch taken back in one run of Dagster: looked at in every table, then put back and recorded, table by table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.undo import Restored, carry_out
from backfill_assets.core.history.undo_plan import Undo, UndoAction, Undoing, UndoPlan, of_launch, plan_undo
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.words import SHORT_ID
from backfill_assets.errors import NOTHING_WRITTEN, UndoError
from backfill_assets.runs import killed, unrecorded
from backfill_assets.runs.attempts import fill_copy
from backfill_assets.runs.recorded_evaluations import record_put_back
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.run_tags import BACKFILL, PLAN, run_of
from backfill_assets.runs.table import Table
from backfill_assets.runs.table_runs import BACKFILL_NOT_ENDED

if TYPE_CHECKING:
    from backfill_assets.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class TableUndo:
    """What taking a launch back does, or did, with one table.

    Args:
        versions: That were made.
    """

    table: Table
    delta: LakeTable
    undo: Undo
    plan: UndoPlan
    versions: tuple[int, ...] = ()

    def as_fields(self) -> dict[str, Any]:
        """Return what JSON has of it."""
        return {
            "table": self.table.spec.key,
            "versions": list(self.versions),
            "partitions": [_fields_of(one) for one in self.plan.partitions],
        }


def look(
    instance: dg.DagsterInstance,
    tables: Mapping[str, Table],
    lakehouse: Lakehouse,
    undo: Undo,
    *,
    only: Collection[str] = (),
    log: Callable[[str], None],
) -> list[TableUndo]:
    """Say what taking a launch back does with every table that it wrote, those written last first.

    No table is written; of runs that were killed Dagster is told.

    Args:
        tables: All of the project, by key.
        undo: Which receipts are of the launch is found out here, by its name and its runs.
        only: Keys of the tables that are looked at; all if none is named.

    Raises:
        UndoError: The launch is not known, or it goes on, or what it replaced cannot be read any more; or it has
            written a table that the project has no more, that was retired, or whose history is excluded.
        SchemaMismatchError: A table differs from its spec.
    """
    from backfill_assets.lake.earlier import readable

    list(killed.report_dead(instance))
    looked_at = {key: table for key, table in sorted(tables.items()) if not only or key in only}
    undo = replace(undo, name=_whole_id(undo.name, looked_at, lakehouse, log))
    runs = instance.get_runs(dg.RunsFilter(tags={BACKFILL: undo.name})) if undo.name else []
    ids = [run.run_id for run in runs]
    undo = replace(undo, is_of=of_launch(undo.name, ids))
    _refuse_unfinished(instance, undo.name, ids)
    if not only:
        _refuse_undefined(instance, tables, lakehouse, undo.name, runs)
    now, found = lakehouse.current_table().read(), list[TableUndo]()
    for key, table in looked_at.items():
        delta = lakehouse.table(table.spec, log)
        with readable(table.spec, "the time of that launch"):
            receipts = delta.receipts_after(-1).values()
            if not any(undo.is_of(receipt) and receipt.partitions for receipt in receipts):
                continue
            if now.is_retired(key):
                raise _left_behind(undo.name, key, "is a version that was retired: nothing is written into it any more")
            _refuse_followed(undo.name, table)
            delta.refuse_another_schema()
            found.append(TableUndo(table, delta, undo, plan_undo(table.spec, delta, undo)))
    if not found:
        raise UndoError(
            f"No table has a receipt of a launch `{undo.name}`.",
            state=NOTHING_WRITTEN,
            remedy="Name the id of a run, of a backfill or of a plan, or at least its first 8 letters; "
            "`backfill-assets history KEY` lists them.",
        )
    return sorted(found, key=lambda one: max(p.launched.receipt.made_at for p in one.plan.partitions), reverse=True)


_WHOLE_ID = 36
"""Letters of a run's id."""


def _whole_id(name: str, tables: Mapping[str, Table], lakehouse: Lakehouse, log: Callable[[str], None]) -> str:
    """Return the id that begins with a name, of the runs and plans that receipts name; the name itself if none does.

    Raises:
        UndoError: Several do.
    """
    if not SHORT_ID <= len(name) < _WHOLE_ID:
        return name
    from backfill_assets.lake.earlier import readable

    found: set[str] = set()
    for table in tables.values():
        with readable(table.spec, "which launches wrote it"):
            receipts = lakehouse.table(table.spec, log).receipts_after(-1).values()
        for receipt in receipts:
            found |= {one for one in (receipt.run.id, receipt.run.root_id, receipt.run.plan) if one.startswith(name)}
    if name in found or not found:
        return name
    if len(found) > 1:
        raise UndoError(
            f"{len(found):,} launches begin with `{name}`: {', '.join(f'`{one}`' for one in sorted(found)[:5])}.",
            state=NOTHING_WRITTEN,
            remedy="Name the whole id.",
        )
    return found.pop()


def take_back(context: dg.OpExecutionContext, looked_at: TableUndo) -> TableUndo:
    """Put back what was looked at in one table, and record it; return what was done.

    Raises:
        PublishError: A commit could not be made; what was put back before is recorded.
    """
    from backfill_assets.spark.failures import translated

    table, delta, plan = looked_at.table, looked_at.delta, looked_at.plan
    run, kept, versions = context.run, dict[str, Undoing](), list[int]()
    undo = replace(looked_at.undo, run=run_of(run, reason=looked_at.undo.run.reason))
    before = [(one.key, one.newest) for one in plan.of(UndoAction.DONE) if one.newest.receipt.kind == "put_back"]
    record_put_back(context, table, unrecorded.untold(context.instance, table, before))
    with translated(table.spec.key):
        for one in carry_out(table.spec, delta, undo, plan, Effects(log=context.log.info)):
            if isinstance(one, Undoing):
                kept[one.key] = one
                continue
            versions.append(one.version)
            record_put_back(context, table, list(_published(one)))
            context.log.info(
                f"`{table.spec.key}`: version {one.version} has put {len(one.partitions):,} partitions back "
                f"as they were in version {one.partitions[0].before}."
            )
    if versions:
        fill_copy(delta, context.log.warning)
    partitions = tuple(kept.get(one.key, one) for one in plan.partitions)
    return replace(looked_at, undo=undo, plan=UndoPlan(plan.version, partitions), versions=tuple(versions))


def what_was_done(of_table: TableUndo, run_id: str) -> TableUndo:
    """Return what an undo did with a table that ended there, or before it: by the receipts of its run."""
    receipts = of_table.delta.receipts_after(max(0, of_table.plan.version))
    mine = {version: receipt for version, receipt in receipts.items() if receipt.run.id == run_id}
    restored = {key for receipt in mine.values() for key in receipt.partitions}
    partitions = tuple(
        replace(one, action=UndoAction.KEPT, why="the undo ended before it was put back")
        if one.action is UndoAction.RESTORED and one.key not in restored
        else one
        for one in of_table.plan.partitions
    )
    plan = UndoPlan(of_table.plan.version, partitions)
    return replace(of_table, plan=plan, versions=tuple(sorted(mine)))


def _published(one: Restored) -> Iterator[tuple[str, PublishedPartition]]:
    for key, partition in one.receipt.partitions.items():
        yield key, PublishedPartition(one.version, one.receipt, partition)


def _refuse_unfinished(instance: dg.DagsterInstance, name: str, run_ids: Sequence[str]) -> None:
    """Refuse to take back what goes on: a run of the launch, one that executes it again, or one of its backfill."""
    ids = {name, *run_ids}
    if (backfill := instance.get_backfill(name)) and backfill.status in BACKFILL_NOT_ENDED:
        raise UndoError(
            f"Backfill `{name}` goes on, and may ask for its next run at any time.",
            state=NOTHING_WRITTEN,
            remedy="Cancel it, or wait until it has ended; then take it back.",
        )
    for run in instance.get_runs(dg.RunsFilter(statuses=killed.NOT_ENDED)):
        of_it = {run.run_id, run.root_run_id, run.tags.get(BACKFILL), run.tags.get(PLAN)}
        if of_it & ids:
            raise UndoError(
                f"Launch `{name}` goes on: its run {run.run_id} has not ended.",
                state=NOTHING_WRITTEN,
                remedy="Terminate that run, or wait until it has ended; then take it back.",
            )


def _refuse_undefined(
    instance: dg.DagsterInstance,
    tables: Mapping[str, Table],
    lakehouse: Lakehouse,
    launch: str,
    runs: Sequence[dg.DagsterRun],
) -> None:
    """Refuse to take back in part, and without a word, what wrote a table of which the project has no definition.

    Args:
        runs: Of the launch, if it is a backfill.
    """
    from backfill_assets.table.readers import log_of

    named = [dg.RunsFilter(run_ids=[launch]), dg.RunsFilter(tags={PLAN: launch})]
    all_runs = [*runs, *(run for of in named for run in instance.get_runs(of))]
    wrote = {key for run in all_runs for key in _assets_of(instance, run)}
    others = wrote - {table.asset_key for table in tables.values()}
    for key in sorted("/".join(other.path) for other in others):
        if log_of(lakehouse.session, lakehouse.table_path(key)).exists():
            raise _left_behind(launch, key, "has no definition in this project any more")


def _assets_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Collection[dg.AssetKey]:
    """Return the assets that a run was to materialize; of one of a job that somebody has defined, as Dagster noted."""
    if run.asset_selection is not None:
        return run.asset_selection
    planned = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    return {key for entry in planned if (key := entry.get_dagster_event().asset_key)}


def _refuse_followed(launch: str, table: Table) -> None:
    """Refuse to put back what the next refresh would make again, since it is all that the table may have."""
    if table.spec.changes and table.spec.changes.backfill == "excluded":
        raise UndoError(
            f"Launch `{launch}` is of `{table.spec.key}` too, which says `backfill: excluded`: what its feed has "
            "brought would be folded in again.",
            state=NOTHING_WRITTEN,
            remedy="Correct the rows in the database; or change `changes.backfill` in the spec first, and what is put "
            "back stays until it is launched. With `--table`, the other tables of the launch are put back.",
        )


def _left_behind(launch: str, key: str, why: str) -> UndoError:
    return UndoError(
        f"Launch `{launch}` is of `{key}` too, which {why}.",
        state=NOTHING_WRITTEN,
        remedy="Name the tables that are to be put back, with `--table`; the others keep what the launch has written.",
    )


def _fields_of(one: Undoing) -> dict[str, Any]:
    return {
        "partition": one.key,
        "action": one.action.value,
        "why": one.why,
        "as_of_version": one.before if one.action is UndoAction.RESTORED else None,
        "rows_launched": one.launched.partition.rows,
        "rows_then": one.then.rows if one.then is not None else None,
    }
