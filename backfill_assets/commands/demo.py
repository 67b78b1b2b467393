"""`backfill-assets demo`: the shop's data, its events, and the story that is told with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from backfill_assets.commands.terminal import DEFINITIONS, SHOP, new_console, one_message_for_an_error


@click.group(invoke_without_command=True)
@click.option("--orders-per-day", default=300, show_default=True, help="Orders on an average day.")
@click.option("--days", default=1096, show_default=True, help="Days from 2023-01-01 on; 1,096 end with 2025-12-31.")
@click.option("--seed", default=2023, show_default=True, help="The same seed makes the same orders.")
@click.pass_context
def demo(context: click.Context, *, orders_per_day: int, days: int, seed: int) -> None:
    """Load three years of orders behind a running stream, kill the launch, resume it, break a day and repair it.

    Everything happens below LAKEHOUSE_ROOT (default `.lakehouse`) and can be seen afterwards in the UI (`make ui`).
    """
    from backfill_assets.demo.story import Shop

    context.with_resource(_of_the_shop())
    with one_message_for_an_error():
        context.obj = Shop.from_environment(orders_per_day=orders_per_day, days=days, seed=seed)
        if context.invoked_subcommand is None:
            from backfill_assets.demo.story import tell

            _end_as_by_ctrl_c()
            sys.exit(tell(context.obj, new_console()))


@demo.command()
@click.option("--rate", default=20.0, show_default=True, help="Events per second.")
@click.option("--seconds", type=float, help="How long. Default: until stopped.")
@click.pass_context
def events(context: click.Context, *, rate: float, seconds: float | None) -> None:
    """Let order events land in `landing/order_events`, as a shop would: a file a second, some late, a few broken."""
    with one_message_for_an_error():
        import signal

        from backfill_assets.demo.events import EventStream

        for number in (signal.SIGINT, signal.SIGTERM):  # a shell has what it runs behind it ignore the first
            signal.signal(number, signal.default_int_handler)
        shop = context.obj
        stream = EventStream(shop.events, shop.last_day, shop.orders_per_day, shop.seed)
        console = new_console()
        with console.status("Events are landing") as shown, suppress(KeyboardInterrupt):
            for landed in stream.run(rate=rate, seconds=seconds):
                shown.update(f"{landed:,} events have landed in {shop.events}")
        console.print(f"{stream.landed:,} events have landed in {shop.events}", highlight=False, soft_wrap=True)


@demo.command()
@click.option("--customers", default=40_000, show_default=True, help="Customers since 2025-01-01.")
@click.option("--rate", default=20.0, show_default=True, help="Transactions a second that change them meanwhile.")
@click.pass_context
def database(context: click.Context, *, customers: int, rate: float) -> None:
    """Let tables follow a database that does not stand still, kill what they follow it with, and compare row for row.

    A PostgreSQL server of its own is started below LAKEHOUSE_ROOT, with the customers of `bronze/customers` and an
    audit log. Clients go on changing them while the past is loaded and the changes are folded in. The writer of the
    table and the capture are killed with kill -9. In the end database and lakehouse have the same rows. Nothing keeps
    running. What an earlier run has left is deleted first. It takes three to six minutes, and needs the extra `demo`.

    \b
    Exit code:  0  every step ended as it should
                1  one of them did not
                2  it could not be run

    \b
    Examples:
      backfill-assets demo database
      backfill-assets demo database --customers 5000 --rate 5
    """
    with one_message_for_an_error():
        from backfill_assets.demo.database_story import tell

        _end_as_by_ctrl_c()
        shop = context.obj
        sys.exit(tell(shop.root, new_console(), customers=customers, rate=rate, seed=shop.seed))


@demo.command()
@click.pass_context
def version(context: click.Context) -> None:
    """Rebuild a table beside itself, with the two that are made of it; cut over, and back.

    Amounts get four digits behind the point, and a partition of orders becomes a month. Specs are written and edited,
    rows are copied and compared, and one commit gives readers all three tables; one more takes them back. It happens
    in `versions` below LAKEHOUSE_ROOT, in a project of its own, which each run deletes first. Takes two minutes, and
    needs the extra `demo`. `--orders-per-day` of `demo` makes more of it.

    \b
    Exit code:  0  every step ended as it should
                1  one of them did not
                2  it could not be run

    \b
    Examples:
      backfill-assets demo version
    """
    with one_message_for_an_error():
        from backfill_assets.demo.version_story import tell

        _end_as_by_ctrl_c()
        shop = context.obj
        sys.exit(tell(shop.root, new_console(), orders_per_day=shop.orders_per_day, seed=shop.seed))


@contextmanager
def _of_the_shop() -> Iterator[None]:
    """Have the commands of a story act on the shop, also in a project of one's own."""
    before = os.environ.get(DEFINITIONS)
    os.environ[DEFINITIONS] = SHOP
    try:
        yield
    finally:
        os.environ.pop(DEFINITIONS)
        os.environ.update({} if before is None else {DEFINITIONS: before})


def _end_as_by_ctrl_c() -> None:
    """Have what runs behind a story end with it, also where its terminal is closed, or somebody ends it by `kill`."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, signal.default_int_handler)
