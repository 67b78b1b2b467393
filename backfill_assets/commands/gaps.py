"""`backfill-assets gaps`: which partitions are not as their source would make them, and the plan that mends them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.plan import plan_of, write_plan
from backfill_assets.commands.project import NOTHING_READ, Project
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    EXIT_USAGE,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.core.words import range_in_words
from backfill_assets.errors import AddressMissingError, BackfillAssetsError, ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.history.plan_document import PlanDocument
    from backfill_assets.core.state.partition_status import PartitionStatus

MOST_LINES = 40


@click.command()
@click.argument("keys", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plan that mends the gaps of one table; `backfill-assets apply` carries it out.",
)
@json_option
@definitions_option
def gaps(keys: tuple[str, ...], *, output: Path | None, as_json: bool, module: str) -> None:
    """Show which partitions of the tables KEYS are not as their source would make them; of all tables if none is named.

    A partition is missing; unreadable, because a file of it is gone; stale because of its source, late rows or code;
    restored; written by somebody else; or its newest comparison found a difference. Or it is published, and its source
    has it no more, which no plan mends. Rows that lie in no partition are reported too. That is told by receipts, the
    log, and what the source says of itself: no rows are read, and nothing is written. What the source has not
    completed yet is no gap.

    \b
    Examples:
      backfill-assets gaps
      backfill-assets gaps bronze/orders -o plan.json
      backfill-assets apply plan.json
    \b
    Exit code:  0  there are none
                1  there are some, or rows that lie in no partition
                2  a table could not be looked at
    """
    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        console = new_console(stderr=True)
        if output is not None and len(keys) != 1:
            raise ConfigurationError(
                "A plan is of one table.", state=NOTHING_READ, remedy="Name one table with -o, or leave -o out."
            )
        with console.status("Looking for gaps"):
            found = find_gaps(project, keys, log=console.log)
        if output is not None and found[0].runs():
            from backfill_assets.commands.plan_report import refused_in_words

            refused = refused_in_words(_write_plan(project, found[0], output, log=console.log))
            console.print(f"The plan is in {output}. To carry it out: backfill-assets apply {output}", highlight=False)
            for sentence in refused:
                console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        elif output is not None:
            older = "; what is there is an older plan" if output.exists() else ""
            console.print(f"There is nothing to plan: {output} was not written{older}.", highlight=False)
    if as_json:
        click.echo(json.dumps({"tables": [of_table.as_fields() for of_table in found]}, indent=1, ensure_ascii=False))
    else:
        show(found, new_console())
    if any(of_table.is_in_doubt for of_table in found):
        sys.exit(EXIT_USAGE)
    sys.exit(EXIT_DIFFERS if any(of_table.gaps or of_table.outside for of_table in found) else 0)


@dataclass(frozen=True, slots=True)
class TableGaps:
    """The partitions of a table that are not as they should be.

    Args:
        partitions: How many it has that are history, and complete at the source or published.
        gaps: In order.
        outside: Which rows lie in no partition, in words; empty if none do.
        problem: Why the table could not be looked at, in words; empty if it was.
        is_in_doubt: Whether it may have gaps that nobody could see.
    """

    key: str
    partitions: int = 0
    gaps: tuple[PartitionStatus, ...] = ()
    outside: str = ""
    problem: str = ""
    is_in_doubt: bool = False

    def as_fields(self) -> dict[str, Any]:
        """Return what JSON has of it."""
        return {
            "table": self.key,
            "partitions": self.partitions,
            "gaps": [
                {"partition": one.partition.key, "states": [str(state) for state in one.states], "why": list(one.why)}
                for one in self.gaps
            ],
            "mended_by": [[run[0].partition.key, run[-1].partition.key] for run in self.runs()],
            "outside": self.outside,
            "problem": self.problem or None,
        }

    def runs(self) -> list[list[PartitionStatus]]:
        """Return the gaps that lie side by side together and that a launch mends: those that the source has."""
        from backfill_assets.core.calendar.partitions import runs_of

        by_partition = {one.partition: one for one in self.gaps if one.can_be_compared}
        return [[by_partition[partition] for partition in run] for run in runs_of(sorted(by_partition))]


def find_gaps(project: Project, keys: Sequence[str], *, log: Callable[[str], None]) -> list[TableGaps]:
    """Return the gaps of some tables of a project, or of all if none is named.

    Of all tables one that cannot be looked at says why, and the others are looked at all the same. Where nobody has
    said where its database is, and nothing is published, nothing is in doubt. With all tables come versions that
    readers are given, and that have no spec.

    Raises:
        ConfigurationError: There is no such table.
        BackfillAssetsError: A table that was named, or its source, could not be looked at.
    """
    import dagster as dg

    from backfill_assets.assets.factory import tables_of
    from backfill_assets.commands.version.chosen import current_without_spec
    from backfill_assets.core.state.partition_status import outside_in_words
    from backfill_assets.runs.table_status import look_at_table
    from backfill_assets.spark.failures import looked_at

    chosen = [project.table(key) for key in keys or sorted(tables_of(project.definitions)[0])]
    lakehouse, found = project.lakehouse, list[TableGaps]()
    without = {} if keys else current_without_spec(project)
    found += [TableGaps(key, problem=str(why), is_in_doubt=True) for key, why in without.items()]
    with dg.DagsterInstance.get() as instance:
        for one in chosen:
            key = one.spec.key
            try:
                look = partial(look_at_table, instance, one.table, one.specs, lakehouse, log)
                seen = looked_at(key, look, log)
            except BackfillAssetsError as error:
                if keys:
                    raise
                is_in_doubt = not isinstance(error, AddressMissingError)
                found.append(TableGaps(key, problem=str(error), is_in_doubt=is_in_doubt))
                continue
            found.append(TableGaps(key, seen.total, tuple(seen.unreconciled), outside_in_words(key, seen.outside)))
    return found


def show(found: Sequence[TableGaps], console: Console) -> None:
    """Print gaps as a table; those that lie side by side for one cause in one line, with the first one's reason."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title="Partitions that are not as their source would make them", title_justify="left")
    for name in ("table", "partitions", "number", "state", "why"):
        shown.add_column(name, justify="right" if name == "number" else "left", overflow="fold")
    lines = [line for of_table in found for line in _lines_of(of_table)]
    for line in lines[:MOST_LINES]:
        shown.add_row(*map(escape, line))
    if lines:
        console.print(shown)
    if len(lines) > MOST_LINES:
        console.print(f"... and {len(lines) - MOST_LINES:,} more lines; `--json` has every partition.")
    for of_table in found:
        if of_table.problem:
            said = f"{of_table.key} was not looked at. {of_table.problem}"
            console.print(said, highlight=False, markup=False, soft_wrap=True)
            continue
        mended = sum(map(len, of_table.runs()))
        said = f"{of_table.key}: {mended:,} of {of_table.partitions:,} partitions are to be mended."
        if mended:
            said += f" `backfill-assets gaps {of_table.key} -o plan.json` plans that."
        if lost := len(of_table.gaps) - mended:
            said += f" {lost:,} are published, and their source has them no more: bring it back."
        console.print(said, highlight=False, markup=False, soft_wrap=True)
        if of_table.outside:
            console.print(of_table.outside, style="bold red", highlight=False, markup=False, soft_wrap=True)


def _lines_of(of_table: TableGaps) -> Iterator[tuple[str, ...]]:
    from backfill_assets.core.calendar.partitions import runs_of
    from backfill_assets.core.history.causes import cause_name

    by_partition = {one.partition: one for one in of_table.gaps}
    for run in runs_of(sorted(by_partition)):
        for _, group in groupby(
            (by_partition[p] for p in run), key=lambda one: (one.state, cause_name("; ".join(one.why)))
        ):
            line = list(group)
            keys = range_in_words(line[0].partition.key, line[-1].partition.key)
            yield of_table.key, keys, f"{len(line):,}", str(line[0].state), "; ".join(line[0].why)


def _write_plan(project: Project, found: TableGaps, output: Path, *, log: Callable[[str], None]) -> PlanDocument:
    wanted = [one.partition for run in found.runs() for one in run]
    how = {"only": "missing", "allow_shrink": False, "reason": "history missing: gaps"}
    made = plan_of(project.table(found.key), wanted, how, log=log)
    write_plan(output, made)
    return made
