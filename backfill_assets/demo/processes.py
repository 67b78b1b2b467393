"""The processes of the demo's story: Dagster's own command line, ours, and the ones that run behind it all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from backfill_assets.demo.place import refuse_dotenv

MODULE = "backfill_assets.definitions"
CLI = "backfill_assets.cli"


@dataclass(frozen=True, slots=True)
class Launched:
    """How a launch in a process of its own ended."""

    exit_code: int
    killed: bool
    chunks: int
    partitions: int
    rows: int
    left_out: int
    identical: int
    seconds: float
    last_lines: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def said(self) -> str:
        if not self.ok:
            return f"exit code {self.exit_code}: {' '.join(self.last_lines)[-600:]}"
        left_out = f", {self.left_out:,} left out" if self.left_out else ""
        identical = f", {self.identical:,} identical and not written" if self.identical else ""
        commits = "1 commit" if self.chunks == 1 else f"{self.chunks} commits"
        return f"{self.partitions:,} partitions in {commits}, {self.rows:,} rows{identical}{left_out}"


def launch(
    console: Console,
    assets: Sequence[str],
    partition_range: str,
    ops: Mapping[str, Mapping[str, Any]],
    *,
    kill_after: int | None = None,
    module: str = MODULE,
) -> Launched:
    """Launch a range with Dagster's own command line; kill it with SIGKILL after a chunk if asked to."""
    refuse_dotenv()
    selection = " or ".join(f'key:"{key}"' for key in assets)
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-m", module, "--select", selection]
    command += ["--partition-range", partition_range]
    if ops:
        command += ["--config-json", json.dumps({"ops": {name: {"config": config} for name, config in ops.items()}})]
    console.print(f"   [dim]$ {shlex.join(['dagster', *command[3:]])}[/]", highlight=False, soft_wrap=True)
    started = time.monotonic()
    chunks = partitions = rows = left_out = identical = 0
    killed = False
    last: deque[str] = deque(maxlen=5)
    process = _start(command)
    assert process.stdout is not None  # noqa: S101 (a pipe was asked for)
    with bar(console) as show:
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
            elif said.startswith("Identical: "):
                identical += _number_before(said, " partitions are")
            elif "ERROR" in line or "Error" in said:
                last.append(said)
    return Launched(
        process.wait(),
        killed,
        chunks,
        partitions,
        rows,
        left_out=left_out,
        identical=identical,
        seconds=time.monotonic() - started,
        last_lines=tuple(last),
    )


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What `backfill-assets reconcile` found; `at_fence` holds the checks around the fence."""

    exit_code: int
    compared: int
    rows: int
    differing: list[str]
    at_fence: list[dict[str, Any]]
    seconds: float
    problem: str

    def said(self) -> str:
        if self.exit_code in (0, 1) and not self.differing:  # 1: something is wrong at the fence
            return f"all {self.compared:,} partitions, {self.rows:,} rows, equal their source"
        if self.exit_code == 1:
            return f"{len(self.differing)} of {self.compared:,} partitions differ: {', '.join(self.differing[:5])}"
        return f"exit code {self.exit_code}: {self.problem[-600:]}"


def reconcile(console: Console, key: str, partition_range: str | None = None, *, show: str = "") -> Reconciled:
    """Compare a table with its source in a process of its own; show what differs in a partition if asked to."""
    command = [sys.executable, "-m", CLI, "reconcile", key]
    if partition_range:
        command += ["--partition-range", partition_range]
    console.print(f"   [dim]$ {shlex.join(['backfill-assets', *command[3:]])}[/]", highlight=False, soft_wrap=True)
    started = time.monotonic()
    with console.status("comparing"):
        process = _start([*command, "--json"], errors=subprocess.PIPE)
        answer, problem = process.communicate()
    report = json.loads(answer) if process.returncode in (0, 1) and answer.strip() else {"partitions": []}
    partitions = report["partitions"]
    differing = [p for p in partitions if not p["passed"]]
    for partition in (partition for partition in differing if partition["partition"] == show):
        for failure in partition["failures"]:
            console.print(f"   [red]{show} {failure['rule']}[/]: {failure['what']}", highlight=False)
            for example in failure["examples"]:
                console.print(f"      {example}", highlight=False)
    return Reconciled(
        process.returncode,
        len(partitions),
        sum(p["table_rows"] for p in partitions),
        [p["partition"] for p in differing],
        report.get("at_fence", []),
        time.monotonic() - started,
        problem=problem,
    )


class bar:  # noqa: N801 (used as a statement)
    """Show the newest line of a launch and how long it has been running."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("   {task.description}"), TimeElapsedColumn(), console=console, transient=True
        )
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


