"""`backfill-assets history`: what was done to a table, and what was tried: when, by whom, why, and how many rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.core.words import SHORT_ID, range_in_words, seconds_in_words

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.core.history.operations import Operation
    from backfill_assets.core.history.undo_window import UndoWindow

COLUMNS = (
    "when (UTC)",
    "what",
    "partitions",
    "number",
    "rows before",
    "rows after",
    "version",
    "took",
    "by, run",
    "why",
)
_STYLES = {"refused": "red", "failed": "bold red", "stopped": "yellow", "undone": "yellow", "somebody else": "magenta"}


@click.command()
@click.argument("key")
@click.option("--partition", metavar="P", help="Only what was done to this partition, or to the whole table.")
@click.option("--newest", type=click.IntRange(1), default=30, show_default=True, help="So many of the newest.")
@json_option
@definitions_option
def history(key: str, *, partition: str | None, newest: int, as_json: bool, module: str) -> None:
    """Show what was done to the table KEY, the newest first: each publish, undo, refusal, stop, and fence.

    Commits of one launch are one line, with its run. All of it is kept in `<table>_history`, also what the table's log
    has forgotten: a Delta table that any reader can query.

    \b
    Examples:
      backfill-assets history bronze/orders
      backfill-assets history bronze/orders --partition 2024-02-29 --json
    """
    with one_message_for_an_error(), Project.load(module, looks=True) as project:
        console = new_console(stderr=True)
        with console.status(f"Reading the history of {key}"):
            report = look_at_history(project, key, partition, newest, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        report.show(new_console())


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """What was done to a table, the newest first, and how long its launches can be undone."""

    key: str
    operations: Sequence[Operation]
    more: int
    window: UndoWindow

    def to_json(self) -> str:
        """Return one JSON object."""
        operations = [{**_fields_of(one), "undo_until": self._undo_until(one)} for one in self.operations]
        body = {"table": self.key, "more": self.more, "operations": operations}
        return json.dumps(body, indent=1, ensure_ascii=False)

    def _undo_until(self, one: Operation) -> str | None:
        """Return until when an operation can be taken back; None for what no undo takes back."""
        if one.what not in ("published", "undone"):
            return None
        return self.window.until(one.at).astimezone(UTC).isoformat(timespec="seconds")

    def show(self, console: Console) -> None:
        """Print it as a table, with the first letters of run ids: `undo` takes them, and Dagster's UI shows as many."""
        from rich.markup import escape
        from rich.table import Table

        shown = Table(title=f"{self.key}: what was done", title_justify="left")
        for name in COLUMNS:
            is_number = name in ("number", "rows before", "rows after", "took")
            shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for one in self.operations:
            shown.add_row(*map(escape, _cells_of(one)), style=_STYLES.get(one.what))
        console.print(shown)
        if self.more:
            console.print(f"... and {self.more:,} older ones; `--newest` shows more.", highlight=False)
        newest = next((until for one in self.operations if (until := self._undo_until(one))), None)
        if newest:
            console.print(f"The newest launch can be undone until {newest[:10]}.", highlight=False)


def _cells_of(one: Operation) -> tuple[str, ...]:
    why = ". ".join(text.rstrip(".") for text in (one.reason, one.why) if text)
    return (
        f"{one.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        one.what,
        range_in_words(one.partitions[0], one.partitions[-1]) if one.partitions else "",
        f"{len(one.partitions):,}" if one.partitions else "",
        "" if one.rows_before is None else f"{one.rows_before:,}",
        "" if one.rows_after is None else f"{one.rows_after:,}",
        range_in_words(str(one.versions[0]), str(one.versions[1])) if one.versions else "",
        "" if one.seconds is None else seconds_in_words(one.seconds),
        "\n".join(text for text in (one.by, one.run_id[:SHORT_ID]) if text),
        why,
    )


def _fields_of(one: Operation) -> dict[str, Any]:
    return {
        "at": one.at.astimezone(UTC).isoformat(),
        "what": one.what,
        "versions": one.versions,
        "partitions": one.partitions,
        "rows_before": one.rows_before,
        "rows_after": one.rows_after,
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "run_id": one.run_id or None,
        "by": one.by or None,
        "reason": one.reason or None,
        "why": one.why or None,
    }


def look_at_history(
    project: Project, key: str, partition: str | None, newest: int, *, log: Callable[[str], None]
) -> HistoryReport:
    """Return what was done to a table of a project. Writes nothing.

    Raises:
        ConfigurationError: There is no such table.
        WindowError: The partition is none of the table.
    """
    from backfill_assets.core.history.operations import operation_of, operations_of, steps_about
    from backfill_assets.core.history.undo_window import undo_window
    from backfill_assets.lake.properties import PROPERTIES
    from backfill_assets.spark.failures import looked_at

    chosen = project.table(key)
    wanted = chosen.spec.grid.partition(partition).key if partition else None
    lake = chosen.lakehouse.table(chosen.spec, log)
    history = lake.history
    of_log = looked_at(key, history.receipts, log), looked_at(key, history.operations, log)
    found = operations_of(*of_log, looked_at(key, history.attempts, log))
    steps = looked_at(key, lambda: chosen.lakehouse.version_steps(key), log)
    found = sorted([*found, *map(operation_of, steps_about(key, steps))], key=lambda one: one.at)
    found = [one for one in reversed(found) if wanted is None or not one.partitions or wanted in one.partitions]
    window = undo_window(lake.table_log.properties() or PROPERTIES)
    if warning := window.warning(key):
        log(warning)
    return HistoryReport(key, found[:newest], max(0, len(found) - newest), window)
