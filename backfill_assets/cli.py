"""`backfill-assets`: what Dagster's own command line lacks."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from backfill_assets.errors import BackfillAssetsError, ConfigurationError

if TYPE_CHECKING:
    from backfill_assets.commands.reconciliation_report import Reconciliation

EXIT_DIFFERS = 1
EXIT_USAGE = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="backfill-assets")
def main() -> None:
    """Backfills for a lakehouse that are safe by construction.

    A backfill itself is an ordinary Dagster launch:

    \b
      dg launch --assets 'key:"bronze/orders"' --partition-range 2023-01-01...2025-12-31

    These commands add what Dagster's own lack. They read LAKEHOUSE_ROOT (default `.lakehouse`) and DAGSTER_HOME
    (default `.dagster`, both in the working directory).
    """


_definitions = click.option(
    "--definitions",
    "module",
    default="backfill_assets.definitions",
    show_default=True,
    metavar="MODULE",
    help="Module of the Dagster definitions that hold the table.",
)


@main.command()
@click.argument("key")
@click.option(
    "--partition-range",
    metavar="A...B",
    help="First and last partition, both included. Default: every partition that the source is complete for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@_definitions
def reconcile(key: str, partition_range: str | None, as_json: bool, module: str) -> None:
    """Compare the table KEY with its source, partition by partition.

    Source and table are both read afresh, at a pinned point. Counts and checksums must be equal; where they are not, the
    rows that only one side has are named. The outcome is recorded in Dagster as the table's checks.

    \b
    Exit code:  0  every partition equals its source
                1  some do not
                2  the command itself is wrong, or it could not be done

    \b
    Examples:
      backfill-assets reconcile bronze/orders
      backfill-assets reconcile bronze/orders --partition-range 2024-01-01...2024-01-31
      backfill-assets reconcile silver/daily_sales --json > report.json
    """
    with _usage_errors():
        from backfill_assets.commands.reconciliation_report import reconcile_and_record

        console = Console(stderr=True)
        with console.status(f"Comparing {key} with its source"):
            report = reconcile_and_record(module, key, partition_range, log=console.log)
    click.echo(report.to_json() if as_json else "", nl=as_json)
    if not as_json:
        _print_report(report)
    sys.exit(0 if report.passed else EXIT_DIFFERS)


def _print_report(report: Reconciliation) -> None:
    from rich.table import Table

    console = Console()
    if not report.passed:
        table = Table(title=f"{report.key}: partitions that differ from their source", title_justify="left")
        for name, justify in (("partition", "left"), ("source rows", "right"), ("table rows", "right"), ("what differs", "left")):
            table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for comparison in report.differing:
            source = "?" if comparison.source_rows is None else f"{comparison.source_rows:,}"
            table.add_row(comparison.partition, source, f"{comparison.table_rows:,}", "\n".join(map(_in_words, comparison.failures)))
        if report.differing:
            console.print(table)
    for check in report.at_fence:
        console.print(f"{'[green]ok  [/]' if check.passed else '[red]not [/]'} {check.name}: {check.what}", highlight=False)
    console.print(report.summary(), style="bold green" if report.passed else "bold red", highlight=False)


def _in_words(failure: dict[str, Any]) -> str:
    named = "".join(f"\n  {example}" for example in failure["examples"])
    return f"{failure['rule']}: {failure['what']}{named}"


@main.command()
@click.argument("key")
@click.option(
    "--at", metavar="INSTANT", help="Move the fence to this instant, with its zone: 2026-01-01T00:00:00Z. Rounded up to a partition."
)
@click.option(
    "--carry-live-rows", is_flag=True, help="Keep what the stream wrote into sealed partitions beside the table, to be folded in."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@_definitions
def fence(key: str, at: str | None, carry_live_rows: bool, as_json: bool, module: str) -> None:
    """Show where history ends and the live stream begins in the table KEY, or move that fence forward.

    History owns the partitions before the fence, the live stream those from it on. Moving it seals closed live partitions:
    they become history, and can be launched from their source. The fence may be moved into the future, and never back. The
    live writer need not be stopped.

    \b
    Examples:
      backfill-assets fence bronze/orders
      backfill-assets fence bronze/orders --at 2026-02-01T00:00:00Z
      backfill-assets fence bronze/orders --at 2026-02-01T00:00:00Z --carry-live-rows
    """
    with _usage_errors():
        from backfill_assets.commands.fence import look_at_fence

        console = Console(stderr=True)
        with console.status(f"Looking at {key}"):
            report = look_at_fence(module, key, at, carry=carry_live_rows, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        Console().print(report.to_table())


@main.command()
@click.argument("key")
@click.option("--once", is_flag=True, help="Write all that has landed, and end.")
@click.option("--new-stream", is_flag=True, help="Start over with every event that landed, after the checkpoint was lost.")
@click.option("--checkpoint", metavar="FOLDER", help="Folder of Spark's checkpoint. Default: `checkpoints/KEY` below the lakehouse root.")
@_definitions
def live(key: str, once: bool, new_stream: bool, checkpoint: str | None, module: str) -> None:
    """Append events to the table KEY as they land, each exactly once.

    Events from before the fence go to `<table>_late`, and are part of their partition from its next launch on. What is no
    event goes to `<table>_quarantine` with the reason. Stop it with Ctrl-C or SIGTERM, or kill it: the next start goes on
    where it was. History may be launched all the while.

    \b
    Examples:
      backfill-assets live bronze/orders
      backfill-assets live bronze/orders --once
    """
    with _usage_errors():
        from backfill_assets.commands.fence import write_live

        console = Console()
        batches = write_live(module, key, once=once, new_stream=new_stream, checkpoint=checkpoint, say=lambda text: _say(console, text))
    console.print(f"{key}: stopped after {batches:,} batches.")


def _say(console: Console, text: str) -> None:
    console.print(f"[dim]{datetime.now(UTC):%H:%M:%S}[/] {text}", highlight=False, soft_wrap=True)


@main.command()
@click.argument("key")
@click.option("--reset", metavar="NAME", help="Let the flow NAME, or `all` of them, run again at its next launch. Nothing is deleted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@_definitions
def once(key: str, reset: str | None, as_json: bool, module: str) -> None:
    """Show which once-flows of the table KEY have run, when and in which run; or reset them.

    A once-flow loads its range of partitions exactly once: launch its asset, and a second launch writes nothing. A reset is
    a commit without rows in the table's log. The rows stay; the next launch of the flow replaces them.

    \b
    Examples:
      backfill-assets once bronze/registration_events
      backfill-assets once bronze/registration_events --reset registration_events_2023
      backfill-assets once bronze/registration_events --reset all --json
    """
    with _usage_errors():
        from backfill_assets.assets.once import look_at_flows

        console = Console(stderr=True)
        with console.status(f"Looking at {key}"):
            report = look_at_flows(module, key, reset, log=console.log)
    if as_json:
        click.echo(report.to_json())
    else:
        Console().print(report.to_table())


@main.command()
@click.argument("key")
@click.option("--write", is_flag=True, help="Change the YAML as the diff says.")
@click.option("--apply", "apply_", is_flag=True, help="Let the table follow the YAML as it is now, and say what to launch again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@_definitions
def schema(key: str, write: bool, apply_: bool, as_json: bool, module: str) -> None:
    """Hold the columns of the table KEY against its source, and propose a change of its YAML.

    The spec is the contract: without --write nothing is changed, and the table never, except by --apply, which adds new
    nullable columns in a commit of its own. A column is never dropped or renamed, and no type changed, in a table by itself.

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
    with _usage_errors():
        from backfill_assets.commands.schema import apply, propose

        console = Console(stderr=True)
        if write and apply_:
            raise click.UsageError("--write changes the YAML, --apply the table: look at the one before you do the other.")
        with console.status(f"Looking at {key}"):
            applied = apply(module, key, console.log) if apply_ else None
            proposal = None if apply_ else propose(module, key, write=write, log=console.log)
    if applied is not None:
        click.echo(applied.to_json() if as_json else applied.to_text())
    if proposal is not None:
        proposal.show(Console(), as_json=as_json)
        sys.exit(proposal.exit_code)


