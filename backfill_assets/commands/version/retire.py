"""`backfill-assets version retire`: give up a version that is not current any more."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import now_iso, record, who
from backfill_assets.commands.version.switch import reason_option
from backfill_assets.commands.version.switching import UNCHANGED
from backfill_assets.errors import VersionError

if TYPE_CHECKING:
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.lake.table import LakeTable
    from backfill_assets.runs.table import Table

FILES_ARE_KEPT = timedelta(days=30)
"""As long as what a publish replaces, so that whoever has begun to read a version can end."""


@click.command()
@click.argument("key")
@click.option("--yes", "typed", metavar="KEY", default="", help="The version's key once more; else it is asked for.")
@reason_option
@json_option
@definitions_option
def retire(key: str, *, typed: str, reason: str, as_json: bool, module: str) -> None:
    """Give up the version KEY, which is not current: nothing goes back to it, and its stream is not started again.

    It is refused while its stream is written, or while a table that is not retired reads it. What is left to do by
    hand is said: its spec is removed in a reviewed change, and its files when nobody can be reading them any more.

    \b
    Examples:
      backfill-assets version retire bronze/orders --yes bronze/orders
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        if not typed and sys.stdin.isatty():
            typed = click.prompt("Type the version's key to go on", err=True)
        left = retire_version(project, key, typed=typed, reason=reason, log=console.log)
    if as_json:
        click.echo(json.dumps({"retired": key, "left_to_do": left}, indent=1))
    else:
        for line in (f"{key} is retired.", *left):
            new_console().print(line, highlight=False, markup=False, soft_wrap=True)


def retire_version(project: Project, key: str, *, typed: str, reason: str, log: Callable[[str], None]) -> list[str]:
    """Give a version up; return in words what is left to do by hand.

    Raises:
        VersionError: It is current, read or being launched, has rows that its copies lack, or was not named twice.
            Nothing was changed.
        TableLockedError: Its stream is being written. Nothing was changed.
    """
    from backfill_assets.core.spec.version_sets import followed_by, read_by
    from backfill_assets.core.spec.versions import name_of
    from backfill_assets.core.state.current_versions import Switch
    from backfill_assets.core.state.version_steps import VersionStep
    from backfill_assets.lake.locks import stream_lock

    if typed != key:
        raise VersionError(
            f"`{typed}` is not the version's key, `{key}`." if typed else "The version's key was not typed.",
            state=UNCHANGED,
            remedy=f"`backfill-assets version retire {key} --yes {key}`.",
        )
    chosen = project.table(key)
    current = project.lakehouse.current_table()
    now, name = current.read(), name_of(key)
    if now.key_of(name) == key:
        raise VersionError(
            f"`{key}` is the current version of `{name}`.", state=UNCHANGED, remedy="Cut over to another one first."
        )
    _refuse_readers(key, [one for one in read_by(key, chosen.specs) if not now.is_retired(one)], chosen.specs)
    known = project.lakehouse.version_steps().of(name)
    stays = now.key_of(name)
    paths = {name: project.lakehouse.table_path(stays)}
    switch = Switch(uuid.uuid4().hex, {}, {name: stays}, paths, now_iso(), by=who(), reason=reason, retires=(key,))
    with stream_lock(project.lakehouse.table_path(key)):  # no writer of its stream may run
        _refuse_launches(chosen)
        if not now.is_retired(key):
            lake = chosen.lakehouse.table(chosen.spec, log)
            looked_at = lake.version()
            _refuse_late_rows(chosen, now, log)
            _refuse_what_was_not_copied(chosen, now, log)
            _refuse_launches(chosen)  # one that has begun since may publish until it ends
            _refuse_what_came_since(key, lake, looked_at)
            now = current.switch(switch)
    if not any(step.what == "retired" and step.key == key for step in known):
        saved = switch.switch_id if now.switch_id == switch.switch_id else ""
        step = VersionStep(switch.at, "retired", key, stays, switch.by, reason=reason, switch_id=saved)
        record(project, step, log=log)
    gone = (datetime.now(UTC) + FILES_ARE_KEPT).date()
    path, kept = project.lakehouse.table_path(key), _late_rows_beside(chosen, log)
    followers = followed_by(key, chosen.specs)
    return [
        *(f"Say `retired: true` in `version_of` of `{one}`, which follows it." for one in followers),
        *([f"Copy {kept:,} late rows that are in no partition of it: {path}_late"] if kept else []),
        f"Remove its spec in the same reviewed change: {chosen.table.file or 'where it is built'}",
        f"From {gone} on nobody can be reading it any more: remove the folder {path}, and "
        "those beside it with the same name and `_receipts`, `_late`, `_quarantine`, `_changes`, `_attempts` or "
        "`_operations`.",
    ]


