"""Runs Dagster's own command line, or an undo, in a process that is killed at one point of its second chunk.

    python killed.py <point> asset materialize ...
    python killed.py undone undo ...

The whole process group is killed by SIGKILL, Spark's JVM with it, as when the machine goes down. Nothing in the product
knows of it: the functions at these points are replaced here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dagster._cli import main

from backfill_assets import cli
from backfill_assets.core.history import audited_chunk
from backfill_assets.lake import history_writer, table
from backfill_assets.runs import launch as launches
from backfill_assets.runs import undoing
from backfill_assets.table.transaction import Transactions

AT_CALL = 2


def die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)
    time.sleep(60)  # the signal is on its way


def replace(
    module: Any, name: str, *, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None
) -> None:
    """Let something happen before or after the second call of a function."""
    original, calls = getattr(module, name), []

    def replaced(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if before and len(calls) == AT_CALL:
            before(*args)
        result = original(*args, **kwargs)
        if after and len(calls) == AT_CALL:
            after()
        return result

    setattr(module, name, replaced)


def die_when_a_file_appears(path: str) -> None:
    """Watch the table's folder from now on, and die as soon as the first new file is there."""
    there = set(Path(path).rglob("*.parquet"))

    def watch() -> None:
        while not set(Path(path).rglob("*.parquet")) - there:
            time.sleep(0.002)
        die()

    threading.Thread(target=watch, daemon=True).start()


def die_while_rows_are_copied() -> None:
    """Let the launch use Delta's public API, and die when its copy has put the first file there."""
    table.reason_against = lambda *_: "this test asks for it"
    replace(history_writer, "overwrite", before=lambda _spark, _spec, path, *_: die_when_a_file_appears(path))


POINTS: dict[str, Callable[[], None]] = {
    "before_staging": lambda: replace(audited_chunk, "stage_chunk", before=lambda *_: die()),
    "during_the_write": lambda: replace(
        Transactions, "write", before=lambda made, *_: die_when_a_file_appears(made.path)
    ),
    "after_the_write": lambda: replace(Transactions, "write", after=die),
    "after_the_audit": lambda: replace(audited_chunk, "audit_all", after=die),
    "before_the_commit": lambda: replace(Transactions, "commit", before=lambda *_: die()),
    "during_the_copy": die_while_rows_are_copied,
    "before_it_is_verified": lambda: replace(Transactions, "commit", after=die),
    "after_the_commit": lambda: replace(launches, "record_published", before=lambda *_: die()),
    "after_the_event": lambda: replace(launches, "record_published", after=die),
}

UNDONE = "undone"
"""Point of an undo: its first commit is there, and Dagster has not heard of it."""

if __name__ == "__main__":
    assert os.getpgid(0) == os.getpid(), "start this in a session of its own: it kills its process group"
    point = sys.argv.pop(1)
    if point == UNDONE:  # what an earlier undo has put back is recorded before the first commit
        replace(undoing, "record_put_back", before=lambda *_: die())
        cli.main()
    POINTS[point]()
    main()
