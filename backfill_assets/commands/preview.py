"""`backfill-assets preview`: one partition as a launch would make it, with a few of its rows; nothing is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import (
    EXIT_DIFFERS,
    definitions_option,
    json_option,
    new_console,
    one_message_for_an_error,
)
from backfill_assets.errors import written_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console

    from backfill_assets.core.history.preview import Preview
    from backfill_assets.core.history.staged_rows import StagedChunk

NULL = "NULL"


@click.command()
@click.argument("key")
@click.option("--partition", metavar="P", required=True, help="The partition to look at.")
@click.option("--rows", type=click.IntRange(0, 1000), default=10, show_default=True, help="So many of its rows.")
@json_option
@definitions_option
def preview(key: str, *, partition: str, rows: int, as_json: bool, module: str) -> None:
    """Read one partition of the table KEY as a launch would, and show a few of its rows and what its audit says.

    Values are shown as the table would have them, with their types: after the source was read, late rows were folded
    in, and rows with the same key were made one. Nothing is written, and the rows are in no log.

    \b
    Example:
      backfill-assets preview bronze/orders --partition 2024-02-29 --rows 20
    \b
    Exit code:  0  a launch would publish it, or the table has it already
                1  its audit would refuse it
                2  it cannot be read: it is live, or its source is not complete, or has other columns
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        with console.status(f"Reading {partition} of {key}"):
            found = look_at_partition(project, key, partition, rows, log=console.log)
    if as_json:
        click.echo(found.to_json())
    else:
        found.show(new_console())
    sys.exit(0 if found.preview.verdict.passed else EXIT_DIFFERS)


@dataclass(frozen=True, slots=True)
class PreviewReport:
    """One partition as a launch would make it.

    Args:
        columns: Names and types, in order.
    """

    key: str
    columns: Sequence[tuple[str, str]]
    preview: Preview[list[list[str | None]]]

    def counters(self) -> dict[str, Any]:
        """Return what was counted on the way from the source to the table."""
        found = self.preview
        return {
            "source_rows": found.source_rows,
            "late_rows": found.late_rows,
            "superseded_rows": found.superseded_rows,
            "unreadable_rows": found.tally.unreadable_rows,
            "rows_then": found.tally.rows,
            "rows_now": found.rows_now,
        }

    def to_json(self) -> str:
        """Return one JSON object; values as text, as the table's type writes them."""
        found = self.preview
        body = {
            "table": self.key,
            "partition": found.verdict.partition.key,
            "passed": found.verdict.passed,
            "identical": found.is_identical,
            "findings": [str(finding) for finding in found.verdict.findings],
            "counters": self.counters(),
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
            "rows": found.sample,
            "remarks": list(found.remarks),
        }
        return json.dumps(body, indent=1, ensure_ascii=False)

    def show(self, console: Console) -> None:
        """Print the rows, what was counted, and what the audit says."""
        from rich.markup import escape
        from rich.table import Table

        found, partition = self.preview, self.preview.verdict.partition.key
        if found.sample:
            shown = Table(title=f"{self.key}, {partition}: {len(found.sample):,} rows", title_justify="left")
            for name, kind in self.columns:
                is_number = kind.startswith(("int", "bigint", "decimal", "double", "float", "smallint", "tinyint"))
                shown.add_column(f"{escape(name)}\n[dim]{escape(kind)}[/]", justify="right" if is_number else "left")
            for row in found.sample:
                shown.add_row(*(f"[dim]{NULL}[/]" if value is None else escape(written_out(value)) for value in row))
            console.print(shown)
        counted = ", ".join(
            f"{name.replace('_', ' ')}: {'not known' if count is None else f'{count:,}'}"
            for name, count in self.counters().items()
        )
        console.print(f"{counted}.", highlight=False)
        for sentence in [*found.remarks, *map(str, found.verdict.findings)]:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        said = (
            "refused" if not found.verdict.passed else "identical: not written" if found.is_identical else "published"
        )
        console.print(f"A launch would find it [bold {'red' if said == 'refused' else 'green'}]{said}[/].")


def look_at_partition(
    project: Project, key: str, partition: str, rows: int, *, log: Callable[[str], None]
) -> PreviewReport:
    """Return one partition of a project's table as a launch would make it.

    Raises:
        ConfigurationError: There is no such table.
        WindowError: The partition is none of the table.
        LaunchError, PublishError: It cannot be read.
    """
    from pyspark.sql import functions as F

    from backfill_assets.commands.plan import launch_of
    from backfill_assets.core.history.effects import Effects
    from backfill_assets.core.history.preview import preview as preview_of
    from backfill_assets.lake.row_examples import in_text
    from backfill_assets.lake.staged_chunk import rows_of
    from backfill_assets.spark.expressions import collected, column
    from backfill_assets.spark.failures import translated

    chosen = project.table(key)
    spec, wanted = chosen.spec, chosen.spec.grid.partition(partition)
    lake = chosen.lakehouse.table(spec, log)
    lake.refuse_another_schema()
    transform = chosen.table.transform() if chosen.table.transform else None
    source = chosen.lakehouse.source(spec, chosen.specs, transform, log)

    def take(staged: StagedChunk[DataFrame]) -> list[list[str | None]]:
        few = in_text(spec, rows_of(spec, staged, [wanted]).limit(rows))
        kinds = dict(few.dtypes)
        as_text = [F.base64(column(n)) if kinds[n] == "binary" else column(n).cast("string") for n in spec.columns]
        return [list(row) for row in collected(few.select(*as_text))]

    launch = launch_of(chosen, only="all", allow_shrink=False, reason="new data: a preview")
    with translated(key):
        found = preview_of(spec, wanted, source, lake, launch, take=take, effects=Effects(log=log))
    return PreviewReport(key, [(name, column.type) for name, column in spec.columns.items()], found)
