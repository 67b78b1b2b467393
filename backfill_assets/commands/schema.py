"""`backfill-assets schema`: a change of a table's columns, proposed as a change of its YAML, and followed by the table."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from rich.console import Console
from rich.table import Table as Shown

from backfill_assets.commands.reconciliation_report import load_definitions, table_of
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.core.calendar.partitions import Partition, runs_of
from backfill_assets.core.schema.compare import Action, ColumnChange, Observed, compare_columns
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.assets.factory import Table
    from backfill_assets.core.state.receipts import PublishedPartition
    from backfill_assets.lake.evolution import Evolved

STYLES = {Action.NONE: "", Action.ADD: "green", Action.WIDEN: "green", Action.APPLY: "cyan", Action.DECIDE: "yellow", Action.REFUSED: "red"}


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
        return [f"{change.column}: {_written(change)}" for change in self.changes if change.action in (Action.ADD, Action.WIDEN)]

    def to_json(self) -> str:
        """Return one JSON object."""
        columns = [{**{name: getattr(c, name) for name in ("column", "spec", "source", "table", "what", "action")}} for c in self.changes]
        return json.dumps({"table": self.key, "columns": columns, "file": self.file, "diff": self.diff, "written": self.written}, indent=2)

    def to_table(self) -> Shown:
        """Return what a person reads."""
        shown = Shown(title=f"{self.key}: its columns", title_justify="left")
        for name in ("column", "spec", "source", "table", "what it means"):
            shown.add_column(name, overflow="fold")
        for c in self.changes:
            shown.add_row(c.column, c.spec or "-", c.source or "?", c.table or "-", c.what, style=STYLES[c.action])
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
            click.echo("\n".join(["To be added to the columns of the spec, which was made in Python:", *self.lines]))


def propose(module: str, key: str, *, write: bool, log: Callable[[str], None]) -> Proposal:
    """Look at source, spec and table, and propose a change of the YAML. Never touches the table.

    Args:
        write: Whether to change the YAML.

    Raises:
        ConfigurationError: There is no such module or table, or its YAML cannot be changed.
        SourceMissingError: The source is not there.
    """
    from backfill_assets.lake.evolution import columns_of

    table, specs = table_of(load_definitions(module), key, module)
    lakehouse = Lakehouse()
    seen = _observed(lakehouse.source(table.spec, specs, table.transform() if table.transform else None, log))
    changes = tuple(compare_columns(table.spec, seen, columns_of(lakehouse.table(table.spec, log))))
    proposal = Proposal(key, changes, table.file)
    if not proposal.lines or not table.file:
        return proposal
    path = Path(table.file)
    before = path.read_text(encoding="utf-8")
    after = edited(before, key, changes)
    shown = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    diff = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{shown}", f"b/{shown}"))
    if write:
        path.write_text(after, encoding="utf-8")
    return Proposal(key, changes, table.file, diff, after, write)


def _observed(source: Any) -> list[Observed]:
    """Return the columns of a source as they were, the oldest first."""
    from backfill_assets.sources.tables import TablesSource
    from backfill_assets.sources.files.source import FilesBelowFolders

    if isinstance(source, TablesSource):
        return [Observed("", source.columns())] if all(table.exists() for table in source.inputs) else []
    if isinstance(source, FilesBelowFolders) and source.source.format in ("parquet", "json"):
        from backfill_assets.sources.files.sample import observed_columns

        return observed_columns(source)
    return []


# -- the YAML ----------------------------------------------------------------------------------------------------------


def edited(text: str, key: str, changes: Sequence[ColumnChange]) -> str:
    """Return a `defs.yaml` with new columns and wider types in it; every other character stays as it is.

    Raises:
        ConfigurationError: The columns do not stand there so that a line can be put in.
    """
    columns = _columns_node(text, key)
    if columns is None:
        raise _by_hand(key, [c for c in changes if c.action in (Action.ADD, Action.WIDEN)])
    spots = {name.value: (name, value) for name, value in columns.value}
    edits: list[tuple[int, int, str]] = []
    for change in (c for c in changes if c.action is Action.WIDEN):
        node = spots[change.column][1]
        if isinstance(node, yaml.MappingNode):
            node = next(value for name, value in node.value if name.value == "type")
        old = text[node.start_mark.index : node.end_mark.index]
        new = re.sub(re.escape(change.spec), change.new_type, old, count=1, flags=re.IGNORECASE)
        if new == old:
            raise _by_hand(key, [change])
        is_plain = not new.startswith(("'", '"'))
        edits.append((node.start_mark.index, node.end_mark.index, f'"{new}"' if is_plain and "(" in new else new))
    added = [c for c in changes if c.action is Action.ADD]
    if added and columns.flow_style:
        at = columns.end_mark.index - 1
        edits.append((at, at, "".join(f", {_key(c.column)}: {_written(c)}" for c in added)))
    elif added:
        name, value = columns.value[-1]
        at = _end_of_line(text, value.end_mark.index if value.end_mark.column else value.end_mark.index - 1)
        indent = " " * name.start_mark.column
        edits.append((at, at, "".join(f"\n{indent}{_key(c.column)}: {_written(c)}" for c in added)))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _columns_node(text: str, key: str) -> yaml.MappingNode | None:
    """Return where the columns of a table stand in a file that may hold several; None if they do not."""
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        attributes = dict(_pairs(document)).get("attributes")
        found = dict(_pairs(attributes))
        named, columns = found.get("key"), found.get("columns")
        if named is not None and named.value == key and isinstance(columns, yaml.MappingNode) and columns.value:
            return columns
    return None


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((name.value, value) for name, value in node.value)


def _end_of_line(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and yaml.safe_load(name) == name else json.dumps(name, ensure_ascii=False)


def _written(change: ColumnChange) -> str:
    """Return a column as it stands in YAML."""
    kind = f'"{change.new_type}"' if "(" in change.new_type else change.new_type
    return f"{{type: {kind}, optional: true}}" if change.optional else kind


def _by_hand(key: str, changes: Sequence[ColumnChange]) -> ConfigurationError:
    named = ", ".join(f"`{change.column}: {change.new_type}`" for change in changes)
    return ConfigurationError(
        f"`{key}`: its columns do not stand in its YAML so that they can be changed there.",
        state="Nothing was changed.",
        remedy=f"Write by hand: {named}.",
    )


# -- the table ---------------------------------------------------------------------------------------------------------


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
            f"{self.key}: {'; '.join(done)} (version {evolved.version})." if done else f"{self.key}: the table follows its spec already."
        ]
        if self.outdated:
            lines += [
                f"{len(self.outdated):,} partitions were published before the spec changed: they have NULL in new columns until they are "
                "launched again.",
                "",
                *(f"  {command}" for command in self.commands),
                "",
                "With `only: MISSING` one launch over everything does the same, and leaves out what is done already:",
                "",
                f"  {self.commands[0].rsplit(' --partition-range', 1)[0]} --partition-range {self.outdated[0]}...{self.outdated[-1]} \\",
                f"    --config-json '{_only_missing(self.key)}'",
            ]
        if self.has_stream and done:
            lines += ["", "Restart the live writer: until then it appends rows without the new columns."]
        return "\n".join(lines)


def apply(module: str, key: str, log: Callable[[str], None]) -> Applied:
    """Let a table follow its spec, and say which partitions are to be launched again.

    Raises:
        ConfigurationError: There is no such module or table.
        SchemaMismatchError: It cannot be done in place. The table is as it was.
        PublishError: Another writer came between. The table is as it was; a retry is safe.
    """
    from backfill_assets.lake.evolution import evolve

    table, _ = table_of(load_definitions(module), key, module)
    delta = Lakehouse().table(table.spec, log)
    evolved = evolve(delta)
    outdated = outdated_partitions(table, delta.published())
    return Applied(key, evolved, tuple(p.key for p in outdated), tuple(launch_commands(key, outdated)), table.spec.live is not None)


def outdated_partitions(table: Table, published: dict[str, PublishedPartition]) -> list[Partition]:
    """Return the partitions that were published with other columns or by other code than the spec's now."""
    grid = table.spec.grid
    return sorted(grid.partition(key) for key, found in published.items() if found.receipt.code_version != table.code_version)


def launch_commands(key: str, partitions: Sequence[Partition]) -> list[str]:
    """Return a launch for each run of consecutive partitions."""
    return [f"dg launch --assets 'key:\"{key}\"' --partition-range {run[0].key}...{run[-1].key}" for run in runs_of(partitions)]


def _only_missing(key: str) -> str:
    return json.dumps({"ops": {key.replace("/", "__"): {"config": {"only": "MISSING"}}}})