def _refuse_launches(chosen: ProjectTable) -> None:
    """Raise if a launch of a version, or any undo, has not ended: what it publishes from now on, nobody would have."""
    import dagster as dg

    from backfill_assets.assets.undo import UNDO_JOB
    from backfill_assets.runs.killed import NOT_ENDED, report_dead
    from backfill_assets.runs.table_runs import launch_in_progress

    key = chosen.spec.key
    with dg.DagsterInstance.get() as instance:
        list(report_dead(instance))
        run = launch_in_progress(instance, [chosen.table])
        undos = instance.get_runs(dg.RunsFilter(job_name=UNDO_JOB, statuses=NOT_ENDED), limit=1)
    if run:
        raise VersionError(
            f"A launch of `{key}` goes on: run {run}.",
            state=UNCHANGED,
            remedy=f"Wait for it, or `backfill-assets stop {key}`; copy again what it published, and retire it then.",
        )
    if undos:
        raise VersionError(
            f"An undo goes on, which may put something back into `{key}`: run {undos[0].run_id}.",
            state=UNCHANGED,
            remedy="Wait for it; copy again what it put back, and retire it then.",
        )


def _refuse_what_came_since(key: str, lake: LakeTable, looked_at: int) -> None:
    """Raise if a version was published into since its copies were held against it.

    Args:
        looked_at: Its newest commit before that; -1 if there was no table.
    """
    if lake.receipts_after(looked_at) if looked_at >= 0 else lake.exists():
        raise VersionError(
            f"`{key}` was published into while its copies were held against it.",
            state=UNCHANGED,
            remedy="Copy again what was published, and retire it then.",
        )


def _refuse_readers(key: str, readers: Sequence[str], specs: Mapping[str, TableSpec]) -> None:
    """Raise if tables that are not retired read a version."""
    if not readers:
        return
    copies = [one for one in readers if specs[one].source.is_of_version]
    others = [one for one in readers if one not in copies]
    remedy = f"Retire {', '.join(f'`{one}`' for one in others)} first." if others else ""
    if copies:
        named = ", ".join(f"`{one}`" for one in copies)
        remedy += (
            f" When {named} has copied all that there is, say `retired: true` in its `version_of`: what is copied "
            "stays as it is, and is not launched again. Or name another `source`, from which its history is then "
            "launched."
        )
    raise VersionError(
        f"`{key}` is read by {', '.join(f'`{one}`' for one in readers)}.",
        state=UNCHANGED,
        remedy=remedy.strip(),
        tables=readers,
    )


def _refuse_late_rows(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None]) -> None:
    """Raise if a version that was copied has late rows which it does not hold yet: whoever copied it lacks them too."""
    key = chosen.spec.key
    if not _copies(chosen, now):
        return
    lake = chosen.lakehouse.table(chosen.spec, log)
    if unfolded := _unfolded(lake):
        first, last = min(unfolded), max(unfolded)
        raise VersionError(
            f"{sum(unfolded.values()):,} late rows of `{key}` are in no partition of it yet (`{first}` to `{last}`); "
            "whoever copied it has not got them.",
            state=UNCHANGED,
            remedy=f"Launch `{first}...{last}` of it, and copy again, before `retired: true` is said; then retire it. "
            f"If nobody is to have them, remove `{lake.late_table.path}` first.",
            partitions=sorted(unfolded),
        )


def _unfolded(lake: LakeTable) -> dict[str, int]:
    """Return how many late rows are in no partition of a version yet, by partition key."""
    from backfill_assets.live.fence_queries import waiting

    fence = lake.fence()
    late = lake.late(lake.spec.grid.until(fence.at_utc)).rows if fence else {}
    return waiting(lake.spec, late, lake.published())


def _copies(chosen: ProjectTable, now: CurrentVersions) -> list[TableSpec]:
    """Return the versions that were copied from one, whether or not they say that they read it no more."""
    copies = (one for one in chosen.specs.values() if one.source.is_of_version and not now.is_retired(one.key))
    return [one for one in copies if any(source.table == chosen.spec.key for source in one.source.inputs)]


