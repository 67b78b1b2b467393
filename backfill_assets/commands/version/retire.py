"""`backfill-assets version retire`: give up a version that is not current any more."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.commands.version.chosen import now_iso, record, who
from backfill_assets.commands.version.not_copied import (
    given_up,
    refuse_a_copy_that_goes_on,
    refuse_late_rows,
    refuse_what_was_not_copied,
    still_to_begin,
    unfolded,
)
from backfill_assets.commands.version.switch import reason_option
from backfill_assets.commands.version.switching import UNCHANGED
from backfill_assets.errors import VersionError

if TYPE_CHECKING:
    from backfill_assets.core.spec.table import TableSpec
    from backfill_assets.core.state.current_versions import CurrentVersions
    from backfill_assets.lake.table import LakeTable

FILES_ARE_KEPT = timedelta(days=30)
"""As long as what a publish replaces, so that whoever has begun to read a version can end."""


@click.command()
@click.argument("key")
@click.option("--yes", "typed", metavar="KEY", default="", help="The version's key once more; else it is asked for.")
@click.option(
    "--except",
    "exception",
    metavar="REASON",
    default="",
    help="Retire it although partitions lack changes, or were never launched, for this reason; both are kept.",
)
@reason_option
@json_option
@definitions_option
def retire(key: str, *, typed: str, exception: str, reason: str, as_json: bool, module: str) -> None:
    """Give up the version KEY, which is not current: nothing goes back to it, and its stream is not started again.

    It is refused while its stream is written, or while a table that is not retired reads it. What is left to do by
    hand is said: its spec is removed in a reviewed change, and its files when nobody can be reading them any more.

    \b
    Examples:
      backfill-assets version retire bronze/orders --yes bronze/orders
      backfill-assets version retire bronze/orders --yes bronze/orders --except "its database is gone"
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        if not typed and sys.stdin.isatty():
            typed = click.prompt("Type the version's key to go on", err=True)
        left = retire_version(project, key, typed=typed, exception=exception, reason=reason, log=console.log)
    if as_json:
        click.echo(json.dumps({"retired": key, "left_to_do": left}, indent=1))
    else:
        for line in (f"{key} is retired.", *left):
            new_console().print(line, highlight=False, markup=False, soft_wrap=True)


def retire_version(
    project: Project, key: str, *, typed: str, exception: str, reason: str, log: Callable[[str], None]
) -> list[str]:
    """Give a version up; return in words what is left to do by hand.

    Args:
        exception: Why what it lacks, and so do its copies, may be given up with it; empty if it may not.

    Raises:
        VersionError: It is current, read or being launched, has rows that its copies lack, or was not named twice.
            Nothing was changed.
        TableLockedError: Its stream is being written. Nothing was changed.
    """
    from backfill_assets.core.spec.version_sets import read_by
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
    known = project.lakehouse.version_steps(name)
    stays = now.key_of(name)
    paths = {name: project.lakehouse.table_path(stays)}
    reason, lacks = "; ".join(filter(None, [exception, reason])), ""
    is_noted = any(step.what == "retired" and step.key == key for step in known)
    switch = Switch(uuid.uuid4().hex, {}, {name: stays}, paths, now_iso(), by=who(), reason=reason, retires=(key,))
    with stream_lock(project.lakehouse.table_path(key)):  # no writer of its stream may run
        _refuse_launches(chosen)
        if not now.is_retired(key):
            lake = chosen.lakehouse.table(chosen.spec, log)
            looked_at = lake.version()
            refuse_a_copy_that_goes_on(chosen, now)
            refuse_late_rows(chosen, now, log)
            lacks = given_up(chosen, now, log, is_allowed=bool(exception))
            refuse_what_was_not_copied(chosen, now, log)
            _refuse_launches(chosen)  # one that has begun since may publish until it ends
            _refuse_what_came_since(key, lake, looked_at)
            now = current.switch(switch)
        elif not is_noted:  # whoever retired it was killed before the log said so
            lacks = given_up(chosen, now, log, is_allowed=True)
    if lacks:
        log(f"Given up: {lacks}.")
    if not is_noted:
        saved = switch.switch_id if now.switch_id == switch.switch_id else ""
        step = VersionStep(switch.at, "retired", key, stays, switch.by, reason=reason, switch_id=saved, detail=lacks)
        record(project, step, log=log)
    return _left_to_do(chosen, now, log)


def _left_to_do(chosen: ProjectTable, now: CurrentVersions, log: Callable[[str], None]) -> list[str]:
    """Return in words what is left to do by hand when a version is retired."""
    from backfill_assets.core.spec.version_sets import followed_by

    key, path = chosen.spec.key, chosen.project.lakehouse.table_path(chosen.spec.key)
    gone = (datetime.now(UTC) + FILES_ARE_KEPT).date()
    ahead = still_to_begin(chosen, now, log)
    kept = _late_rows_beside(chosen, log)
    followers = followed_by(key, chosen.specs)
    return [
        *(f"Say `retired: true` in `version_of` of `{one}`, which follows it." for one in followers),
        *(
            [f"Rows have landed of time to come, `{ahead[0]}` to `{ahead[-1]}`: no copy will have them."]
            if ahead
            else []
        ),
        *([f"Copy {kept:,} late rows that are in no partition of it: {path}_late"] if kept else []),
        f"Remove its spec in the same reviewed change: {chosen.table.file or 'where it is built'}",
        f"From {gone} on nobody can be reading it any more: remove the folder {path}, and "
        "those beside it with the same name and `_history`, `_late`, `_quarantine` or `_changes`.",
    ]


def _refuse_launches(chosen: ProjectTable) -> None:
    """Raise if a launch of a version, or any undo, has not ended: what it publishes from now on, nobody would have."""
    import dagster as dg

    from backfill_assets.assets.undo import UNDO_JOB
    from backfill_assets.runs.killed import NOT_ENDED, report_dead
    from backfill_assets.runs.table_runs import under_way

    key = chosen.spec.key
    with dg.DagsterInstance.get() as instance:
        list(report_dead(instance))
        launch = str(under_way(instance, [chosen.table], project=chosen.lakehouse.project))
        undo_job = chosen.lakehouse.own_name(UNDO_JOB)
        undos = instance.get_runs(dg.RunsFilter(job_name=undo_job, statuses=NOT_ENDED), limit=1)
    if launch:
        raise VersionError(
            f"A launch of `{key}` goes on: {launch}.",
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


def _late_rows_beside(chosen: ProjectTable, log: Callable[[str], None]) -> int:
    """Return how many late rows are kept beside a version's table, and folded into none of its partitions."""
    from backfill_assets.table.readers import open_table

    live, lake = chosen.spec.live, chosen.lakehouse.table(chosen.spec, log)
    if live is None or live.late == "ignore":
        return 0
    if live.late == "fold":  # one that was copied has none by now
        return sum(unfolded(lake).values())
    rows = open_table(chosen.lakehouse.session, lake.late_table.path)
    return rows.count() if rows is not None else 0
