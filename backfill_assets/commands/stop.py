"""`backfill-assets stop`: end the launches of a table, between two commits."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)

if TYPE_CHECKING:
    from backfill_assets.runs.stop import Stopped


@click.command()
@click.argument("key")
@click.option("--wait", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds, for each run.")
@json_option
@definitions_option
def stop(key: str, *, wait: float, as_json: bool, module: str) -> None:
    """Stop every launch of the table KEY that is under way or waits, as Terminate in Dagster's UI does.

    A launch ends after the save in progress, if there is one, and says what became of its last chunk. What it has
    published stays; `backfill-assets resume KEY` does the rest. A backfill that Dagster has not yet split into runs is
    canceled. Launches of other tables go on; a run or a backfill of several tables ends as a whole. The live stream is
    no launch: end its process instead.

    \b
    Exit code:  0  no launch of the table is under way any more
                1  one is: it takes longer, or runs on another machine, or as another user
    """
    with one_message_for_an_error(), Project.load(module) as project:
        chosen = project.table(key)
        stopped = _stop(chosen, wait)
    if as_json:
        runs = [
            {"run_id": one.launch_id, "ended": one.ended, "seconds": round(one.seconds, 1), "said": one.said}
            for one in stopped
            if not one.is_backfill
        ]
        backfills = [{"backfill_id": one.launch_id, "said": one.said} for one in stopped if one.is_backfill]
        click.echo(json.dumps({"table": key, "runs": runs, "backfills": backfills}, indent=1))
    else:
        console = new_console()
        for one in stopped:
            how = f"ended after {one.seconds:.1f} s" if one.ended else "has not ended"
            named = f"Backfill {one.launch_id}:" if one.is_backfill else f"Run {one.launch_id} {how}."
            console.print(f"{named} {one.said}", highlight=False, markup=False, soft_wrap=True)
        if not stopped:
            console.print(f"No launch of {key} is under way.", highlight=False)
    sys.exit(0 if all(one.ended for one in stopped) else EXIT_DIFFERS)


def _stop(chosen: ProjectTable, wait: float) -> Sequence[Stopped]:
    import dagster as dg

    from backfill_assets.runs.stop import stop_launches

    with dg.DagsterInstance.get() as instance:
        return stop_launches(instance, chosen.table, wait_seconds=wait, project=chosen.lakehouse.project)
