"""`backfill-assets undo`: give the partitions of a launch what they held before it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.range_launch import QUIET, failure_of
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.core.words import range_in_words
from backfill_assets.errors import UndoError

if TYPE_CHECKING:
    import dagster as dg
    from rich.console import Console

    from backfill_assets.runs.undoing import TableUndo

MOST_LINES = 40


@click.command()
@click.argument("launch")
@click.option("--table", "tables", metavar="KEY", multiple=True, help="Look at this table only; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only look: say what would be put back, and write nothing.")
@click.option("--reason", default="", help="Why; it is kept in the receipts.")
@click.option(
    "--discard-later",
    is_flag=True,
    help="Put partitions back, too, that somebody has written since: what was written is replaced.",
)
@json_option
@definitions_option
def undo(
    launch: str, *, tables: tuple[str, ...], dry_run: bool, reason: str, discard_later: bool, as_json: bool, module: str
) -> None:
    """Take a launch back: every partition that it wrote gets what it held before, and everything else stays.

    LAUNCH is the id of a run, of a backfill, or of a plan. A partition that somebody has written since is kept, and
    named. All of it is looked at before the first write, so nothing is half done because old files are gone. An undo is
    recorded like a launch: take it back by the id of its own run.

    A launch of the same partitions makes the same rows again. Correct the source or the code first, and stop the
    schedules of the table until then.

    \b
    Examples:
      backfill-assets undo 5f8d2c1e-... --dry-run
      backfill-assets undo 5f8d2c1e-... --reason "halved revenue"
    \b
    Exit code:  0  everything is put back
                1  some partitions were kept, or would be; or it ended half-way
                2  nothing was put back: the launch is unknown, or goes on, or old files are gone
    """
    how = {"tables": list(tables), "reason": reason, "discard_later": discard_later, "dry_run": dry_run}
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        with console.status(f"Looking at what {launch} wrote"):
            report = take_back(project, launch, how, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        report.show(new_console())
    sys.exit(EXIT_DIFFERS if report.kept or report.failure else 0)


@dataclass(frozen=True, slots=True)
class Undone:
    """What was put back, or would be.

    Args:
        run_id: Of the undo; empty where it was only looked at.
        tables: As the job reports them.
        failure: Why not everything was put back, in words.
        until: Instant in ISO format until which it can be put back, where it was only looked at.
    """

    launch: str
    run_id: str
    tables: Sequence[dict[str, Any]]
    failure: str = ""
    until: str | None = None

    @property
    def kept(self) -> int:
        """How many partitions were not put back."""
        return sum(one["action"] == "kept" for of_table in self.tables for one in of_table["partitions"])

    def to_json(self) -> str:
        """Return one JSON object."""
        body = {"launch": self.launch, "run_id": self.run_id or None, "failure": self.failure or None}
        body |= {"undo_until": self.until} if self.until else {}
        return json.dumps({**body, "tables": list(self.tables)}, indent=2, ensure_ascii=False)

    def show(self, console: Console) -> None:
        """Print it as a table, partitions side by side with which the same was done in one line."""
        from rich.markup import escape
        from rich.table import Table

        title = f"{'' if self.run_id else 'Would be done: '}undo of {self.launch}"
        shown = Table(title=title, title_justify="left")
        for name in ("table", "partitions", "number", "what is done", "why", "rows launched", "rows then"):
            is_number = name in ("number", "rows launched", "rows then")
            shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
        lines = list(_lines_of(self.tables))
        for line in lines[:MOST_LINES]:
            shown.add_row(*map(escape, line), style="bold red" if line[3] == "kept" else None)
        console.print(shown)
        if len(lines) > MOST_LINES:
            console.print(f"... and {len(lines) - MOST_LINES:,} more lines; `--json` has every partition.")
        if self.until:
            console.print(f"It can be undone until {self.until}.", highlight=False)
        if self.run_id:
            again = f"`backfill-assets undo {self.run_id}` takes this back."
            console.print(f"{self.failure} {again}".strip(), highlight=False, markup=False, soft_wrap=True)


def _lines_of(tables: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield partitions that follow each other and with which the same is done for the same reason, in one line."""
    for of_table in tables:
        for (action, why), group in groupby(of_table["partitions"], key=lambda one: (one["action"], one["why"])):
            line = list(group)
            then = [one["rows_then"] for one in line]
            yield (
                of_table["table"],
                range_in_words(line[0]["partition"], line[-1]["partition"]),
                f"{len(line):,}",
                action,
                why,
                f"{sum(one['rows_launched'] for one in line):,}",
                f"{sum(then):,}" if None not in then else "",
            )


