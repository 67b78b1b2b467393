"""`backfill-assets resume`: do what the newest launch of a table has left."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import click

from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.range_launch import launch_range
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError


@click.command()
@click.argument("key")
@json_option
@definitions_option
def resume(key: str, *, as_json: bool, module: str) -> None:
    """Do what the newest launch of the table KEY has left, if it was stopped, failed, or was killed.

    The same range is launched again with the same configuration, as Dagster's own re-execution of that run: what the
    launch has published, and what its source would still make the same, is neither read nor written again. Of a
    backfill over pieces of a range, which is a run for each piece, that is the newest run: `backfill-assets gaps`
    names what the others have left.

    \b
    Exit code:  0  nothing is left of it that a launch could do
                1  the launch has failed: a partition was refused, or its source is not complete, or it is live
                2  the newest launch cannot be resumed
    """
    with one_message_for_an_error(), Project.load(module) as project:
        done = _resume(project.table(key), say=new_console(stderr=True).log)
    if as_json:
        click.echo(json.dumps({"table": key, **done}, indent=1))
    else:
        console = new_console()
        if done["run_id"] is None:
            text = f"The newest launch of {key} has {done['standing']}: there is nothing to resume."
        else:
            text = f"{done['range']}: {done['failure'] or 'nothing is left'} (run {done['run_id']})"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    sys.exit(EXIT_DIFFERS if done["failure"] else 0)


def _resume(chosen: ProjectTable, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Launch what the newest launch has left, in a run of Dagster.

    Raises:
        ConfigurationError: There is none, or it goes on, or it cannot be launched by its range again.
    """
    import dagster as dg

    from backfill_assets.runs import killed
    from backfill_assets.runs.pacing import wait_in_words
    from backfill_assets.runs.run_tags import range_named
    from backfill_assets.runs.table_runs import newest_launches

    key, op = chosen.spec.key, chosen.table.asset_key.to_python_identifier()
    with dg.DagsterInstance.get() as instance:
        list(killed.report_dead(instance))
        found = newest_launches(instance, {key: chosen.table}).get(key)
        if found is None:
            raise _refused(key, "Dagster knows of no launch of it", "Launch it: `dg launch --partition-range A...B`.")
        run, standing = found.run, found.standing
        if run is None or standing in ("queued", "started"):
            what = f"its newest launch {found.launch_id} goes on"
            raise _refused(key, what, f"Wait, or `backfill-assets stop {key}`.")
        if standing == "succeeded":
            return {"run_id": None, "range": None, "standing": standing, "failure": None}
        named = range_named(run.tags)
        launched = cast("Any", run.run_config)
        config = dict(launched.get("ops", {}).get(op, {}).get("config", {}))
        if not named:
            selected = {asset.to_user_string() for asset in run.asset_selection or ()}
            flow = next((flow.key for flow in chosen.spec.once_flows if flow.key in selected), None)
            remedy = f"Launch `{flow}` again: it continues." if flow else "Launch its partitions again."
            raise _refused(key, f"its newest launch {run.run_id} names no range", remedy)
        if config.get("discard_uncovered_rows"):
            raise _refused(
                key,
                f"its newest launch {run.run_id} discards rows that its source does not have, and would discard those "
                "of days that were sealed since then too",
                "Launch those partitions again for which it is meant; with `only: MISSING` what it published stays.",
            )
        if config.get("plan"):
            raise _refused(
                key, f"its newest launch carries out plan {config['plan']}", "`backfill-assets apply` that plan again."
            )
        waits = "" if config.get("ignore_off_peak") else wait_in_words(chosen.spec, datetime.now(UTC))
        if waits:
            say(waits)
    again = launch_range(chosen, *named, config, resumes=run)
    return {"run_id": again.run_id, "range": again.range, "standing": standing, "failure": again.failure or None}


def _refused(key: str, what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"`{key}` cannot be resumed: {what}.", state=NOTHING_WRITTEN, remedy=remedy)
