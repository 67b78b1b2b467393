"""`backfill-assets version make` and `copy`: the new versions, empty; then their history, by ordinary launches."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.range_launch import RangeRun, launch_range
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.commands.version.chosen import ChosenVersion, choose, now_iso, record, who
from backfill_assets.commands.version.waiting import waiting_for

if TYPE_CHECKING:
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.state.fence import Fence
    from backfill_assets.core.state.version_steps import VersionStep


@click.command()
@click.argument("key")
@click.option(
    "--margin-minutes",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="So long before its stream begins a new version must be made, so that the stream can be started in time.",
)
@click.option("--reason", default="", help="Kept in the log of versions.")
@json_option
@definitions_option
def make(key: str, *, margin_minutes: float, reason: str, as_json: bool, module: str) -> None:
    """Make the new version KEY, and those of every table made of it: empty, each with a fence of its own.

    A stream of its own begins at `live.starts`, which must lie ahead: it is refused if that has passed, or passes in
    the next minutes. What was made already is left as it is.

    \b
    Examples:
      backfill-assets version make bronze/orders__v2
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        made = make_versions(chosen, margin=timedelta(minutes=margin_minutes), reason=reason, log=console.log)
    if as_json:
        click.echo(json.dumps({"version": chosen.key, "made": made}, indent=1))
        return
    for one, fence in made.items():
        said = "is made" if fence == "" else f"is made; its stream owns what happens from {fence} on"
        new_console().print(f"{one} {said}.", highlight=False)
    if not made:
        new_console().print(f"{chosen.key} was made before; nothing was changed.", highlight=False)


def make_versions(
    chosen: ChosenVersion, *, margin: timedelta, reason: str, log: Callable[[str], None]
) -> dict[str, str]:
    """Make the new versions that are not there; return by key where the stream of each begins, empty without one.

    A version that a killed command has made, and could not note, is noted.

    Raises:
        FenceError: A stream would begin too soon, or has begun. No version was made after that.
    """
    from backfill_assets.core.state.fence import first_fence, refuse_past_boundary
    from backfill_assets.core.state.version_steps import VersionStep
    from backfill_assets.lake.definition import utc_now

    lakes = [chosen.lake(pair.new, log) for pair in chosen.pairs]
    missing = [lake for lake in lakes if not lake.exists()]
    fences: dict[str, Fence | None] = {lake.spec.key: first_fence(lake.spec) for lake in missing}
    for lake in missing:
        fence = fences[lake.spec.key]
        if fence is not None:
            refuse_past_boundary(lake.spec, fence, utc_now() + margin)
    steps = {step.key for name in {pair.name for pair in chosen.pairs} for step in _made(chosen.project, name)}
    unrecorded = [lake.spec for lake in lakes if lake.spec.key not in steps]
    began = [VersionStep(now_iso(), "making", lake.spec.key, by=who(), reason=reason) for lake in missing]
    if began:  # before anything is there, so that whatever is killed next leaves a trace of who did it
        record(chosen.project, *began, log=log)
    for lake in missing:
        lake.create()
    made = [
        VersionStep(now_iso(), "made", spec.key, by=who(), reason=reason, detail=_stream_of(first_fence(spec)))
        for spec in unrecorded
    ]
    if made:
        record(chosen.project, *made, log=log)
    return {key: fence.at_utc.isoformat() if fence else "" for key, fence in fences.items()}


def _made(project: Project, name: str) -> list[VersionStep]:
    return [step for step in project.lakehouse.version_steps(name) if step.what == "made"]


def _stream_of(fence: Fence | None) -> str:
    return f"its stream begins at {fence.at_utc.isoformat()}" if fence else "without a stream of its own"


