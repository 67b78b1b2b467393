"""`backfill-assets live`: a table's live stream, written until it is stopped."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import click

from backfill_assets.commands.acknowledge import acknowledge_files
from backfill_assets.commands.fence import with_stream
from backfill_assets.commands.follow_changes import follow_changes
from backfill_assets.commands.project import Project
from backfill_assets.commands.terminal import definitions_option, diary, new_console, one_message_for_an_error

if TYPE_CHECKING:
    from backfill_assets.live.writer import BatchReport


@click.command()
@click.argument("key")
@click.option("--once", is_flag=True, help="Write all that has landed, and exit.")
@click.option(
    "--new-stream", is_flag=True, help="Start over with every event that landed, after the checkpoint was lost."
)
@click.option(
    "--accept-late",
    is_flag=True,
    help="Write a new stream's first batch although almost all of its rows are late.",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Folder of Spark's checkpoint. Default: `checkpoints/KEY` below the lakehouse root.",
)
@click.option(
    "--acknowledge",
    "dealt_with",
    metavar="FILE",
    multiple=True,
    help="Note that a file that changed after it landed was dealt with, and exit: `landed_files_are_as_read` names it.",
)
@definitions_option
def live(
    key: str,
    *,
    once: bool,
    new_stream: bool,
    accept_late: bool,
    checkpoint: str | None,
    dealt_with: tuple[str, ...],
    module: str,
) -> None:
    """Append events to the table KEY as they land, or fold in the changes of its database, each exactly once.

    Events from before the fence go to `<table>_late`, and are part of their partition from its next launch on. What
    cannot be read as an event goes to `<table>_quarantine` with the reason. Stop it with Ctrl-C or SIGTERM, or kill
    it: the next start continues where it was. History may be launched at the same time.

    Of a table with `changes:` every partition that a change touches is overwritten, every `refresh_seconds`; what was
    never launched is, as `changes.backfill` says. `backfill-assets capture` lands the changes.

    \b
    Examples:
      backfill-assets live bronze/orders
      backfill-assets live bronze/orders --once
      backfill-assets live bronze/orders --acknowledge /data/lakehouse/landing/order_events/a.json
    """
    with one_message_for_an_error(), Project.load(module) as project:
        console = new_console()
        if dealt_with:
            acknowledge_files(project, key, dealt_with, checkpoint=checkpoint, log=new_console(stderr=True).log)
            console.print(f"{key}: {len(dealt_with):,} files are noted as dealt with.", highlight=False)
            return

        say = diary(console)
        how = {"once": once, "new_stream": new_stream, "accept_late": accept_late}
        batches = write_live(project, key, **how, checkpoint=checkpoint, say=say)
        console.print(f"{key}: stopped after {batches:,} batches.")


def write_live(
    project: Project,
    key: str,
    *,
    once: bool,
    new_stream: bool,
    accept_late: bool,
    checkpoint: str | None,
    say: Callable[[str], None],
) -> int:
    """Write a table's live stream until it is stopped; return how many batches there were.

    Raises:
        ConfigurationError: There is no such table, it has no live stream, or it is a version that was retired.
        TableLockedError: Its stream is being written.
        LiveError: The stream cannot go on; no event is lost.
    """
    import dagster as dg

    from backfill_assets.assets.live import LiveReporter, live_asset_key
    from backfill_assets.assets.live_partitions import LivePartitions

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: (say("Stopping after the batch at hand."), stop.set())[1])
    asked = project.table(key)
    if asked.spec.changes:
        return follow_changes(asked, asked.spec.changes, once=once, is_new_feed=new_stream, stop=stop, say=say)
    chosen, stream = with_stream(asked)
    writer = chosen.lakehouse.live_writer(chosen.spec, stream, say, tables=chosen.specs, checkpoint=checkpoint)
    writer.accept_late = accept_late
    writer.refuse()  # here too, before it is said that events are appended
    say(f"{key}: events that land in {writer.folder} are appended.")
    with contextlib.ExitStack() as opened:
        instance = cache(lambda: opened.enter_context(dg.DagsterInstance.get()))  # not before a batch is written
        reporter = LiveReporter(instance, live_asset_key(chosen.spec), LivePartitions(writer.table))

        def report(batch: BatchReport) -> None:
            say(str(batch))
            reporter.saw(batch)

        writer.report = report
        try:
            return writer.run(once=once, is_new_stream=new_stream, stop=stop)
        finally:
            try:
                reporter.end()
            except Exception as error:  # noqa: BLE001 (the batches are written; how the writer ended must not be hidden)
                say(f"Dagster could not be told of the last batches: {type(error).__name__}: {error}")