def _refuse_what_was_not_copied(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None]) -> None:
    """Raise if a copy is not what a version has: by a launch or an undo there since, or by a hand on the copy itself.

    Whatever lacks is nowhere else: from a version that is retired nothing is copied again.
    """
    import dagster as dg

    from backfill_assets.core.state.partition_status import State
    from backfill_assets.runs.table_status import look_at_table

    if not chosen.lakehouse.table(chosen.spec, log).exists():
        return
    is_whole = {State.PUBLISHED, State.STALE_CODE, State.STALE_LATE_ROWS}  # late rows of the copy are its own
    with dg.DagsterInstance.get() as instance:
        for copy in _copies(chosen, now):
            reads = copy.version_of and copy.version_of.model_copy(update={"retired": False})
            table = replace(chosen.project.table(copy.key).table, spec=copy.model_copy(update={"version_of": reads}))
            seen = look_at_table(instance, table, chosen.specs, chosen.lakehouse, log)
            _refuse_what_waits(chosen, table, log)  # nothing waited before either: no writer of its stream runs
            lacking = [status.partition.key for status in seen.complete if not is_whole.issuperset(status.states)]
            if lacking:
                raise VersionError(
                    f"`{copy.key}` is copied from `{chosen.spec.key}`, and {len(lacking):,} of its partitions, "
                    f"`{lacking[0]}` to `{lacking[-1]}`, are not as that has them now.",
                    state=UNCHANGED,
                    remedy=f"Take `retired: true` out of `version_of` of `{copy.key}`, `backfill-assets version copy "
                    f"{copy.key}`, say it again, and retire `{chosen.spec.key}` then.",
                    partitions=lacking,
                )


def _refuse_what_waits(chosen: ProjectTable, copy: Table, log: Callable[[str], None]) -> None:
    """Raise if something has landed for a version's stream that is in no table yet, nor comes into its copy's.

    A copy with a stream of its own needs what landed until that begins; any other one needs all.
    """
    _refuse_changes_that_wait(chosen, copy, log)
    from backfill_assets.sources.version import VersionSource

    source = chosen.lakehouse.source(copy.spec, chosen.specs, None, log)
    if chosen.spec.live is None or not isinstance(source, VersionSource):
        return
    fence, now = chosen.lakehouse.table(copy.spec, log).fence(), datetime.now(UTC)
    if source.landed_until() < (fence.at_utc if fence else now):
        until = f"until {fence.at_utc.isoformat()}, where the stream of `{copy.spec.key}` begins" if fence else "by now"
        raise VersionError(
            f"Not all that landed for the stream of `{chosen.spec.key}` {until} is written, and `{copy.spec.key}` has "
            "it from nowhere else.",
            state=UNCHANGED,
            remedy=f"`backfill-assets live {chosen.spec.key} --once`, then `backfill-assets version copy "
            f"{copy.spec.key}`, and retire it then.",
        )


def _refuse_changes_that_wait(chosen: ProjectTable, copy: Table, log: Callable[[str], None]) -> None:
    """Raise if changes have landed that are to be folded into a version yet."""
    from backfill_assets.live.changes.lacking import had_by
    from backfill_assets.live.changes.source import ChangedSource

    source = chosen.lakehouse.source(chosen.spec, chosen.specs, None, log)
    if not isinstance(source, ChangedSource) or (reach := source.reader.reach()) is None:
        return
    if behind := sorted(source.keys_behind(had_by(source, source.lake.published(), reach), reach)):
        raise VersionError(
            f"Changes have landed that are not in {len(behind):,} partitions of `{chosen.spec.key}` yet, "
            f"`{behind[0]}` to `{behind[-1]}`, and `{copy.spec.key}` has them from nowhere else.",
            state=UNCHANGED,
            remedy=f"`backfill-assets live {chosen.spec.key} --once`, a launch of what that leaves out, then "
            f"`backfill-assets version copy {copy.spec.key}`, and retire it then; if changes come all the time, with "
            "the capture stopped meanwhile.",
            partitions=behind,
        )


def _late_rows_beside(chosen: ProjectTable, log: Callable[[str], None]) -> int:
    """Return how many late rows are kept beside a version's table, and folded into none of its partitions."""
    from backfill_assets.lake.delta_log import open_table

    live, lake = chosen.spec.live, chosen.lakehouse.table(chosen.spec, log)
    if live is None or live.late == "ignore":
        return 0
    if live.late == "fold":  # one that was copied has none by now
        return sum(_unfolded(lake).values())
    rows = open_table(chosen.lakehouse.spark, lake.late_table.path)
    return rows.count() if rows is not None else 0