@main.command("json-schema")
def json_schema() -> None:
    """Print the JSON schema of a `defs.yaml`, by which editors complete its fields, explain them, and mark mistakes.

    \b
    Examples:
      backfill-assets json-schema > table.schema.json

    First line of each `defs.yaml` then: `# yaml-language-server: $schema=<path of that file>`
    """
    import json

    from backfill_assets.assets.component import yaml_schema

    click.echo(json.dumps(yaml_schema(), indent=2))


@main.command()
@click.argument("key")
@click.option("--from", "source", required=True, metavar="PATH", help="Folder of the files, below `landing/`; or an absolute path or URI.")
@click.option("--output", metavar="FILE", help="Where to write it; `-` prints it. Default: `<defs folder of the project>/KEY/defs.yaml`.")
def init(key: str, source: str, output: str | None) -> None:
    """Write a first `defs.yaml` for the table KEY, from a look at a few of the files that it is to be made of.

    Whatever was guessed says so in a comment on its line. Read it before the first launch.

    \b
    Examples:
      backfill-assets init bronze/orders --from orders
      backfill-assets init bronze/orders --from s3a://bucket/export/orders --output -
    """
    with _usage_errors():
        from backfill_assets.commands.first_draft import first_spec, place_for

        console = Console(stderr=True)
        path = None if output == "-" else place_for(key, output)
        with console.status(f"Looking at {source}"):
            text = first_spec(key, source)
        if path is None:
            click.echo(text, nl=False)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        console.print(f"{path} is written. Read it, put right what was guessed, and run `dg check defs`.", highlight=False, soft_wrap=True)


