"""`backfill-assets reset`: read all of a table's history again, and make all that is made of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.plan import plan_of
from backfill_assets.commands.project import Project, ProjectTable
from backfill_assets.commands.range_launch import RangeRun, launch_range
from backfill_assets.commands.schema import propose
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError, SourceIncompleteError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.history.plan_document import PlanDocument


@click.command()
@click.argument("key")
@click.option("--yes", "typed", metavar="KEY", default="", help="The table's name once more; else it is asked for.")
@click.option(
    "--allow-losses",
    is_flag=True,
    help="Discard rows whose keys the source does not have any more, and let partitions shrink.",
)
@click.option("--reason", default="source changed: reset", show_default=True, help="Kept in every commit's receipt.")
@json_option
@definitions_option
def reset(key: str, *, typed: str, allow_losses: bool, reason: str, as_json: bool, module: str) -> None:
    """Read the whole history of the table KEY again, and make every table again that is made of it.

    Columns that the source has by now are proposed. Then every partition is read and overwritten, as by a launch:
    readers see each as it was or as it is, never a table that is empty. What lies behind a live stream's fence stays.

    A partition is refused from which keys would get lost, because the source has them no more: the table may be the
    only place that still has them. So a published partition stays for which the source is not complete any more.

    \b
    Exit code:  0  everything is published
                1  a launch has failed, or refused partitions; what comes after it was not begun. Or some that are
                   published stay as they are: their source does not have them any more
                2  the name was not typed, or there is nothing to launch, or the command is wrong; nothing was written

    \b
    Examples:
      backfill-assets reset bronze/customers
      backfill-assets reset bronze/customers --yes bronze/customers --allow-losses
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        chosen = project.table(key)
        planned, kept = _look(project, chosen, allow_losses=allow_losses, reason=reason, console=console)
        if not typed and sys.stdin.isatty():
            typed = click.prompt("Type the table's name to go on", err=True)
        if typed != key:
            raise ConfigurationError(
                f"`{typed}` is not the name of the table, `{key}`." if typed else "The table's name was not typed.",
                state=NOTHING_WRITTEN,
                remedy=f"Look at what is shown, then: `backfill-assets reset {key} --yes {key}`.",
            )
        config = {"reason": reason, "allow_shrink": allow_losses, "keep_keys": not allow_losses}
        done = reset_tables(project, planned, config, say=lambda text: console.print(text, highlight=False))
    if as_json:
        fields = {"table": key, "tables": [one.fields() for one in done], "kept": [p.key for p in kept]}
        click.echo(json.dumps(fields, indent=2))
    else:
        for one in done:
            for run in one.runs:
                new_console().print(f"{one.key} {run}", highlight=False, soft_wrap=True)
    if kept:
        said = (
            f"{key}: {len(kept):,} published partitions stay as they are, since their source is not complete for them"
        )
        console.print(f"{said} any more: {kept[0].key} to {kept[-1].key}.", highlight=False, soft_wrap=True)
    sys.exit(EXIT_DIFFERS if kept or any(run.failure for one in done for run in one.runs) else 0)


@dataclass(frozen=True, slots=True)
class TableReset:
    """What was launched of one table."""

    key: str
    runs: tuple[RangeRun, ...]

    def fields(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"table": self.key, "runs": [run.fields() for run in self.runs]}


def reset_tables(
    project: Project,
    planned: Mapping[str, Sequence[Partition]],
    config: Mapping[str, Any],
    *,
    say: Callable[[str], None],
) -> list[TableReset]:
    """Launch all of some tables, one after the other; what comes after a failure is not begun.

    Args:
        planned: Partitions of each table, the first of which the others are made of.
        config: Of the launches of the first; in the others keys may get lost that the first has lost.
    """
    from backfill_assets.core.calendar.partitions import runs_of

    done: list[TableReset] = []
    for key, partitions in planned.items():
        how = config if not done else {**config, "keep_keys": False, "may_find_nothing": True}
        runs: list[RangeRun] = []
        for run in runs_of(sorted(partitions)):
            say(f"{key}: {run[0].key}...{run[-1].key} (partitions: {len(run):,})")
            runs.append(launch_range(project.table(key), run[0].key, run[-1].key, how))
            if runs[-1].failure:
                return [*done, TableReset(key, tuple(runs))]
        done.append(TableReset(key, tuple(runs)))
    return done


def _look(
    project: Project, chosen: ProjectTable, *, allow_losses: bool, reason: str, console: Console
) -> tuple[dict[str, list[Partition]], list[Partition]]:
    """Show what a reset would do; return the partitions that it launches of each table, and those of its own that stay.

    Raises:
        SourceIncompleteError: There is nothing to launch.
    """
    from backfill_assets.commands.plan_report import show
    from backfill_assets.core.history.downstream import made_of

    key = chosen.spec.key
    with console.status(f"Looking at {key} and its source"):
        proposal = propose(project, key, write=False, log=console.log)
        made = _plan(chosen, allow_losses=allow_losses, reason=reason, log=console.log)
    for line in proposal.lines:
        console.print(f"`backfill-assets schema {key}` proposes: {line}", highlight=False, markup=False, soft_wrap=True)
    show(made, console)
    left_out = [one for one in made.partitions if one.action.value == "left out"]
    launched = [one.partition for one in made.partitions if one.action.value != "left out"]
    fence = datetime.fromisoformat(made.facts["fence"]) if made.facts["fence"] else None
    lacking = [one for one in left_out if fence is None or one.partition.window.start_utc < fence]
    if lacking and not launched:
        raise SourceIncompleteError(
            f"`{key}`: nothing of it can be read again: {lacking[0].why}.",
            state=NOTHING_WRITTEN,
            remedy="Bring its source back; then reset it.",
        )
    kept = [one.partition for one in lacking if one.receipt_id]
    return {key: launched, **made_of(key, launched, chosen.specs)}, kept


def _plan(chosen: ProjectTable, *, allow_losses: bool, reason: str, log: Callable[[str], None]) -> PlanDocument:
    from backfill_assets.core.spec.history import history_of

    partitions = history_of(chosen.spec).until(datetime.now(UTC))
    how = {"only": "all", "allow_shrink": allow_losses, "allow_unexpected": False, "reason": reason}
    return plan_of(chosen, partitions, how, downstream=True, log=log)
