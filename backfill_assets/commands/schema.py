"""`backfill-assets schema`: a table's columns, changed first in its YAML and then in the table."""

from __future__ import annotations

import difflib
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, json_option, new_console, one_message_for_an_error
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.commands.schema_report import Applied, Proposal
    from backfill_assets.core.calendar.partitions import Partition
    from backfill_assets.core.state.receipts import PublishedPartition
    from backfill_assets.runs.table import Table


@click.command()
@click.argument("key")
@click.option("--write", is_flag=True, help="Change the YAML as the diff says.")
@click.option(
    "--apply", "apply_", is_flag=True, help="Let the table follow the YAML as it is now, and say what to launch again."
)
@json_option
@definitions_option
def schema(key: str, *, write: bool, apply_: bool, as_json: bool, module: str) -> None:
    """Hold the columns of KEY against its source and the newest live events, and propose changes of its YAML.

    The spec is the contract: without --write nothing is changed, and the table never, except by --apply, which adds new
    nullable columns in a commit of its own. A column is never dropped or renamed, and no type changed, in a table by
    itself.

    \b
    Exit code:  0  nothing to do, or it is done
                1  a change is proposed, or something is to be decided
                2  something cannot be done in place, or the command is wrong

    \b
    Examples:
      backfill-assets schema bronze/orders
      backfill-assets schema bronze/orders --write
      backfill-assets schema bronze/orders --apply
    """
    if write and apply_:
        raise click.UsageError("--write changes the YAML, --apply the table: look at the one before you do the other.")
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console(stderr=True)
        with console.status(f"Looking at {key}"):
            applied = apply(project, key, console.log) if apply_ else None
            proposal = None if apply_ else propose(project, key, write=write, log=console.log)
    if applied is not None:
        click.echo(applied.to_json() if as_json else applied.to_text())
    if proposal is not None:
        proposal.show(new_console(), as_json=as_json)
        sys.exit(proposal.exit_code)


def propose(project: Project, key: str, *, write: bool, log: Callable[[str], None]) -> Proposal:
    """Look at source, spec and table, and propose a change of the YAML. Never touches the table.

    Args:
        write: Whether to change the YAML.

    Raises:
        ConfigurationError: There is no such table, or its YAML cannot be changed.
        SourceMissingError: The source is not there.
    """
    from backfill_assets.commands.schema_report import Proposal
    from backfill_assets.commands.yaml_edit import edited
    from backfill_assets.core.schema.compare import compare_columns, compare_events
    from backfill_assets.lake.evolution import columns_of

    chosen = project.table(key)
    table, lakehouse = chosen.table, chosen.lakehouse
    transform = table.transform() if table.transform else None
    seen = lakehouse.source(table.spec, chosen.specs, transform, log).observed_columns()
    kept = columns_of(lakehouse.table(table.spec, log))
    changes = compare_columns(table.spec, seen, kept)
    if live := table.spec.live:
        from backfill_assets.live.landing import fields_of_newest

        events = fields_of_newest(lakehouse.session, table.spec, live, lakehouse.landing_path(live.path))
        changes += compare_events(table.spec, events, kept, changes)
    proposal = Proposal(key, tuple(changes), table.file)
    if not proposal.lines or not table.file:
        return proposal
    path = Path(table.file)
    before = path.read_bytes().decode()
    try:
        after = edited(before, key, changes)
    except ConfigurationError:
        if write:
            raise
        return proposal
    shown = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    diff = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{shown}", f"b/{shown}"))
    if write:
        whole, beside = path.resolve(), path.resolve().with_name(f".{path.name}.new")
        beside.write_bytes(after.encode())
        shutil.copymode(whole, beside)
        beside.replace(whole)
    return Proposal(key, tuple(changes), table.file, diff, written=write)


def apply(project: Project, key: str, log: Callable[[str], None]) -> Applied:
    """Let a table follow its spec, and say which partitions are to be launched again.

    Raises:
        ConfigurationError: There is no such table.
        SchemaMismatchError: It cannot be done in place. The table is as it was.
        PublishError: Another writer came between. The table is as it was; a retry is safe.
    """
    from backfill_assets.commands.schema_report import Applied
    from backfill_assets.lake.evolution import evolve

    chosen = project.table(key)
    delta = chosen.lakehouse.table(chosen.spec, log)
    evolved = evolve(delta)
    outdated = outdated_partitions(chosen.table, delta.published())
    return Applied(
        key,
        evolved,
        tuple(p.key for p in outdated),
        tuple(launch_commands(key, outdated)),
        has_stream=chosen.spec.live is not None,
    )


def outdated_partitions(table: Table, published: dict[str, PublishedPartition]) -> list[Partition]:
    """Return the partitions that were published with other columns or by other code than the spec's now."""
    from backfill_assets.core.state.partition_status import Known, State, status_of

    partitions = table.spec.grid.from_start(published)
    found = status_of(partitions, Known(published=published, code_version=table.code_version))
    return [status.partition for status in found if State.STALE_CODE in status.states]


def launch_commands(key: str, partitions: Sequence[Partition]) -> list[str]:
    """Return a launch for each run of consecutive partitions."""
    from backfill_assets.core.calendar.partitions import runs_of

    return [
        f"dg launch --assets 'key:\"{key}\"' --partition-range {run[0].key}...{run[-1].key}"
        for run in runs_of(partitions)
    ]
