"""The demo of a table that follows a database: loaded, kept up to date, killed, and equal to it row for row."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from backfill_assets.demo import shop_database as database
from backfill_assets.demo.belongings import Belongings
from backfill_assets.demo.postgres import Server, serving, version
from backfill_assets.demo.processes import Behind, reconcile
from backfill_assets.demo.story import Story

CUSTOMERS, AUDIT_LOG, CAPTURE, SERVER = "bronze/customers", "bronze/audit_log", "shop", "database"
VARIABLE = "SHOP_DATABASE"
DOWN_SECONDS = 6
"""So long the capture stays dead."""

OURS = ("", "_changes", "_history", "_late", "_quarantine")
"""What the names of the folders of a table that the demo makes may end with."""

_LOADED = "Every partition up to now was read"


class Running:
    """What runs behind the story: processes by name, and the clients. At the end nothing of it does."""

    def __init__(self, console: Console, clients: database.Clients) -> None:
        self.clients = clients
        self._console = console
        self._processes: dict[str, list[Behind]] = {}

    def start(self, *command: str) -> Behind:
        """Start one of our commands, or start it again."""
        started = Behind.start(self._console, *command)
        self._processes.setdefault(" ".join(command), []).append(started)
        return started

    def lines_of(self, command: str) -> list[str]:
        """Return what a command has said, each time that it ran."""
        return [line for behind in self._processes.get(command, []) for line in behind.lines]

    def stop(self) -> None:
        """Stop everything, and wait for it."""
        self.clients.stop()
        for behind in (behind for each in self._processes.values() for behind in each):
            behind.stop(seconds=30)

    def kill(self) -> None:
        """Kill everything at once: nobody waits for it any more, and it may be killed at any point."""
        for behind in (behind for each in self._processes.values() for behind in each):
            behind.kill()
        self.clients.stop()


def tell(root: Path, console: Console, *, customers: int, rate: float, seed: int) -> int:
    """Tell the whole story; return the exit code: 0 if every step ended as it should.

    Raises:
        ConfigurationError: There are tables that the demo did not make, or the server does not start.
    """
    story, started = Story(console, at_each_step=belongings_of(root).note), time.monotonic()
    console.print("[bold]A table that follows a database which does not stand still[/]")
    console.print(
        f"Everything is kept below {root}; Dagster's history in {os.environ['DAGSTER_HOME']}.", highlight=False
    )
    server_version = version()
    make_room(root)
    story.step(f"The shop's database: {server_version}, below {root / SERVER}")
    at = time.monotonic()
    with serving(root / SERVER) as server, belongings_of(root).noted():
        os.environ[VARIABLE] = server.address  # for the processes of the story: the address is nowhere else
        database.make_tables(server.address, customers, seed, datetime.now(UTC))
        said = f"{customers:,} customers since {database.FIRST_DAY}, and an audit log"
        story.tell("the database", said, time.monotonic() - at)
        running = Running(console, database.Clients(server.address, seed, rate))
        try:
            _follow(story, running, root, rate)
            _prove(story, running, root, server)
            running.stop()
        except BaseException:
            running.kill()
            raise
    return story.summary(time.monotonic() - started, _next_steps())


def make_room(root: Path) -> None:
    """Delete what an earlier run of this demo has left, but for its server; refuse to delete anything else."""
    ours = belongings_of(root)
    ours.refuse_others()
    ours.claim()
    for path in {*ours.tables, *ours.folders} - {root / SERVER}:
        if path.is_dir():  # a lock stays: somebody may hold it
            shutil.rmtree(path)


def belongings_of(root: Path) -> Belongings:
    """Return where this demo writes below a root."""
    tables = [root / "tables" / key for key in (CUSTOMERS, AUDIT_LOG)]
    beside = [table.with_name(table.name + suffix) for table in tables for suffix in OURS if suffix]
    feed = root / "landing" / "changes" / CAPTURE
    return Belongings(root, ".demo-database", (*beside, feed, root / SERVER), tuple(tables))


def _follow(story: Story, running: Running, root: Path, rate: float) -> None:
    """Let the table follow the database, beside clients; kill the writer, and then the capture."""
    story.step(f"Changes are captured from now on, and clients make {rate:g} transactions a second")
    at = time.monotonic()
    capture = running.start("capture", CAPTURE)
    good = _wait(story, lambda: any((root / "landing/changes" / CAPTURE).glob("*.idle")), "waiting for the slot")
    running.clients.start()
    story.tell("the capture", "the slot is made: nothing is lost from here on", time.monotonic() - at, good=good)

    story.step("The table follows it: the past is loaded by itself, and what changes meanwhile is folded in")
    at = time.monotonic()
    writer = running.start("live", CUSTOMERS)
    good = _wait(story, lambda: _commits(writer) >= 2, "waiting for the first partitions", process=writer)
    writer.kill()
    story.tell(
        "killed half-way",
        f"the writer is killed with kill -9, after {_published(writer)}",
        time.monotonic() - at,
        good=good,
    )
    at = time.monotonic()
    writer = running.start("live", CUSTOMERS)
    good = _wait(story, lambda: any(_LOADED in line for line in writer.lines), "the past is loaded", process=writer)
    story.tell(
        "the past",
        f"{'all' if good else 'not all'} of it is there: {_published(writer)} since it was started again",
        time.monotonic() - at,
        good=good,
    )

    story.step("Now the capture is killed. The database keeps what nobody takes, and clients notice nothing")
    at, before = time.monotonic(), running.clients.done.total()
    capture.kill()
    with story.console.status("nobody captures"):
        time.sleep(DOWN_SECONDS)
    missed = running.clients.done.total() - before
    commits = _commits(writer)
    running.start("capture", CAPTURE)
    good = _wait(story, lambda: _commits(writer) > commits, "waiting for what it has missed", process=writer)
    story.tell(
        "the capture killed",
        f"{missed:,} transactions later it continues where it was, and they are folded in",
        time.monotonic() - at,
        good=good and missed > 0,
    )


def _prove(story: Story, running: Running, root: Path, server: Server) -> None:
    """Hold the lakehouse against the database, as two readers see it, and as `reconcile` does."""
    clients = running.clients
    story.step("The clients stop. Is the lakehouse what the database is?")
    at = time.monotonic()
    clients.stop()
    done = ", ".join(f"{count:,} {action}" for action, count in sorted(clients.done.items()))
    story.console.print(f"   {clients.done.total():,} transactions: {done}{clients.failure}", highlight=False)
    expected = database.in_database(server.address, "customers")
    table = root / "tables" / CUSTOMERS
    good = _wait(story, lambda: database.in_lakehouse(table) == expected, "the last changes are folded in")
    found = database.in_lakehouse(table)
    story.console.print(f"   database   {expected}\n   lakehouse  {found}", highlight=False)
    said = f"{found} on both sides" if good else f"{found}; the database has {expected}"
    story.tell("row for row", said, time.monotonic() - at, good=good and not clients.failure)

    compared = reconcile(story.console, CUSTOMERS)
    story.tell("reconciled", compared.said(), compared.seconds, good=compared.exit_code == 0)

    story.step("The audit log says `backfill: excluded`: it has what the feed has brought, and nothing from before")
    at = time.monotonic()
    folding = running.start("live", AUDIT_LOG, "--once")
    _wait(story, lambda: folding.process.poll() is not None, "folding in", process=folding)
    since = f"entry_id > (SELECT count(*) FROM audit_log) - {clients.done.total():d}"  # noqa: S608 (a number)
    expected, found = (
        database.in_database(server.address, "audit_log", since),
        database.in_lakehouse(root / "tables" / AUDIT_LOG),
    )
    total = database.in_database(server.address, "audit_log").count
    said = f"{found.count:,} of {total:,} entries, one for each transaction"
    story.tell("the audit log", said, time.monotonic() - at, good=found == expected)
    lines = running.lines_of(f"live {CUSTOMERS}")
    story.rows.append(("all in all", f"{_changes(running):,} changes captured, {_commits_in(lines):,} commits", True))


def _wait(
    story: Story, until: Callable[[], bool], why: str, *, process: Behind | None = None, seconds: float = 180
) -> bool:
    """Wait until something is so, or a process that would make it so has ended; say whether it is."""
    end = time.monotonic() + seconds
    with story.console.status(why) as shown:
        while not until():
            if time.monotonic() > end or (process and process.process.poll() is not None):
                return until()
            if process and process.last:
                shown.update(f"{why}: {process.last}")
            time.sleep(0.3)
    return True


def _next_steps() -> list[tuple[str, str]]:
    return [
        (f"backfill-assets status {CUSTOMERS}", "how far the table is, and that its feed has stopped"),
        (f"backfill-assets history {CUSTOMERS}", "every commit: loaded, folded in, by whom"),
        ("make ui", "the same in the browser"),
    ]


# -- what the processes have said --------------------------------------------------------------------------------------


def _commits(writer: Behind) -> int:
    return _commits_in(writer.lines)


def _commits_in(lines: list[str]) -> int:
    return sum(" rows, version " in line for line in lines)


def _published(writer: Behind) -> str:
    counts = [line.split(" partitions, ")[0].split()[-1] for line in writer.lines if " rows, version " in line]
    return f"{sum(int(count.replace(',', '')) for count in counts):,} partitions in {len(counts):,} commits"


def _changes(running: Running) -> int:
    counts = [
        line.split(" changes of ")[0].split()[-1]
        for line in running.lines_of(f"capture {CAPTURE}")
        if " changes of " in line
    ]
    return sum(int(count.replace(",", "")) for count in counts)
