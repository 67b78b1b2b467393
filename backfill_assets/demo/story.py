"""The demo: three years of orders, told as a person would live it, with Dagster's own commands in processes of their own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from backfill_assets.errors import NOTHING_WRITTEN, ConfigurationError

FIRST_DAY = date(2023, 1, 1)
MODULE = "backfill_assets.definitions"
CHUNKS = 6
KILL_AFTER_CHUNK = 3


@dataclass(frozen=True, slots=True)
class Shop:
    """Where the demo happens, and how much of it.

    Args:
        root: The lakehouse's root: a local folder.
        days: Days from 2023-01-01 on.
    """

    root: Path
    orders_per_day: int
    days: int
    seed: int

    @classmethod
    def from_environment(cls, *, orders_per_day: int, days: int, seed: int) -> Self:
        """Read `LAKEHOUSE_ROOT`.

        Raises:
            ConfigurationError: The root is no local folder, or there are too few days to tell the story.
        """
        root = os.environ.get("LAKEHOUSE_ROOT") or ".lakehouse"
        if "://" in root:
            raise ConfigurationError(
                f"The demo makes its data in a local folder, and LAKEHOUSE_ROOT is `{root}`.",
                state=NOTHING_WRITTEN,
                remedy="Unset it, or name a local folder.",
            )
        if days < 2 * CHUNKS:
            raise ConfigurationError(
                f"{days} days are too few to kill a launch half-way.", state=NOTHING_WRITTEN, remedy=f"Use --days {2 * CHUNKS} or more."
            )
        return cls(Path(root).absolute(), orders_per_day, days, seed)

    @property
    def export(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def last_day(self) -> date:
        return FIRST_DAY + timedelta(days=self.days - 1)

    @property
    def all_days(self) -> str:
        return f"{FIRST_DAY}...{self.last_day}"

    @property
    def whole_months(self) -> str | None:
        """The months that end within the days; None if there is none."""
        end = (self.last_day + timedelta(days=1)).replace(day=1) - timedelta(days=1)
        return None if end < FIRST_DAY else f"{FIRST_DAY}...{end.replace(day=1)}"


@dataclass(slots=True)
class Story:
    """What happened so far, for the summary at the end."""

    console: Console
    rows: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])
    is_good: bool = True
    steps: int = 0

    def step(self, title: str) -> None:
        self.steps += 1
        self.console.print(f"\n[bold]{self.steps}. {title}[/]")

    def tell(self, what: str, result: str, seconds: float, *, good: bool = True) -> None:
        self.rows.append((what, result, seconds))
        self.is_good = self.is_good and good
        self.console.print(f"   {'[green]' if good else '[bold red]'}{result}[/] [dim]({seconds:.0f} s)[/]", highlight=False)


def make_data(shop: Shop, console: Console) -> str:
    """Write the old system's export below `landing/orders`."""
    from backfill_assets.demo.orders import write_orders

    with Progress(TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True) as progress:
        task = progress.add_task("days written", total=shop.days)
        written = write_orders(
            shop.export,
            first_day=FIRST_DAY,
            days=shop.days,
            orders_per_day=shop.orders_per_day,
            seed=shop.seed,
            on_progress=lambda done, _: progress.update(task, completed=done),
        )
    said = f"{written.rows:,} orders in {written.files:,} daily files, {written.size_bytes / 2**20:.0f} MiB, in {shop.export}"
    console.print(f"   {said}", highlight=False)
    return said


