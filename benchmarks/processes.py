"""Processes that a benchmark runs: each with this repository's code, and with none of the user's own settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
OWN_SETTINGS = ("SPARK_MASTER", "SPARK_REMOTE", "SPARK_DRIVER_MEMORY", "SPARK_EXTRA_CONF", "DAGSTER_EVENT_BATCH_SIZE")
"""What a user may have set for the project alone; each side runs with its defaults."""


def environment(root: Path, dagster_home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process over a lakehouse and a Dagster home of its own."""
    kept: Mapping[str, str] = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    ours = {"PYTHONPATH": str(REPOSITORY), "LAKEHOUSE_ROOT": str(root), "DAGSTER_HOME": str(dagster_home)}
    return {**kept, **ours, **more}


def launch_command(module: str, key: str, *partitions: str) -> list[str]:
    """Return Dagster's own command that launches partitions of a table: `--partition-range FIRST...LAST`, say."""
    select = ("--select", f'key:"{key}"')
    return [sys.executable, "-m", "dagster", "asset", "materialize", "-m", module, *select, *partitions]


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