@click.command()
@click.argument("key")
@click.option("--follow", is_flag=True, help="Copy again whatever the version before changes, until Ctrl-C.")
@click.option("--wait", is_flag=True, help="Go on until all history before the boundary of its stream is copied.")
@click.option(
    "--every", type=click.FloatRange(min=1), default=10.0, show_default=True, help="Seconds, with --follow and --wait."
)
@click.option(
    "--reason", default="history missing: new version", show_default=True, help="Kept in every commit's receipt."
)
@json_option
@definitions_option
def copy(key: str, *, follow: bool, wait: bool, every: float, reason: str, as_json: bool, module: str) -> None:
    """Launch what the new version KEY, and those of every table made of it, lack before their fences.

    These are ordinary launches of partitions, `only: MISSING`: what is published as its source would make it now is
    neither read nor written again, so the command may be killed and repeated. What is not complete at the source is
    left for later: of a version with a stream of its own the partitions before its boundary are, until that has passed
    and the old stream has drained to it.

    \b
    Exit code:  0  all of its history is published
                1  a launch has failed, or was refused a partition; or history before the boundary still waits, or
                   there is nothing to copy, since the version before was never made

    \b
    Examples:
      backfill-assets version copy bronze/orders__v2
      backfill-assets version copy bronze/orders__v2 --wait
      backfill-assets version copy bronze/orders__v2 --follow
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = choose(project, key)
        done: list[Copied] = []
        while True:
            done += copy_versions(chosen, reason=reason, log=console.log)
            waiting = waiting_for(chosen, console.log)
            if any(one.run.failure for one in done) or not (follow or (wait and waiting)):
                break
            for one in waiting:
                console.log(str(one))
            time.sleep(every)
    if as_json:
        runs = [{"table": one.key, **one.run.fields()} for one in done]
        told = [{"table": one.key, "partitions": one.partitions, "waits_for": str(one)} for one in waiting]
        click.echo(json.dumps({"version": chosen.key, "runs": runs, "waiting": told}, indent=1))
    else:
        said = [f"{one.key} {one.run}" for one in done] + [str(one) for one in waiting]
        for line in said or [f"{chosen.key} lacks nothing that is complete at its source."]:
            new_console().print(line, highlight=False, soft_wrap=True)
    sys.exit(EXIT_DIFFERS if waiting or any(one.run.failure for one in done) else 0)


@dataclass(frozen=True, slots=True)
class Copied:
    """One launch of a new version."""

    key: str
    run: RangeRun


def copy_versions(chosen: ChosenVersion, *, reason: str, log: Callable[[str], None]) -> list[Copied]:
    """Launch what new versions lack, one table after the other; what comes after a failure is not begun."""
    from backfill_assets.core.state.version_steps import VersionStep

    done: list[Copied] = []
    for pair in chosen.pairs:
        lacking = lacks(chosen.project, pair.new, log)
        if not lacking:
            continue
        first, last = lacking[0].key, lacking[-1].key
        log(f"{pair.new}: {len(lacking):,} partitions, {first}...{last}")
        began = VersionStep(
            now_iso(), "copying", pair.new, pair.before, who(), reason=reason, detail=f"{first}...{last}"
        )
        record(chosen.project, began, log=log)  # before anything is written: a kill leaves who did it
        config: dict[str, Any] = {"reason": reason, "only": "MISSING", "may_find_nothing": True}
        run = launch_range(chosen.table(pair.new), first, last, config)
        done.append(Copied(pair.new, run))
        lake = chosen.lake(pair.new, log)
        published = lake.published()
        step = VersionStep(
            now_iso(),
            "copied",
            pair.new,
            pair.before,
            who(),
            reason=reason,
            versions={pair.new: lake.version()},
            rows=sum(published[p.key].partition.rows for p in lacking if p.key in published),
            detail=f"{first}...{last}: {run.failure}" if run.failure else f"{first}...{last}, run {run.run_id}",
        )
        record(chosen.project, step, log=log)
        if run.failure:
            break
    return done


def lacks(project: Project, key: str, log: Callable[[str], None]) -> list[Partition]:
    """Return the partitions of a table that are complete at its source and not published as that would make them."""
    import dagster as dg

    from backfill_assets.core.state.partition_status import State
    from backfill_assets.runs.table_status import look_at_table

    table, lakehouse = project.table(key), project.lakehouse  # before the instance: its context would outlive that
    with dg.DagsterInstance.get() as instance:
        found = look_at_table(instance, table.table, table.specs, lakehouse, log)
    return [status.partition for status in found.complete if status.state is not State.PUBLISHED]
