"""Measures how long commands take that only look, and that they start no JVM.

    python -m benchmarks.looks --partitions 1096 --commits 1000

A table of so many partitions is launched, and so many commits are made to it, as a stream makes them. Each command is a
fresh process, and wall seconds count. The last lines are `name: seconds`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import perf_counter

import deltalake

from benchmarks.scale import MODULE, TABLE, Scale

NO_JAVA = "/nowhere"
"""A JAVA_HOME without Java: a command that starts a JVM fails."""


def commands(scale: Scale) -> dict[str, list[str]]:
    """Return what is typed, by name."""
    last = scale.count - 1
    return {
        "status": ["status", TABLE],
        "gaps": ["gaps", TABLE],
        "plan": ["plan", TABLE, "--partition-range", f"{scale.key(0)}...{scale.key(last)}"],
        "history": ["history", TABLE],
    }


def prepare(scale: Scale, commits: int) -> None:
    """Launch all partitions, and let somebody commit."""
    scale.write(rows=20)
    scale.clear()
    output, _ = (started := scale.start(0, scale.count - 1)).communicate()
    if started.returncode:
        sys.exit(output[-4_000:])
    table = deltalake.DeltaTable(str(scale.log.parent))
    for number in range(commits):
        table.alter.set_table_properties({"somebodys.number": str(number)}, raise_if_not_exists=False)


def seconds_of(scale: Scale, typed: list[str]) -> float:
    """Return how long one command takes."""
    began = perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("backfill-assets")), *typed, "--definitions", MODULE],
        cwd=scale.folder,
        env={**scale.environment(), "JAVA_HOME": NO_JAVA, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    took = perf_counter() - began
    said = done.stdout + done.stderr
    if done.returncode not in (0, 1) or "Starting Spark" in said or "Java was not found" in said:
        sys.exit(f"`{' '.join(typed)}` ended with {done.returncode}:\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_096, help="days of the table (default: 1096)")
    parser.add_argument("--commits", type=int, default=1_000, help="after the launch (default: 1000)")
    parser.add_argument("--runs", type=int, default=3, help="of each command (default: 3)")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="looks-"))
    try:
        scale = Scale(folder, asked.partitions, timedelta(days=1))
        prepare(scale, asked.commits)
        for name, typed in commands(scale).items():
            print(f"{name}: {median(seconds_of(scale, typed) for _ in range(asked.runs)):.1f} s", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