# -- what runs behind the story ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Behind:
    """A process that runs behind the story until it is stopped.

    Args:
        last: Its newest line.
    """

    process: subprocess.Popen[str]
    last: str = ""
    lines: list[str] = field(default_factory=list[str])
    _reader: threading.Thread | None = None

    @classmethod
    def start(cls, console: Console, *arguments: str) -> Behind:
        """Start a `backfill-assets` command in a session of its own."""
        return cls._start(console, ["backfill-assets", *arguments], [sys.executable, "-m", CLI, *arguments])

    @classmethod
    def start_sharing(cls, console: Console, *arguments: str) -> Behind:
        """Start a `backfill-assets` command whose Spark other processes can use: those that get what it `exported`."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        server = ["-m", "backfill_assets.spark.connect_server", "--port", port, "--inside", "--"]
        own = [sys.executable, "-m", CLI, *arguments]
        return cls._start(console, ["python", *server, "backfill-assets", *arguments], [sys.executable, *server, *own])

    @classmethod
    def _start(cls, console: Console, shown: Sequence[str], command: Sequence[str]) -> Behind:
        console.print(f"   [dim]$ {shlex.join(shown)} &[/]", highlight=False, soft_wrap=True)
        behind = cls(_start(command))
        behind._reader = threading.Thread(target=behind._read, daemon=True)
        behind._reader.start()
        return behind

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 (a pipe was asked for)
        for line in self.process.stdout:
            self.last = line.strip()
            self.lines.append(self.last)

    def wait_for(self, text: str, *, seconds: float) -> bool:
        """Wait until a line holds a text; say whether one did."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if any(text in line for line in self.lines):
                return True
            time.sleep(0.2)
        return any(text in line for line in self.lines)

    def exported(self, *, seconds: float) -> dict[str, str]:
        """Wait until the process has said what to export in other processes; return that, or nothing if it did not."""
        self.wait_for("export SPARK_MASTER=", seconds=seconds)
        pairs = (line.removeprefix("export ").partition("=") for line in self.lines if line.startswith("export "))
        return {name: value for name, _, value in pairs}

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL, as a machine does that goes down."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self._reader is not None:
            self._reader.join(timeout=5)

    def stop(self, *, seconds: float = 60) -> int:
        """Ask the process to stop, and wait for it; return its exit code."""
        code = _end(self.process, seconds=seconds)
        if self._reader is not None:
            self._reader.join(timeout=5)
        return code


_started: list[subprocess.Popen[str]] = []


@contextmanager
def ending_all() -> Iterator[None]:
    """End every process that was started in the block, however the block ends."""
    try:
        yield
    finally:
        with ExitStack() as ends:  # each of them, also if somebody interrupts this again
            for process in _started:
                ends.callback(_wait_for_end, process, seconds=10)
            for process in _started:
                _ask_to_end(process)
        _started.clear()


def _start(command: Sequence[str], *, errors: int = subprocess.STDOUT) -> subprocess.Popen[str]:
    """Start a process in a session of its own: Ctrl-C reaches the story alone, which then ends it."""
    with _signals_later():
        process = subprocess.Popen(  # noqa: S603 (commands of this package and of Dagster)
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        _started.append(process)
    return process


@contextmanager
def _signals_later() -> Iterator[None]:
    """Let a signal that would interrupt the block interrupt what follows it."""
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    held = [number for number in numbers if signal.getsignal(number) is signal.default_int_handler]
    for number in held:
        signal.signal(number, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, signal.default_int_handler)
    if caught:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[str], *, seconds: float) -> int:
    """Ask a process to stop, and kill it with its children if it does not; return its exit code."""
    _ask_to_end(process)
    return _wait_for_end(process, seconds=seconds)


def _ask_to_end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)


def _wait_for_end(process: subprocess.Popen[str], *, seconds: float) -> int:
    try:
        return process.wait(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):  # a second Ctrl-C
            raise
        return code


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a live writer said of its batches."""

    batches: int
    rows: int
    late: int
    quarantined: int
    worst_lag_seconds: float

    @classmethod
    def of(cls, lines: Sequence[str]) -> Streamed:
        found = [line for line in lines if re.search(r"\bbatch \d+: ", line)]
        count = lambda what: sum(_number_before(line, f" {what}") for line in found)  # noqa: E731 (three uses, one line)
        lags = [float(match[1]) for line in found if (match := re.search(r"([\d.]+) s behind", line))]
        return cls(len(found), count("rows,"), count("late"), count("quarantined"), max(lags, default=0.0))
