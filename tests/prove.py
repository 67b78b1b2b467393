"""What `make prove` runs: parts that are longer by nature, one after the other, with the seconds of each.

    python -m tests.prove [PART ...]

A part that fails does not keep the others from running. The last lines say how long each took and which failed; the
exit code is 1 if any did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SIDE_BY_SIDE = ("--numprocesses", os.environ.get("WORKERS", "2"), "--dist", "loadfile", "--no-loadscope-reorder")
DEBEZIUM = "tests/places/test_debezium.py"
VERSION_OF_A_DATABASE = "tests/e2e/test_version_of_a_database.py"
DATABASES = "tests/e2e/test_databases.py"
IN_OTHER_PARTS = [f"--ignore={file}" for file in (DEBEZIUM, VERSION_OF_A_DATABASE, DATABASES)]
OF_ROWS = ("tests/contracts", "tests/lake", "tests/sources", "tests/spark")
"""Tests of what Spark makes of rows; all others are of what is done with it."""


@dataclass(frozen=True)
class Part:
    """One command.

    Args:
        arguments: Of Python.
        settings: In its environment, besides what is there.
    """

    arguments: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)


def tests(*arguments: str, **settings: str) -> Part:
    return Part(("-m", "pytest", "-q", *arguments), settings)


PARTS = {
    "places": tests(
        *("-m", "prove", *IN_OTHER_PARTS, "--durations", "10", *SIDE_BY_SIDE),
        BACKFILL_ASSETS_S3_TESTS="required",
    ),
    "rows-as-shipped": tests("-m", "spark and not prove", "--as-shipped", *OF_ROWS, *SIDE_BY_SIDE),
    "runs-as-shipped": tests(
        *("-m", "(spark or e2e) and not prove", "--as-shipped", *SIDE_BY_SIDE),
        *(f"--ignore={folder}" for folder in OF_ROWS),
    ),
    "threads": tests("--as-shipped", "tests/live/test_schedules.py", SCHEDULES="100"),
    "versions": tests("tests/live/test_version_of_a_stream.py", SCHEDULES="30"),
    "version-of-database": tests("-m", "prove", VERSION_OF_A_DATABASE, SCHEDULES="3"),
    "changes": tests("tests/live/changes/test_under_load.py", SCHEDULES="50"),
    "databases": tests("-m", "prove", DATABASES, SCHEDULES="5"),
    "debezium": tests("-m", "prove", DEBEZIUM, BACKFILL_ASSETS_DEBEZIUM_TESTS="required", SCHEDULES="5"),
    "model": tests("tests/core/live/test_schedules.py", SCHEDULES="50000"),
    "soak": Part(("-m", "benchmarks.soak")),
    "scale": Part(("-m", "benchmarks.scale")),
}


def run(parts: Mapping[str, Part]) -> dict[str, tuple[float, int]]:
    """Run each part to its end; return its seconds and its exit code. Ctrl-C ends the part that runs, and all after it."""
    found: dict[str, tuple[float, int]] = {}
    for name, part in parts.items():
        say(f"== {name}: python {' '.join(part.arguments)}")
        began = time.monotonic()
        try:
            done = subprocess.run([sys.executable, *part.arguments], env={**os.environ, **part.settings}, check=False)
        except KeyboardInterrupt:
            found[name] = (time.monotonic() - began, 130)
            break
        found[name] = (time.monotonic() - began, done.returncode)
        say(f"== {name}: {in_words(*found[name])}")
    return found


def in_words(seconds: float, code: int) -> str:
    return f"{seconds:,.0f} s" + (f", FAILED with exit code {code}" if code else "")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # before what the next part writes


def main(names: Sequence[str], parts: Mapping[str, Part] = PARTS) -> int:
    """Run some parts, or all; say what came of them."""
    if unknown := [name for name in names if name not in parts]:
        say(f"There is no part {', '.join(unknown)}; there are {', '.join(parts)}.")
        return 2
    chosen = {name: parts[name] for name in names or parts}
    found = run(chosen)
    say("")
    width = max(map(len, chosen))
    for name in chosen:
        say(f"{name:<{width}}  {in_words(*found[name]) if name in found else 'was not run'}")
    failed = [name for name in chosen if name not in found or found[name][1]]
    say(
        f"{sum(seconds for seconds, _ in found.values()):,.0f} s; "
        + (f"not proved: {', '.join(failed)}" if failed else "all proved")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
