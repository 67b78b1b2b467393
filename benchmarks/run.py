"""Measures what this project costs against what people would do instead; `make bench` runs it.

Every side is a fresh process, and wall seconds count, from the command to its end. Sides alternate, so that a machine
that slows down
slows down all of them; absolute seconds differ from machine to machine, and the ratios are what to compare. Both sides
must have
written the same number of rows, otherwise there is no result. The last lines are `name: number`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from dagster import DagsterEventType, DagsterInstance, IntMetadataValue

from backfill_assets.demo.orders import write_orders
from backfill_assets.spark.jars import delta_jars
from backfill_assets.spark.settings import settings_from_environment

REPOSITORY = Path(__file__).resolve().parent.parent
FIRST_DAY = date(2023, 1, 1)
SINGLE_LAUNCHES = 3
DEFINITION_LOADS = 3
TABLE = "bronze/orders"

LOAD = "from backfill_assets.definitions import defs; defs().get_repository_def().load_all_definitions()"
RECONCILE = "from backfill_assets.cli import main; main()"
OWN_SETTINGS = ("SPARK_MASTER", "SPARK_REMOTE", "SPARK_DRIVER_MEMORY", "SPARK_EXTRA_CONF", "DAGSTER_EVENT_BATCH_SIZE")
"""What a user may have set for the project alone; each side runs with its defaults."""

CHUNK_LINE = re.compile(r"seconds by step: ([a-z]+ [\d.]+(?:, [a-z]+ [\d.]+)*)")


@dataclass(frozen=True)
class Process:
    """One process that was run to its end."""

    command: Sequence[str]
    started: float
    seconds: float
    exit_code: int
    output: str

    @property
    def ended(self) -> float:
        return self.started + self.seconds

    def must_succeed(self) -> Process:
        if self.exit_code:
            tail = "\n".join(self.output.splitlines()[-40:])
            sys.exit(f"{tail}\n\n`{' '.join(self.command)}` ended with exit code {self.exit_code}.")
        return self


@dataclass(frozen=True)
class RangeLaunch:
    """One range launch of ours, and what its events tell.

    Args:
        parts: Seconds by part of the launch, in the order in which they come; they add up to the whole.
        check_seconds: Of the check's step; None if the run had no such step.
        rows: That were published; None if the events do not tell.
    """

    seconds: float
    parts: dict[str, float]
    check_seconds: float | None
    rows: int | None


@dataclass(frozen=True)
class Bench:
    """Where everything lies while it is measured."""

    folder: Path
    first_day: date
    last_day: date

    @property
    def root(self) -> Path:
        return self.folder / "lakehouse"

    @property
    def landing(self) -> Path:
        return self.root / "landing" / "orders"

    @property
    def dagster_home(self) -> Path:
        return self.folder / "dagster_home"

    @property
    def hand_written_table(self) -> Path:
        return self.folder / "hand_written"

    @property
    def days(self) -> int:
        return (self.last_day - self.first_day).days + 1

    @property
    def range(self) -> str:
        return f"{self.first_day}...{self.last_day}"

    def clear(self) -> None:
        """Delete all that was written, but not the landing data, so that each run starts on an empty lakehouse."""
        for path in (*self.root.iterdir(), self.dagster_home, self.hand_written_table):
            if path.name != "landing":
                shutil.rmtree(path, ignore_errors=True)
        self.dagster_home.mkdir()
        settings = REPOSITORY / "dagster.yaml"
        if settings.exists():
            shutil.copy(settings, self.dagster_home)
        os.sync()  # what one side left to be written to the disk is not paid by the next

    def process(self, *arguments: str, extra: Mapping[str, str] | None = None) -> Process:
        """Run Python with some arguments, in the bench's folder and with this repository's code."""
        environment = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
        environment |= {
            "PYTHONPATH": str(REPOSITORY),
            "LAKEHOUSE_ROOT": str(self.root),
            "DAGSTER_HOME": str(self.dagster_home),
            **(extra or {}),
        }
        command = [sys.executable, *arguments]
        started = time.time()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Process(command, started, time.time() - started, done.returncode, done.stdout)

    # -- the sides -------------------------------------------------------------------------------------------------

    def hand_written(self, last_day: date | None = None) -> tuple[float, int]:
        """Return the seconds of the hand-written job, and the rows that it wrote."""
        script = str(Path(__file__).with_name("hand_written.py"))
        last = str(last_day or self.last_day)
        done = self.process(
            script, str(self.landing), str(self.hand_written_table), str(self.first_day), last
        ).must_succeed()
        return done.seconds, int(done.output.strip().rsplit("rows:", 1)[1])

    def launch(self, *partitions: str, extra: Mapping[str, str] | None = None) -> Process:
        """Launch partitions of the table, with the checks that Dagster runs along."""
        select = f'key:"{TABLE}"'
        arguments = ("-m", "dagster", "asset", "materialize", "-m", "backfill_assets.definitions", "--select", select)
        return self.process(*arguments, *partitions, extra=extra).must_succeed()

    def launch_range(self, extra: Mapping[str, str] | None = None) -> RangeLaunch:
        return self.explained(self.launch("--partition-range", self.range, extra=extra))

    def commits(self) -> int:
        """Return how many commits the table has."""
        return len(list((self.root / "tables" / TABLE / "_delta_log").glob("*.json")))

    def reconcile(self) -> float | None:
        """Return the seconds of reconciling the range; None if there is no such command."""
        done = self.process("-c", RECONCILE, "reconcile", TABLE, "--partition-range", self.range)
        if done.exit_code and re.search(
            r"No such command|No module named 'backfill_assets\.cli'|cannot import name 'main'", done.output
        ):
            return None
        return done.must_succeed().seconds

    # -- where the time goes ---------------------------------------------------------------------------------------

    def explained(self, launch: Process) -> RangeLaunch:
        """Split the seconds of a launch by what the events of its run say."""
        steps: dict[str, StepEvents] = {}
        first_event = launch.ended
        rows: int | None = None
        os.environ["DAGSTER_HOME"] = str(self.dagster_home)  # an event log that `dagster.yaml` names may look there
        with DagsterInstance.from_config(str(self.dagster_home)) as instance:
            (run,) = instance.get_runs(limit=1)
            for entry in instance.all_logs(run.run_id):
                first_event = min(first_event, entry.timestamp)
                step = steps.setdefault(entry.step_key, StepEvents()) if entry.step_key else StepEvents()
                if line := CHUNK_LINE.search(entry.user_message or ""):
                    step.end_chunk(entry.timestamp, line[1])
                if not entry.is_dagster_event:
                    continue
                event = entry.get_dagster_event()
                match event.event_type:
                    case DagsterEventType.STEP_START:
                        step.started = entry.timestamp
                    case DagsterEventType.STEP_SUCCESS:
                        step.ended = entry.timestamp
                    case DagsterEventType.ASSET_CHECK_EVALUATION:
                        step.evaluations += 1
                    case DagsterEventType.ASSET_MATERIALIZATION:
                        step.materialized.append(entry.timestamp)
                        count = event.step_materialization_data.materialization.metadata.get(
                            "dagster/partition_row_count"
                        )
                        rows = (rows or 0) + (count.value or 0) if isinstance(count, IntMetadataValue) else rows
        asset = next((step for step in steps.values() if step.materialized and step.ended), None)
        check = next(
            (step for step in steps.values() if step.evaluations and not step.materialized and step.ended), None
        )
        parts: dict[str, float] = {}
        if asset:
            parts["process start, imports, definitions"] = first_event - launch.started
            parts["planned events, start of the run"] = asset.started - first_event
            parts |= asset.parts()
        if check:
            parts["check: table read back, evaluations"] = check.ended - check.started
        if parts:
            parts["end of the run and of the process, and what is left"] = launch.seconds - sum(parts.values())
        return RangeLaunch(launch.seconds, parts, check.ended - check.started if check else None, rows)


@dataclass
class StepEvents:
    """What the events of one step tell, in seconds since 1970."""

    started: float = 0.0
    ended: float = 0.0
    evaluations: int = 0
    materialized: list[float] = field(default_factory=list)
    chunks: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """When each chunk was recorded, and the seconds of its steps."""

    def end_chunk(self, at: float, seconds: str) -> None:
        self.chunks.append((at, {name: float(value) for name, value in (part.split() for part in seconds.split(", "))}))

    def parts(self) -> dict[str, float]:
        """Split the seconds of a step that publishes chunks."""
        if not self.chunks:
            return {"asset": self.ended - self.started}
        by_step: dict[str, float] = {}
        events = before = 0.0
        previous = self.started
        for recorded, seconds in self.chunks:
            for name, value in seconds.items():
                by_step[f"chunks: {name}"] = by_step.get(f"chunks: {name}", 0.0) + value
            first = min((at for at in self.materialized if previous <= at <= recorded), default=recorded)
            events += recorded - first
            before += first - previous - sum(seconds.values())
            previous = recorded
        return {
            "session start, table, listing": before,
            **by_step,
            "materialization events": events,
            "copy of the receipts": self.ended - previous,
        }


# -- measuring ---------------------------------------------------------------------------------------------------------


def measure(bench: Bench, runs: int) -> tuple[list[str], dict[str, float | None]]:
    """Run every side; return the lines of the table, and the figures by name."""
    bench.clear()
    loads = [bench.process("-c", LOAD).must_succeed().seconds for _ in range(DEFINITION_LOADS + 1)][1:]
    tell("definitions load", statistics.median(loads))

    singles = []
    for number in range(min(SINGLE_LAUNCHES + 1, bench.days)):
        singles.append(bench.launch("--partition", str(bench.first_day + timedelta(days=number))).seconds)
        tell("launch of one partition", singles[-1])
    singles = singles[1:] or singles  # the first one also warmed the disk's cache
    bench.hand_written(last_day=bench.first_day)  # and so does this one, for the other side

    by_hand: list[float] = []
    ours: list[RangeLaunch] = []
    again: list[float] = []
    reconciled: list[float | None] = []
    for _ in range(runs):
        bench.clear()
        seconds, rows = bench.hand_written()
        by_hand.append(seconds)
        tell("hand-written job", seconds)
        bench.clear()
        ours.append(bench.launch_range())
        tell("range launch", ours[-1].seconds)
        commits = bench.commits()
        again.append(bench.launch_range().seconds)
        tell("the same range again", again[-1])
        if bench.commits() != commits:
            sys.exit(f"The second launch made {bench.commits() - commits} commits; nothing had changed.")
        reconciled.append(bench.reconcile())
        tell("reconcile", reconciled[-1])
        if ours[-1].rows not in (None, rows):
            sys.exit(f"The hand-written job wrote {rows:,} rows and the launch {ours[-1].rows:,}: nothing to compare.")

    launch_seconds = statistics.median(launch.seconds for launch in ours)
    checks = [launch.check_seconds / launch.seconds for launch in ours if launch.check_seconds is not None]
    reconciles = [seconds for seconds in reconciled if seconds is not None]
    figures: dict[str, float | None] = {
        "range launch / hand-written job": launch_seconds / statistics.median(by_hand),
        "one launch per partition / range launch, per partition": statistics.mean(singles)
        / (launch_seconds / bench.days),
        "checks / range launch": statistics.median(checks) if checks else None,
        "reconcile / range launch": statistics.median(reconciles) / launch_seconds if reconciles else None,
        "relaunch of an unchanged range / range launch": statistics.median(again) / launch_seconds,
        "definitions load, seconds": statistics.median(loads),
    }
    whole = [
        ("hand-written job", by_hand),
        ("range launch, checks included", [launch.seconds for launch in ours]),
        ("the same range again", again),
        ("reconcile", reconciles),
        ("launch of one partition, checks included", singles),
        ("definitions load", loads),
    ]
    lines = table(
        "process", [(name, statistics.median(seconds), spread(seconds)) for name, seconds in whole if seconds]
    )
    names = list(dict.fromkeys(name for launch in ours for name in launch.parts))
    if names:
        parts = [(name, statistics.median(launch.parts.get(name, 0.0) for launch in ours)) for name in names]
        rows_of = [(name, seconds, f"{seconds / launch_seconds:.0%}") for name, seconds in parts]
        lines += ["", *table("part of the range launch", rows_of)]
    return lines, figures


def table(title: str, rows: Sequence[tuple[str, float, str]]) -> list[str]:
    """Return lines of a table: name, median seconds, a remark."""
    width = max(len(title), *(len(name) for name, _, _ in rows))
    lines = [f"{title:<{width}}  seconds", "-" * (width + 9)]
    return lines + [f"{name:<{width}}  {seconds:7.1f}  {remark}".rstrip() for name, seconds, remark in rows]


def spread(seconds: Sequence[float]) -> str:
    return f"{min(seconds):.1f} to {max(seconds):.1f} in {len(seconds)} runs" if len(seconds) > 1 else ""


def tell(what: str, seconds: float | None) -> None:
    """Say on the error stream how far it is; the result goes to the other one."""
    print(f"{what}: {'n/a' if seconds is None else f'{seconds:.1f} s'}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=1_096, help="daily files (default: %(default)s)")
    parser.add_argument("--orders-per-day", type=int, default=3_000, help="average (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=2, help="of each side (default: %(default)s)")
    options = parser.parse_args()
    if min(options.days, options.orders_per_day, options.runs) < 1:
        parser.error("days, orders per day and runs start at 1")

    delta_jars(settings_from_environment(os.environ))  # fetched before anything is measured
    with tempfile.TemporaryDirectory(prefix="backfill_assets-bench-") as folder:
        bench = Bench(Path(folder), FIRST_DAY, FIRST_DAY + timedelta(days=options.days - 1))
        written = write_orders(
            bench.landing, first_day=FIRST_DAY, days=options.days, orders_per_day=options.orders_per_day, seed=1
        )
        lines, figures = measure(bench, options.runs)
    print(
        f"{written.files:,} files, {written.rows:,} orders, {written.size_bytes / 1e6:,.0f} MB; {os.cpu_count()} "
        "cores\n"
    )
    print("\n".join(lines), end="\n\n")
    for name, figure in figures.items():
        print(f"{name}: {'n/a' if figure is None else f'{figure:.2f}'}")


if __name__ == "__main__":
    main()