def take_back(project: Project, launch: str, how: dict[str, Any], *, log: Callable[[str], None]) -> Undone:
    """Take a launch back in a run of Dagster; or only look, without one.

    Args:
        how: The job's config besides the launch.

    Raises:
        ConfigurationError: A table is none of the project.
        UndoError: Nothing was put back.
    """
    import dagster as dg

    from backfill_assets.assets.factory import tables_of
    from backfill_assets.assets.undo import UNDO_JOB, UNDO_OP, UndoConfig, asked_of
    from backfill_assets.runs.undoing import look

    tables, _ = tables_of(project.definitions)
    for key in how["tables"]:
        project.table(key)  # says so where there is none
    if how["dry_run"]:
        asked, lakehouse = asked_of(UndoConfig(launch=launch, **how)), project.lakehouse
        with dg.DagsterInstance.get() as instance:
            found = look(instance, tables, lakehouse, asked, only=how["tables"], log=log)
        return Undone(launch, "", [of_table.as_fields() for of_table in found], until=_until(found, log))
    with dg.DagsterInstance.get() as instance:
        job = project.definitions.resolve_job_def(project.lakehouse.own_name(UNDO_JOB))
        run_config = {**QUIET, "ops": {UNDO_OP: {"config": {"launch": launch, **how}}}}
        result = job.execute_in_process(
            instance=instance, run_config=run_config, tags={"undo": launch}, raise_on_error=False
        )
    return _undone(launch, result)


def _until(found: Sequence[TableUndo], log: Callable[[str], None]) -> str | None:
    """Return until when all of a launch can be taken back; None where nothing is left of it."""
    from backfill_assets.core.history.undo_window import undo_window

    ends: list[datetime] = []
    for one in found:
        window = undo_window(one.delta.table_log.properties())
        if warning := window.warning(one.table.spec.key):
            log(warning)
        if replaced_at := one.plan.replaced_at:
            ends.append(window.until(replaced_at))
    return min(ends).isoformat(timespec="seconds") if ends else None


def _undone(launch: str, result: dg.ExecuteInProcessResult) -> Undone:
    """Read what a run reports, be it in its output or in its failure."""
    from backfill_assets.assets.undo import ENDED, REPORT

    for event in result.all_events:
        data: Any = event.event_specific_data
        failed = getattr(data, "user_failure_data", None)
        metadata = getattr(failed or data, "metadata", None) or {}
        if REPORT not in metadata:
            continue
        tables: list[dict[str, Any]] = metadata[REPORT].value
        ended = metadata[ENDED].value if ENDED in metadata else None
        if ended and not any(of_table["versions"] for of_table in tables):
            raise UndoError(ended["what"], state=ended["state"], remedy=ended["remedy"])
        if ended:
            left = "What is restored stays; the same command does what is left."
            return Undone(launch, result.run_id, tables, f"It ended half-way: {ended['what']} {left}")
        return Undone(launch, result.run_id, tables, failure_of(result) if failed else "")
    raise UndoError(
        failure_of(result),
        state="What it had put back by then stays; `backfill-assets history` lists it.",
        remedy=f"Look at run {result.run_id}; the same command does what is left.",
    )
