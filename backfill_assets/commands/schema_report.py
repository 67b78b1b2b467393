"""What `backfill-assets schema` found and did, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown

from backfill_assets.commands.yaml_edit import to_be_written
from backfill_assets.core.schema.compare import Action, ColumnChange

if TYPE_CHECKING:
    from backfill_assets.lake.evolution import Evolved

STYLES = {
    Action.NONE: "",
    Action.ADD: "green",
    Action.WIDEN: "green",
    Action.APPLY: "cyan",
    Action.DECIDE: "yellow",
    Action.REFUSED: "red",
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What source, spec and table have, and what would be changed in the spec.

    Args:
        file: The YAML of the table; empty if it was made in Python.
        diff: Unified diff of that file; empty if nothing is to be changed in it.
        written: Whether it was.
    """

    key: str
    changes: tuple[ColumnChange, ...]
    file: str = ""
    diff: str = ""
    text: str = field(default="", repr=False)
    written: bool = False

    @property
    def exit_code(self) -> int:
        """0 nothing to do, 1 something is proposed or to be decided, 2 something cannot be done in place."""
        actions = {change.action for change in self.changes}
        actions -= {Action.ADD, Action.WIDEN} if self.written else set()
        if Action.REFUSED in actions:
            return 2
        return 1 if actions - {Action.NONE} else 0

    @property
    def lines(self) -> list[str]:
        """The columns as they would stand in the spec."""
        return [to_be_written(change) for change in self.changes if change.action in (Action.ADD, Action.WIDEN)]

    def to_json(self) -> str:
        """Return one JSON object."""
        columns = [
            {**{name: getattr(c, name) for name in ("column", "spec", "source", "table", "what", "action")}}
            for c in self.changes
        ]
        return json.dumps(
            {"table": self.key, "columns": columns, "file": self.file, "diff": self.diff, "written": self.written},
            indent=2,
        )

    def to_table(self) -> Shown:
        """Return what a person reads."""
        shown = Shown(title=f"{self.key}: its columns", title_justify="left")
        for name in ("column", "spec", "source", "table", "what it means"):
            shown.add_column(name, overflow="fold")
        for c in self.changes:
            cells = (c.column, c.spec or "-", c.source or "?", c.table or "-", c.what)
            shown.add_row(*map(escape, cells), style=STYLES[c.action])
        return shown

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            click.echo(self.to_json())
            return
        console.print(self.to_table())
        if self.diff:
            click.echo(self.diff)
            click.echo(f"{self.file} was changed." if self.written else "`--write` changes the YAML like this.")
        elif self.lines:
            why = "whose YAML this command cannot change" if self.file else "which was made in Python"
            click.echo("\n".join([f"To be written by hand into the columns of the spec, {why}:", *self.lines]))


@dataclass(frozen=True, slots=True)
class Applied:
    """What was changed in a table, and which of its partitions were published with other columns, or by other code.

    Args:
        commands: One for each run of consecutive partitions.
    """

    key: str
    evolved: Evolved
    outdated: tuple[str, ...]
    commands: tuple[str, ...]
    has_stream: bool

    def to_json(self) -> str:
        """Return one JSON object."""
        whole = {
            "table": self.key,
            "added": self.evolved.added,
            "may_be_null": self.evolved.relaxed,
            "version": self.evolved.version,
            "to_launch": self.outdated,
            "commands": self.commands,
        }
        return json.dumps(whole, indent=2)

    def to_text(self) -> str:
        """Return what a person reads."""
        evolved = self.evolved
        done = [f"added {', '.join(evolved.added)}"] if evolved.added else []
        done += [f"NULL is allowed in {', '.join(evolved.relaxed)}"] if evolved.relaxed else []
        lines = [
            f"{self.key}: {'; '.join(done)} (version {evolved.version})."
            if done
            else f"{self.key}: the table follows its spec already."
        ]
        if self.outdated:
            lines += [
                f"{len(self.outdated):,} partitions were published before the spec changed: they have NULL in new "
                "columns until they are "
                "launched again.",
                "",
                *(f"  {command}" for command in self.commands),
                "",
                "With `only: MISSING` one launch over everything does the same, and leaves out what is done already:",
                "",
                f"  {self.commands[0].rsplit(' --partition-range', 1)[0]} --partition-range "
                f"{self.outdated[0]}...{self.outdated[-1]} \\",
                f"    --config-json '{_only_missing(self.key)}'",
            ]
        if self.has_stream and done:
            lines += ["", "Restart the live writer: until then it appends rows without the new columns."]
        return "\n".join(lines)


def _only_missing(key: str) -> str:
    return json.dumps({"ops": {key.replace("/", "__"): {"config": {"only": "MISSING"}}}})
