"""The demo: three years of orders, told step by step, with Dagster's own commands in processes of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from backfill_assets.demo.place import FIRST_DAY, Shop
from backfill_assets.demo.processes import Behind, Streamed, launch, reconcile

ORDERS = ["bronze/orders"]
EVENTS_PER_SECOND = 20
CHUNKS = 4
KILL_AFTER_CHUNK = 2


@dataclass(slots=True)
class Story:
    """What happened so far, for the summary at the end."""

    console: Console
    rows: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])
    is_good: bool = True
    steps: int = 0
    at_each_step: Callable[[], None] = lambda: None

    def step(self, title: str) -> None:
        self.at_each_step()
        self.steps += 1
        self.console.print(f"\n[bold]{self.steps}. {title}[/]")

    def tell(self, what: str, result: str, seconds: float, *, good: bool = True) -> None:
        self.rows.append((what, result, seconds))
        self.is_good = self.is_good and good
        self.console.print(
            f"   {'[green]' if good else '[bold red]'}{result}[/] [dim]({seconds:.0f} s)[/]", highlight=False
        )

    def summary(self, seconds: float, next_steps: Sequence[tuple[str, str]]) -> int:
        """Show every step in a table, and what to try next; return the exit code.

        Args:
            next_steps: Commands, and what each is for.
        """
        table = Table(title=f"\nThe story in {seconds:.0f} seconds", title_justify="left", show_lines=False)
        table.add_column("step")
        table.add_column("what came of it", overflow="fold")
        table.add_column("seconds", justify="right")
        for what, result, took in self.rows:
            table.add_row(what, result, f"{took:.0f}")
        self.console.print(table)
        if not self.is_good:
            self.console.print("[bold red]A step did not end as it should; its line above is red.[/]")
            return 1
        self.console.print(
            "[bold green]Every step ended as it should.[/] What to try next, with the virtual environment active "
            "(`source .venv/bin/activate`):"
        )
        for command, why in next_steps:
            self.console.print(f"  {command}\n      [dim]{why}[/]", highlight=False, soft_wrap=True)
        return 0


def make_data(shop: Shop, console: Console) -> str:
    """Write the old system's export below `landing/orders`."""
    from backfill_assets.demo.orders import write_orders

    with Progress(
        TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("days written", total=shop.days)
        written = write_orders(
            shop.export,
            first_day=FIRST_DAY,
            days=shop.days,
            orders_per_day=shop.orders_per_day,
            seed=shop.seed,
            on_progress=lambda done, _: progress.update(task, completed=done),
        )
    mib = written.size_bytes / 2**20
    said = f"{written.rows:,} orders in {written.files:,} daily files, {mib:.0f} MiB, in {shop.export}"
    console.print(f"   {said}", highlight=False)
    return said


def tell(shop: Shop, console: Console) -> int:
    """Tell the whole story; return the exit code: 0 if every step ended as it should."""
    story = Story(console, at_each_step=shop.belongings.note)
    started = time.monotonic()
    console.print("[bold]Three years of orders, backfilled behind a stream that does not stop[/]")
    console.print(
        f"Everything is kept below {shop.root}; Dagster's history in {os.environ['DAGSTER_HOME']}.", highlight=False
    )
    shop.make_room()
    with shop.belongings.noted():
        _tell(shop, story)
    return story.summary(time.monotonic() - started, _next_steps(shop))


def _tell(shop: Shop, story: Story) -> None:
    console = story.console
    story.step("The old system's export, while Spark starts: every launch below borrows a session of it")
    at = time.monotonic()
    with _spark_kept_running(console) as spark:
        story.rows.append(("the export", make_data(shop, console), time.monotonic() - at))
        spark()
        events, writer = _start_stream(shop, story)
        try:
            _load_history(shop, story)
            broken = _break_a_day(shop, story)
            _stop_stream(story, events, writer)
        finally:
            events.stop()
            writer.stop()
        _mend_and_fold(shop, story, broken)
        _prove(shop, story)
        _rebuild_without_source(shop, story)


@contextmanager
def _spark_kept_running(console: Console) -> Iterator[Callable[[], None]]:
    """Start one Spark for the whole story, unless `SPARK_REMOTE` names one; yield a call that waits until it is there.

    What this process starts after that call uses it. Where it cannot be started, each launch has a JVM of its own.
    """
    if os.environ.get("SPARK_REMOTE"):
        yield lambda: None
        return
    before, server = dict(os.environ), Behind.start_spark(console)

    def wait() -> None:
        with console.status("waiting for Spark"):
            found = server.exported(seconds=120)
        if not found:
            console.print(f"   Each launch starts a Spark of its own: {' '.join(server.lines[-3:])}", highlight=False)
        os.environ.update(found)

    try:
        yield wait
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


def _start_stream(shop: Shop, story: Story) -> tuple[Behind, Behind]:
    """Let events land and be written, before history is read for the first time."""
    story.step("The shop does not stop: new orders land, and a stream appends them at and after the fence")
    at = time.monotonic()
    flags = ["--orders-per-day", str(shop.orders_per_day), "--days", str(shop.days), "--seed", str(shop.seed)]
    events = Behind.start(story.console, "demo", *flags, "events", "--rate", f"{EVENTS_PER_SECOND}")
    writer = Behind.start(story.console, "live", "bronze/orders")
    with story.console.status("waiting for the first batch"):
        good = writer.wait_for("rows per second", seconds=120)
    story.tell(
        "the stream",
        "the first batch is written" if good else " ".join(writer.lines[-3:]),
        time.monotonic() - at,
        good=good,
    )
    return events, writer


def _load_history(shop: Shop, story: Story) -> None:
    chunk = {"max_partitions_per_chunk": -(-shop.days // CHUNKS)}
    story.step(
        f"One launch over {shop.days:,} partitions behind it, killed with kill -9 after chunk {KILL_AFTER_CHUNK}"
    )
    config = {"bronze__orders": {**chunk, "reason": "history missing: of the old system"}}
    launched = launch(story.console, ORDERS, shop.all_days, config, kill_after=KILL_AFTER_CHUNK)
    good = launched.killed and launched.chunks >= KILL_AFTER_CHUNK
    story.tell(
        "killed half-way", f"killed; {launched.chunks} chunks are published and stay", launched.seconds, good=good
    )

    story.step("The same launch again, with `only: MISSING`")
    config = {"bronze__orders": {**chunk, "only": "MISSING", "reason": "history missing: of the old system"}}
    launched = launch(story.console, ORDERS, shop.all_days, config)
    story.tell("resumed", launched.said(), launched.seconds, good=launched.ok and launched.left_out > 0)


def _break_a_day(shop: Shop, story: Story) -> date:
    from backfill_assets.demo.spoiling import corrupt_day

    day = FIRST_DAY + timedelta(days=min(shop.days - 12, 400))
    story.step(f"Somebody changes the export of {day} behind our back")
    what = corrupt_day(shop.export, day)
    story.console.print(f"   {what}", highlight=False)
    found = reconcile(story.console, ORDERS[0], f"{day - timedelta(days=2)}...{day + timedelta(days=2)}", show=True)
    good = found.exit_code == 1 and str(day) in found.differing  # a day for which an event came late since differs too
    story.tell("a day broken", found.said(), found.seconds, good=good)
    return day


def _stop_stream(story: Story, events: Behind, writer: Behind) -> None:
    story.step("The stream is stopped; every event that landed is somewhere")
    at = time.monotonic()
    events.stop()
    landed = int(events.lines[-1].split()[0].replace(",", "")) if events.lines else 0
    with story.console.status("the last batches"):
        until = time.monotonic() + 60
        while _total(streamed := Streamed.of(writer.lines)) < landed and time.monotonic() < until:
            time.sleep(0.5)
    writer.stop()
    said = (
        f"{landed:,} events landed: {streamed.rows:,} in the table, {streamed.late:,} late and beside it, "
        f"{streamed.quarantined:,} quarantined; in {streamed.batches:,} batches, "
        f"at most {streamed.worst_lag_seconds:.1f} s behind"
    )
    story.tell("stream stopped", said, time.monotonic() - at, good=_total(streamed) == landed)


def _total(streamed: Streamed) -> int:
    return streamed.rows + streamed.late + streamed.quarantined


def _mend_and_fold(shop: Shop, story: Story, broken: date) -> None:
    from backfill_assets.demo.spoiling import restore_day

    story.step("The export is corrected. `only: MISSING` finds that day, and the days for which events came late")
    restore_day(shop.export, broken)
    config = {"bronze__orders": {"only": "MISSING", "reason": "export corrected, late events folded in"}}
    launched = launch(story.console, ORDERS, shop.all_days, config)
    good = launched.ok and 1 <= launched.partitions + launched.identical <= 11
    story.tell("mended and folded", launched.said(), launched.seconds, good=good)


def _prove(shop: Shop, story: Story) -> None:
    story.step("Launch the last month once more: nothing may change")
    launched = launch(
        story.console, ORDERS, shop.last_month, {"bronze__orders": {"reason": "to see that nothing changes"}}
    )
    good = launched.ok and launched.identical > 0 and launched.partitions == 0
    story.tell("launched again", launched.said(), launched.seconds, good=good)

    story.step("Reconcile across the fence: source and table are both read afresh")
    found = reconcile(story.console, ORDERS[0])
    for check in found.at_fence:
        story.console.print(
            f"   {'[green]ok [/]' if check['passed'] else '[yellow]-- [/]'} {check['check']}: {check['what']}",
            highlight=False,
        )
    story.tell(
        "reconciled",
        found.said(),
        found.seconds,
        good=not found.differing and (found.exit_code == 0 or not shop.reaches_fence),
    )


def _rebuild_without_source(shop: Shop, story: Story) -> None:
    story.step("Build the tables made of it while the export is out of reach")
    shop.export.rename(shop.away)
    try:
        launched = launch(
            story.console,
            ["silver/daily_sales"],
            shop.last_year,
            {"silver__daily_sales": {"reason": "new data: from stored orders"}},
        )
        story.tell("sales by day", f"{launched.said()}, from bronze/orders alone", launched.seconds, good=launched.ok)
        if shop.whole_months:
            launched = launch(story.console, ["gold/monthly_revenue"], shop.whole_months, {})
            story.tell("revenue by month", launched.said(), launched.seconds, good=launched.ok)
    finally:
        shop.away.rename(shop.export)


def _next_steps(shop: Shop) -> list[tuple[str, str]]:
    return [
        ("make ui", "the same in the browser: partitions, plots, checks, runs"),
        (f"""dg launch --assets 'key:"bronze/orders"' --partition-range {shop.last_month}""", "one month again"),
        (f"backfill-assets reconcile bronze/orders --partition-range {shop.last_month}", "prove it"),
        ("backfill-assets fence bronze/orders", "where history ends and the stream begins"),
        ("python -m examples.hazards", "what happens without a fence, and with one"),
        ("backfill-assets demo database", "a table that follows a database"),
    ]
