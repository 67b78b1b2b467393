"""The job that takes a launch back, for Dagster's UI and for `backfill-assets undo`."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from backfill_assets.assets.factory import tables_of
from backfill_assets.core.history.undo_plan import Undo, UndoAction
from backfill_assets.core.state.receipts import Run
from backfill_assets.errors import BackfillAssetsError
from backfill_assets.runs.killed import tag_with_process
from backfill_assets.runs.recording import failures_for_dagster
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.stopping import result_in_thread
from backfill_assets.runs.table import Table
from backfill_assets.runs.undoing import TableUndo, look, take_back, what_was_done

UNDO_JOB = "undo"
UNDO_OP = "undo_launch"
REPORT = "report"
"""Metadata of the job's output, or of its failure: what was done, as JSON."""

ENDED = "ended"
"""Metadata of its failure by an error: what failed, the state, and what to do."""

MAX_NAMED = 5


class UndoConfig(dg.Config):
    """What is set for one run of the job, in the launchpad or with `--config`."""

    launch: str = Field(description="Id of the run, the backfill or the plan whose partitions are put back.")
    tables: list[str] = Field(default=[], description="Keys of the tables to look at; all if none is named.")
    reason: str = Field(default="", description="Why; it is kept in every commit's receipt.")
    discard_later: bool = Field(
        default=False,
        description="Whether partitions are put back, too, that somebody has written since. Otherwise they are kept.",
    )
    dry_run: bool = Field(default=False, description="Only look, and say what would be done.")


def undo_definitions(definitions: dg.Definitions, lakehouse: Lakehouse) -> dg.Definitions:
    """Return the job that takes launches of these tables back."""
    tables, _ = tables_of(definitions)

    @dg.op(
        name=UNDO_OP,
        description="Gives every partition that a launch wrote what it held before, unless somebody has written it "
        "since. The undo is a launch of its own kind: its run can be taken back in the same way.",
        out=dg.Out(dg.Nothing),  # nothing is stored; what was done is its metadata
    )
    def undo_launch(context: dg.OpExecutionContext, config: UndoConfig, lakehouse: Lakehouse) -> dg.Output[None]:
        tag_with_process(context.instance, context.run.run_id, lakehouse.project)
        with failures_for_dagster(UNDO_JOB):
            return _undo(context, tables, lakehouse, config)

    @dg.job(name=lakehouse.own_name(UNDO_JOB), description="Takes a launch back, partition by partition.")
    def undo_job() -> None:
        undo_launch()

    return dg.Definitions(jobs=[undo_job]) if tables else dg.Definitions()


def asked_of(config: UndoConfig) -> Undo:
    """Return what a config asks for."""
    return Undo(config.launch, lambda _: False, run=Run(reason=config.reason), discard_later=config.discard_later)


def _undo(
    context: dg.OpExecutionContext, tables: Mapping[str, Table], lakehouse: Lakehouse, config: UndoConfig
) -> dg.Output[None]:
    log = context.log.info
    if unknown := sorted(set(config.tables) - tables.keys()):
        raise dg.Failure(f"There is no table `{unknown[0]}`. There are: {', '.join(sorted(tables))}.")
    found, done = list[TableUndo](), list[TableUndo]()
    try:
        found = look(context.instance, tables, lakehouse, asked_of(config), only=config.tables, log=log)
        for of_table in found:
            done.append(
                of_table
                if config.dry_run
                else result_in_thread(partial(take_back, context, of_table), lakehouse, context.log.warning)
            )
    except (Exception, dg.DagsterExecutionInterruptedError) as error:
        rest = [what_was_done(of_table, context.run.run_id) for of_table in found[len(done) :]]
        raise _ended(error, [*done, *rest]) from error
    kept = [(of_table, one) for of_table in done for one in of_table.plan.of(UndoAction.KEPT)]
    for of_table, one in kept[:MAX_NAMED]:
        context.log.error(f"Kept `{one.key}` of `{of_table.table.spec.key}`: {one.why}.")
    if kept and not config.dry_run:
        raise dg.Failure(_kept(done), metadata=_report(done), allow_retries=False)
    return dg.Output(None, metadata=_report(done))


def _report(done: Sequence[TableUndo]) -> dict[str, Any]:
    return {REPORT: dg.MetadataValue.json([of_table.as_fields() for of_table in done])}


def _ended(error: BaseException, done: Sequence[TableUndo]) -> dg.Failure:
    """Return what a run fails with that an error has ended, with what it had done by then."""
    if isinstance(error, BackfillAssetsError):
        words = {"what": error.what, "state": error.state, "remedy": error.remedy}
    elif isinstance(error, dg.DagsterExecutionInterruptedError):
        remedy = "Undo it again: what is back already is left as it is."
        words = {"what": "It was stopped.", "state": "What was put back before stays.", "remedy": remedy}
    else:
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        words = {"what": what, "state": "What was put back before stays.", "remedy": "Look at the run's log."}
    metadata = {**_report(done), ENDED: dg.MetadataValue.json(words)}
    return dg.Failure(" ".join(words.values()), metadata=metadata, allow_retries=False)


def _kept(done: Sequence[TableUndo]) -> str:
    kept = [one for of_table in done for one in of_table.plan.of(UndoAction.KEPT)]
    restored = sum(len(of_table.plan.of(UndoAction.RESTORED)) for of_table in done)
    return (
        f"{len(kept):,} partitions were kept as they are (first `{kept[0].key}`: {kept[0].why}); {restored:,} were put "
        "back. `discard_later: true` puts those back, too, that somebody has written since."
    )
