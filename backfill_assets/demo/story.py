"""The demo: three years of orders, told step by step, with Dagster's own commands in processes of their own.

The processes share one Spark, so that each launch need not start a JVM.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from backfill_assets.demo.place import FIRST_DAY, LATE_DAYS, TABLE, Shop
from backfill_assets.demo.processes import MODULE, Behind, Streamed, ending_all, launch, reconcile

EVENTS_PER_SECOND = 20
CHUNKS = 2
KILL_AFTER_CHUNK = 1


@dataclass(slots=True)
class Story:
    """What happened so far, for the summary at the end."""

    console: Console
    rows: list[tuple[str, str, bool]] = field(default_factory=list[tuple[str, str, bool]])
    is_good: bool = True
    steps: int = 0
    at_each_step: Callable[[], None] = lambda: None

    def step(self, title: str) -> None:
        self.at_each_step()
        self.steps += 1
        self.console.print(f"\n[bold]{self.steps}. {title}[/]")

    def tell(self, claim: str, figure: str, seconds: float, *, good: bool = True) -> None:
        """Say what came of a step.

        Args:
            claim: What it was to show.
            figure: What was measured.
            good: Whether the claim holds.
        """
        self.rows.append((claim, figure, good))
        self.is_good = self.is_good and good
        self.console.print(
            f"   {'[green]' if good else '[bold red]'}{figure}[/] [dim]({seconds:.0f} s)[/]", highlight=False
        )

    def summary(self, seconds: float, next_steps: Sequence[tuple[str, str]]) -> int:
        """Show in a table what was proven, and what to try next; return the exit code.

        Args:
            next_steps: Commands, and what each is for.
        """
        table = Table(title=f"\nWhat {seconds:.0f} seconds have shown", title_justify="left", show_lines=False)
        table.add_column("claim", overflow="fold")
        table.add_column("figure", overflow="fold")
        table.add_column("verdict")
        for claim, figure, good in self.rows:
            table.add_row(claim, figure, "[green]holds[/]" if good else "[bold red]DOES NOT HOLD[/]")
        self.console.print(table)
        if not self.is_good:
            self.console.print("[bold red]A step did not end as it should; its line above is red.[/]")
            return 1
        self.console.print("[bold green]Every step ended as it should.[/] What to try next:")
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
    console.print("[bold]Three years of orders, backfilled beside a stream that does not stop[/]")
    console.print(
        f"Everything is kept below {shop.root}; Dagster's history in {os.environ['DAGSTER_HOME']}.", highlight=False
    )
    shop.make_room()
    before = dict(os.environ)
    try:
        with shop.belongings.noted(), ending_all():
            _tell(shop, story, started)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return story.summary(time.monotonic() - started, _next_steps(shop))


def _tell(shop: Shop, story: Story, started: float) -> None:
    events, writer = _begin(shop, story, started)
    if not story.is_good:
        return
    _load_history(shop, story)
    _break_a_day(shop, story)
    _close_shop(story, events, writer)
    _correct_and_fold(shop, story)
    _prove(shop, story)


def _begin(shop: Shop, story: Story, started: float) -> tuple[Behind, Behind]:
    """Start the shop's events and the live writer, whose Spark every launch will use; return both."""
    story.step("New orders land, and a stream appends them to the table; the old system's export is written meanwhile")
    flags = ["--orders-per-day", str(shop.orders_per_day), "--days", str(shop.days), "--seed", str(shop.seed)]
    events = Behind.start(story.console, "demo", *flags, "events", "--rate", f"{EVENTS_PER_SECOND}")
    is_own = not os.environ.get("SPARK_REMOTE")
    start = Behind.start_sharing if is_own else Behind.start
    writer = start(story.console, "live", TABLE)
    make_data(shop, story.console)
    with story.console.status("waiting for the first batch"):
        good = writer.wait_for("rows per second", seconds=300)
    seconds = time.monotonic() - started
    said = f"{seconds:.0f} s after the start" if good else " ".join(writer.lines[-3:])
    story.tell("the first rows are there", said, seconds, good=good)
    if is_own:
        os.environ.update(writer.exported(seconds=0))
    return events, writer