def tell(shop: Shop, console: Console) -> int:
    """Tell the whole story; return the exit code: 0 if every step ended as it should."""
    story = Story(console)
    started = time.monotonic()
    console.print("[bold]Three years of orders, backfilled[/]")
    console.print(f"Everything is kept below {shop.root}; Dagster's history in {os.environ['DAGSTER_HOME']}.", highlight=False)
    _refuse_strangers(shop)

    story.step("The old system's export")
    at = time.monotonic()
    story.rows.append(("the export", make_data(shop, console), time.monotonic() - at))

    orders = ["bronze/orders"]
    chunk = {"max_partitions_per_chunk": -(-shop.days // CHUNKS)}
    story.step(f"One launch over {shop.days:,} partitions, killed with kill -9 after chunk {KILL_AFTER_CHUNK} of {CHUNKS}")
    launched = _launch(
        console, orders, shop.all_days, {"bronze__orders": {**chunk, "reason": "history of the old system"}}, kill_after=KILL_AFTER_CHUNK
    )
    good = launched.killed and launched.chunks == KILL_AFTER_CHUNK
    story.tell("killed half-way", f"killed; {launched.chunks} chunks are published and stay", launched.seconds, good=good)

    story.step("The same launch again, with `only: MISSING`; the tables made of it come along")
    launched = _launch(
        console,
        [*orders, "silver/daily_sales"],
        shop.all_days,
        {"bronze__orders": {**chunk, "only": "MISSING", "reason": "history of the old system"}},
    )
    story.tell("resumed", launched.said(), launched.seconds, good=launched.ok and launched.chunks < CHUNKS + 1)
    if shop.whole_months:
        launched = _launch(console, ["gold/monthly_revenue"], shop.whole_months, {})
        story.tell("months", launched.said(), launched.seconds, good=launched.ok)

    story.step("Reconcile: source and table are both read afresh")
    first = _reconcile(console, "bronze/orders")
    story.tell("reconciled", first.said(), first.seconds, good=first.exit_code == 0)

    story.step("Launch the whole range once more: nothing may change")
    launched = _launch(console, orders, shop.all_days, {"bronze__orders": {"reason": "to see that nothing changes"}})
    again = _reconcile(console, "bronze/orders")
    same = first.checksums == again.checksums and len(again.checksums) == shop.days
    said = f"{launched.said()}; {'every' if same else 'NOT every'} partition has the checksum that it had before"
    story.tell("launched again", said, launched.seconds + again.seconds, good=launched.ok and same and again.exit_code == 0)

    _break_and_mend(shop, story)
    _rebuild_without_source(shop, story)
    return _summary(shop, story, time.monotonic() - started)


def _break_and_mend(shop: Shop, story: Story) -> None:
    from backfill_assets.demo.orders import corrupt_day, restore_day

    day = FIRST_DAY + timedelta(days=min(shop.days - 1, 400))
    story.step(f"Somebody changes the export of {day} behind our back")
    what = corrupt_day(shop.export, day)
    story.console.print(f"   {what}", highlight=False)
    found = _reconcile(
        story.console, "bronze/orders", f"{day - timedelta(days=2)}...{min(day + timedelta(days=2), shop.last_day)}", show=True
    )
    story.tell("a day broken", found.said(), found.seconds, good=found.exit_code == 1 and found.differing == [str(day)])
    restore_day(shop.export, day)
    launched = _launch(story.console, ["bronze/orders"], f"{day}...{day}", {"bronze__orders": {"reason": "export corrected"}})
    story.tell("mended", f"export corrected, that one partition launched again: {launched.said()}", launched.seconds, good=launched.ok)


def _rebuild_without_source(shop: Shop, story: Story) -> None:
    story.step("Rebuild silver/daily_sales while the export is out of reach")
    away = shop.export.with_name("orders.away")
    shop.export.rename(away)
    try:
        launched = _launch(
            story.console, ["silver/daily_sales"], shop.all_days, {"silver__daily_sales": {"reason": "rebuild from stored orders"}}
        )
    finally:
        away.rename(shop.export)
    story.tell("rebuilt", f"{launched.said()}, from bronze/orders alone", launched.seconds, good=launched.ok)


def _summary(shop: Shop, story: Story, seconds: float) -> int:
    table = Table(title=f"\nThe story in {seconds:.0f} seconds", title_justify="left", show_lines=False)
    table.add_column("step")
    table.add_column("what came of it", overflow="fold")
    table.add_column("seconds", justify="right")
    for what, result, took in story.rows:
        table.add_row(what, result, f"{took:.0f}")
    story.console.print(table)
    if not story.is_good:
        story.console.print("[bold red]A step did not end as it should; its line above is red.[/]")
        return 1
    month = f"{shop.last_day.replace(day=1)}...{shop.last_day}"
    story.console.print("[bold green]Every step ended as it should.[/] What to try next:")
    for command, why in (
        ("make ui", "the same in the browser: partitions, plots, checks, runs"),
        (f"""dg launch --assets 'key:"bronze/orders"' --partition-range {month}""", "one month again"),
        (f"backfill-assets reconcile bronze/orders --partition-range {month}", "prove it"),
        ("backfill-assets reconcile --help", "what the exit codes mean in CI"),
    ):
        story.console.print(f"  {command}\n      [dim]{why}[/]", highlight=False, soft_wrap=True)
    return 0


def _refuse_strangers(shop: Shop) -> None:
    """Refuse to write the demo's data over somebody's own."""
    marker = shop.root / "landing" / ".demo"
    if shop.export.exists() and any(shop.export.iterdir()) and not marker.exists():
        raise ConfigurationError(
            f"`{shop.export}` holds files that the demo did not make.",
            state=NOTHING_WRITTEN,
            remedy="Set LAKEHOUSE_ROOT to another folder for the demo.",
        )
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


# -- processes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launched:
    """How a launch in a process of its own ended."""

    exit_code: int
    killed: bool
    chunks: int
    partitions: int
    rows: int
    left_out: int
    seconds: float
    last_lines: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def said(self) -> str:
        if not self.ok:
            return f"exit code {self.exit_code}: {' '.join(self.last_lines)[-600:]}"
        left_out = f", {self.left_out:,} left out" if self.left_out else ""
        return f"{self.partitions:,} partitions in {self.chunks} commits, {self.rows:,} rows{left_out}"


def _launch(
    console: Console, assets: Sequence[str], partition_range: str, ops: Mapping[str, Mapping[str, Any]], *, kill_after: int | None = None
) -> Launched:
    """Launch a range with Dagster's own command line; kill it with SIGKILL after a chunk if asked to."""
    selection = " or ".join(f'key:"{key}"' for key in assets)
    command = [
        sys.executable,
        "-m",
        "dagster",
        "asset",
        "materialize",
        "-m",
        MODULE,
        "--select",
        selection,
        "--partition-range",
        partition_range,
    ]
    if ops:
        command += ["--config-json", json.dumps({"ops": {name: {"config": config} for name, config in ops.items()}})]
    console.print(f"   [dim]$ {shlex.join(['dagster', *command[3:]])}[/]", highlight=False, soft_wrap=True)
    started = time.monotonic()
    chunks = partitions = rows = left_out = 0
    killed = False
    last: deque[str] = deque(maxlen=5)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)  # noqa: S603 (our own command)
    assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
    with _bar(console) as show:
        for line in process.stdout:
            said = line.split(" - ")[-1].strip()
            if "Chunk " in said and " is version " in said:
                chunks += 1
                partitions += _number_before(said, " partitions, ")
                rows += _number_before(said, " rows; ")
                show(said)
                if chunks == kill_after:
                    os.killpg(process.pid, signal.SIGKILL)
                    killed = True
            elif "Left out " in said:
                left_out += _number_before(said, " partitions from ")
            elif "ERROR" in line or "Error" in said:
                last.append(said)
    return Launched(process.wait(), killed, chunks, partitions, rows, left_out, time.monotonic() - started, tuple(last))


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What `backfill-assets reconcile` found."""

    exit_code: int
    compared: int
    differing: list[str]
    checksums: dict[str, str]
    seconds: float
    problem: str

    def said(self) -> str:
        if self.exit_code == 0:
            return f"all {self.compared:,} partitions equal their source"
        if self.exit_code == 1:
            return f"{len(self.differing)} of {self.compared:,} partitions differ: {', '.join(self.differing[:5])}"
        return f"exit code {self.exit_code}: {self.problem[-600:]}"


def _reconcile(console: Console, key: str, partition_range: str | None = None, *, show: bool = False) -> Reconciled:
    command = [sys.executable, "-m", "backfill_assets.cli", "reconcile", key]
    if partition_range:
        command += ["--partition-range", partition_range]
    console.print(f"   [dim]$ {shlex.join(['backfill-assets', *command[3:]])}[/]", highlight=False, soft_wrap=True)
    started = time.monotonic()
    with console.status("comparing"):
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)  # noqa: S603 (our own command)
    report = json.loads(done.stdout) if done.returncode in (0, 1) and done.stdout.strip() else {"partitions": []}
    partitions = report["partitions"]
    differing = [p for p in partitions if not p["passed"]]
    if show:
        for partition in differing:
            for failure in partition["failures"]:
                console.print(f"   [red]{partition['partition']} {failure['rule']}[/]: {failure['what']}", highlight=False)
                for example in failure["examples"]:
                    console.print(f"      {example}", highlight=False)
    checksums = {p["partition"]: p["table_checksum"] for p in partitions}
    return Reconciled(
        done.returncode, len(partitions), [p["partition"] for p in differing], checksums, time.monotonic() - started, done.stderr
    )


class _bar:  # noqa: N801 (used as a statement)
    """Show the newest line of a launch and how long it has been running."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(TextColumn("   {task.description}"), TimeElapsedColumn(), console=console, transient=True)
        self._task = self._progress.add_task("starting", total=None)

    def __enter__(self) -> Callable[[str], None]:
        self._progress.start()
        return lambda said: self._progress.update(self._task, description=said.partition(" (seconds")[0])

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _number_before(text: str, mark: str) -> int:
    """Return the number in front of a mark; 0 if there is none."""
    digits = text.partition(mark)[0].split()[-1].replace(",", "") if mark in text else ""
    return int(digits) if digits.isdigit() else 0