@main.group(invoke_without_command=True)
@click.option("--orders-per-day", default=300, show_default=True, help="Orders on an average day.")
@click.option("--days", default=1096, show_default=True, help="Days from 2023-01-01 on; 1,096 end with 2025-12-31.")
@click.option("--seed", default=2023, show_default=True, help="The same seed makes the same orders.")
@click.pass_context
def demo(context: click.Context, orders_per_day: int, days: int, seed: int) -> None:
    """Load three years of orders behind a running stream, kill the launch half-way, resume it, break a day, prove the result.

    Everything happens below LAKEHOUSE_ROOT (default `.lakehouse`) and is seen afterwards in the UI (`make ui`).
    """
    from backfill_assets.demo.story import Shop

    with _usage_errors():
        context.obj = Shop.from_environment(orders_per_day=orders_per_day, days=days, seed=seed)
    if context.invoked_subcommand is None:
        with _usage_errors():
            from backfill_assets.demo.story import tell

            sys.exit(tell(context.obj, Console()))


@demo.command()
@click.pass_context
def data(context: click.Context) -> None:
    """Only make the data: the old system's export below `landing/orders`, and registrations below `landing/registrations`."""
    with _usage_errors():
        from backfill_assets.demo.registrations import make_registrations
        from backfill_assets.demo.story import make_data

        console = Console()
        make_data(context.obj, console)
        make_registrations(context.obj.root / "landing" / "registrations", context.obj.seed, console)


@demo.command()
@click.option("--rate", default=20.0, show_default=True, help="Events per second.")
@click.option("--seconds", type=float, help="How long. Default: until stopped.")
@click.pass_context
def events(context: click.Context, rate: float, seconds: float | None) -> None:
    """Let order events land in `landing/order_events`, as a shop would: a file a second, some late, a few broken."""
    with _usage_errors():
        from backfill_assets.demo.events import EventStream

        shop = context.obj
        stream = EventStream(shop.events, shop.last_day, shop.orders_per_day, shop.seed)
        console = Console()
        with console.status("Events are landing") as shown, suppress(KeyboardInterrupt):
            for landed in stream.run(rate=rate, seconds=seconds):
                shown.update(f"{landed:,} events have landed in {shop.events}")
        console.print(f"{stream.landed:,} events have landed in {shop.events}", highlight=False, soft_wrap=True)


@demo.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the story.")
@click.pass_context
def collision(context: click.Context, as_json: bool) -> None:
    """Do what people do to a table that a stream writes, count the rows that are wrong, and do the same safely.

    A week of the shop's orders, about 300 a day, and four hazards. Each is run on Spark and Delta as it happens to people,
    then with this project's parts on the same data, and each row is held against what really happened:

    \b
      collision    a backfill and a stream write the same days: twice, lost, old
      retry        an appending job dies half-way and is started again
      overwhelmed  a query for each day at once, at a source that serves four
      boundary     history ends, and the stream begins, at two instants

    Tables are left in `collision` below LAKEHOUSE_ROOT to be looked at; the folder is deleted and made anew each time. Takes a
    minute or two. `--seed` of `demo` makes another week; its other options do not matter here.

    \b
    Exit code:  0  every hazard left wrong rows, and the safe way none
                1  one of them did not
                2  it could not be run

    \b
    Examples:
      backfill-assets demo collision
      backfill-assets demo --seed 7 collision --json
    """
    with _usage_errors():
        from backfill_assets.demo.collision import show

        shop = context.obj
        sys.exit(show(shop.root / "collision", shop.seed, Console(stderr=as_json), as_json=as_json))


class _usage_errors:  # noqa: N801 (used as a statement)
    """Print our own errors as one message and exit with 2."""

    def __enter__(self) -> None:
        _adopt_environment()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, BackfillAssetsError):
            console = Console(stderr=True)
            console.print(f"[bold red]{type(error).__name__}[/] {error.what}", highlight=False, soft_wrap=True)
            console.print(error.state, highlight=False, soft_wrap=True)
            console.print(error.remedy, highlight=False, soft_wrap=True)
            sys.exit(EXIT_USAGE)


def _adopt_environment() -> None:
    """Give Dagster a home if it has none: the working directory's `.dagster`, with this project's settings."""
    import os

    home = Path(os.environ.setdefault("DAGSTER_HOME", str(Path.cwd() / ".dagster")))
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"DAGSTER_HOME (`{home}`) cannot be made: {error}.",
            state="Nothing was run.",
            remedy="Set it to a folder that you may write to.",
        ) from error
    settings = home / "dagster.yaml"
    if not settings.exists() and Path("dagster.yaml").exists():
        settings.write_text(Path("dagster.yaml").read_text())


if __name__ == "__main__":
    main()