def _load_history(shop: Shop, story: Story) -> None:
    chunk = {"max_partitions_per_chunk": -(-shop.days // CHUNKS), "reason": "history of the old system"}
    story.step(f"A launch of {shop.days:,} partitions beside it is killed with kill -9 after its first commit")
    killed = launch(story.console, [TABLE], shop.all_days, {"bronze__orders": chunk}, kill_after=KILL_AFTER_CHUNK)
    said = f"{killed.partitions:,} partitions are published and stay"
    good = killed.killed and killed.chunks == KILL_AFTER_CHUNK
    story.tell("a killed launch loses no commit", said, killed.seconds, good=good)

    story.step("The same launch again, with `only: MISSING`")
    launched = launch(story.console, [TABLE], shop.all_days, {"bronze__orders": {**chunk, "only": "MISSING"}})
    good = launched.ok and launched.left_out >= killed.partitions
    story.tell("a second launch does the rest", launched.said(), launched.seconds, good=good)


def _break_a_day(shop: Shop, story: Story) -> None:
    from backfill_assets.demo.spoiling import corrupt_day

    story.step(f"Somebody changes the export of {shop.broken_day} behind our back")
    story.console.print(f"   {corrupt_day(shop.export, shop.broken_day)}", highlight=False)
    found = reconcile(story.console, TABLE, shop.last_days, show=str(shop.broken_day))
    good = found.exit_code == 1 and str(shop.broken_day) in found.differing and len(found.differing) <= 1 + LATE_DAYS
    late = len(found.differing) - 1
    said = f"{shop.broken_day} differs; so do {late} of {found.compared} days, for which events came late"
    story.tell("a changed source is found", said if good else found.said(), found.seconds, good=good)


def _close_shop(story: Story, events: Behind, writer: Behind) -> None:
    story.step("The shop closes; every event that landed is somewhere")
    at = time.monotonic()
    events.stop()
    landed = int(events.lines[-1].split()[0].replace(",", "")) if events.lines else 0
    with story.console.status("the last batches"):
        until = time.monotonic() + 60
        while _total(streamed := Streamed.of(writer.lines)) < landed and time.monotonic() < until:
            time.sleep(0.5)
    said = (
        f"{landed:,} events landed: {streamed.rows:,} in the table, {streamed.late:,} late and beside it, "
        f"{streamed.quarantined:,} quarantined; in {streamed.batches:,} batches, "
        f"at most {streamed.worst_lag_seconds:.1f} s behind"
    )
    story.tell("the stream lost no event", said, time.monotonic() - at, good=_total(streamed) == landed)


def _total(streamed: Streamed) -> int:
    return streamed.rows + streamed.late + streamed.quarantined


def _correct_and_fold(shop: Shop, story: Story) -> None:
    from backfill_assets.demo.spoiling import restore_day

    story.step("The export is corrected, and its last days are launched again: late events are folded in")
    restore_day(shop.export, shop.broken_day)
    config = {"bronze__orders": {"reason": "export corrected, late events folded in"}}
    launched = launch(story.console, [TABLE], shop.last_days, config)
    good = launched.ok and launched.partitions <= LATE_DAYS and launched.identical >= shop.count_of_last - LATE_DAYS
    story.tell("only what differs is written", launched.said(), launched.seconds, good=good)


def _prove(shop: Shop, story: Story) -> None:
    story.step("Source and table are both read afresh, and compared across the fence")
    found = reconcile(story.console, TABLE)
    for check in found.at_fence:
        story.console.print(
            f"   {'[green]ok [/]' if check['passed'] else '[yellow]-- [/]'} {check['check']}: {check['what']}",
            highlight=False,
        )
    good = not found.differing and found.compared == shop.days and (found.exit_code == 0 or not shop.reaches_fence)
    story.tell("the table equals its source", found.said(), found.seconds, good=good)


def _next_steps(shop: Shop) -> list[tuple[str, str]]:
    is_clone = all(Path(name).exists() for name in ("Makefile", "backfill_assets/demo/story.py"))
    ours = _as_typed("backfill-assets")
    home = os.environ["DAGSTER_HOME"]
    browser = "make ui" if is_clone else f"DAGSTER_HOME={home} {_as_typed('dagster')} dev -m {MODULE}"
    return [
        (browser, "the same in the browser: partitions, plots, checks, runs"),
        (f"{ours} plan {TABLE} --partition-range {shop.last_days}", "what another launch would do, and why"),
        (f"{ours} history {TABLE}", "who changed the table, when and why"),
    ]


def _as_typed(command: str) -> str:
    """Return a command as a shell in this folder finds it."""
    path, here = Path(sys.executable).with_name(command), Path.cwd()
    return command if which(command) else str(path.relative_to(here) if path.is_relative_to(here) else path)
