"""`backfill-assets capture`: the changes of a database's tables, landed as files until it is stopped."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, diary, new_console, one_message_for_an_error
from backfill_assets.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets.live.changes.capture import Capture
    from backfill_assets.live.changes.landed import Landed


@click.command()
@click.argument("name")
@click.option("--once", is_flag=True, help="Land what the server has by now, and exit.")
@click.option("--every", "every", type=float, default=1.0, show_default=True, help="Seconds between two looks.")
@definitions_option
def capture(name: str, *, once: bool, every: float, module: str) -> None:
    """Land the changes of the tables whose spec says `changes: {capture: NAME}`, each transaction exactly once.

    The database keeps what has not landed, in a replication slot: while this command does not run, its disk fills.
    Files lie in `landing/changes/NAME`; `backfill-assets live KEY` folds them into a table. Stop it with Ctrl-C or
    SIGTERM, or kill it: the next start continues where the files end. A restart of the database it waits for, and goes
    on. Start it before history is launched.

    \b
    What the database must have, once:
      wal_level = logical                              in postgresql.conf; it needs a restart
      ALTER ROLE capture REPLICATION;                  for the user in the address
      ALTER TABLE customers REPLICA IDENTITY FULL;     by the table's owner
      CREATE PUBLICATION backfill_assets_NAME FOR TABLE customers;    by its owner, unless the user may

    \b
    Examples:
      backfill-assets capture shop
      backfill-assets capture shop --once
    """
    from backfill_assets.live.changes.outages import capture_until_stopped

    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console()
        say = diary(console)
        found = capture_of(project, name, say)
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        landed = 0

        def report(each: Landed) -> None:
            nonlocal landed
            landed += each.changes
            if each.changes:
                say(str(each))

        say(f"Changes of {', '.join(map(str, found.tables))} land in {found.folder}.")
        if once:
            found.run(once=True, pause_seconds=every, stop=stop, report=report)
        else:
            capture_until_stopped(found, pause_seconds=every, stop=stop, report=report)
        console.print(f"{name}: stopped after {landed:,} changes.")


def capture_of(project: Project, name: str, say: Callable[[str], None]) -> Capture:
    """Return the capture of every table that names it.

    Raises:
        ConfigurationError: No table does, or their databases are not the same.
    """
    from backfill_assets.assets.factory import tables_of
    from backfill_assets.core.spec.databases import DatabaseSpec
    from backfill_assets.live.changes.capture import Capture
    from backfill_assets.live.changes.landed import CaptureTable
    from backfill_assets.sources.database.connection import Database

    tables, _ = tables_of(project.definitions)
    named = {key: table.spec for key, table in tables.items() if table.spec.changes}
    ours = [spec for spec in named.values() if spec.changes and spec.changes.capture == name]
    if not ours:
        known = sorted({spec.changes.capture for spec in named.values() if spec.changes})
        raise ConfigurationError(
            f"No table in `{project.module}` says `changes: {{capture: {name}}}`.",
            state="Nothing was read.",
            remedy=f"There are: {', '.join(known)}." if known else "Add it to the tables of a database.",
        )
    followed = [(spec, spec.source) for spec in ours if isinstance(spec.source, DatabaseSpec)]
    connections = sorted({source.connection for _, source in followed})
    if len(connections) > 1:
        raise ConfigurationError(
            f"The tables of the capture `{name}` are in several databases: "
            f"{', '.join(f'`{one}`' for one in connections)}.",
            state="Nothing was read.",
            remedy="Give each database a capture of its own.",
        )
    optional, keys = dict[tuple[str, str], set[str]](), dict[tuple[str, str], set[tuple[str, ...]]]()
    for spec, source in followed:
        of_it = {spec.field_of(name) for name, column in spec.columns.items() if column.optional}
        optional.setdefault(source.schema_and_name, set()).update(of_it)
        keys.setdefault(source.schema_and_name, set()).add(tuple(map(spec.field_of, spec.key_columns)))
    captured = [CaptureTable(*table, frozenset(optional[table]), frozenset(keys[table])) for table in optional]
    database = Database.of_a_capture(connections[0], name, say)
    return Capture(name, database, captured, project.lakehouse.capture_folder(name), log=say)
