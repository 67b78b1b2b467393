"""Two sides in turn: a hand-written job and a launch, each a process of its own over the same files."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import tell
from benchmarks.memory import watched
from benchmarks.processes import REPOSITORY, environment

RATIO = "range launch / hand-written job"


@dataclass(frozen=True)
class Run:
    """One process that was run to its end: its seconds, the largest memory of it and what it started, its output."""

    seconds: float
    peak_bytes: int
    output: str


def run(folder: Path, command: list[str]) -> Run:
    """Run a process over the lakehouse of a folder."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder / "lakehouse", folder / "dagster_home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with watched(process) as peak:
        output, _ = process.communicate()
    if process.returncode:
        sys.exit("\n".join(output.splitlines()[-40:]))
    return Run(time.perf_counter() - started, peak.size_bytes, output)


def clear(folder: Path) -> None:
    """Delete all but the landing data."""
    for path in (folder / "lakehouse" / "tables", folder / "dagster_home", folder / "by_hand"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / "dagster_home").mkdir()
    shutil.copy(REPOSITORY / "dagster.yaml", folder / "dagster_home")
    os.sync()


def rows_in(path: Path) -> int:
    """Return how many rows a table has, as another reader counts them."""
    import deltalake

    return deltalake.DeltaTable(str(path)).count()


def in_turn(
    folder: Path, name: str, *, by_hand: Sequence[str], launch: Sequence[str], table: str, runs: int
) -> dict[str, list[Run]]:
    """Run both sides, one after the other; whoever wrote other rows than the other ends it all.

    Args:
        by_hand: Command that writes `by_hand` in the folder.
        launch: Command that writes the table.
        table: Key of the table.
    """
    found: dict[str, list[Run]] = {"hand-written": [], "launch": []}
    for _ in range(runs):
        clear(folder)
        for side, command in (("hand-written", by_hand), ("launch", launch)):
            found[side].append(run(folder, [*command]))
            tell(f"{name}, {side}", found[side][-1].seconds)
        ours, theirs = rows_in(folder / "lakehouse/tables" / table), rows_in(folder / "by_hand")
        if ours != theirs:
            sys.exit(
                f"{name}: the hand-written job wrote {theirs:,} rows and the launch {ours:,}: there is nothing to "
                "compare."
            )
    return found


def medians(found: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """Return the median of the seconds of each side."""
    return {side: statistics.median(run.seconds for run in runs) for side, runs in found.items()}
