"""The one way in which a commit of ours is saved: under the table's lock, its failures told in this project's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backfill_assets.lake.locks import table_lock
from backfill_assets.spark.failures import translated

LOCK_TIMEOUT_SECONDS = 600.0
"""How long a writer waits for another one to end its save."""


@contextmanager
def saving(path: str, table: str, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Hold the lock of the table at a path while a commit is saved, and say what it means if that fails.

    Whether a commit whose save failed is in the log after all is the caller's to look up, inside.

    Args:
        table: Key of the table, for messages.
        timeout_seconds: How long to wait for the lock.

    Raises:
        TableLockedError: Another writer holds the lock. The table is unchanged; a retry is safe.
        CommitConflictError: Another writer came between. The table is unchanged; a retry is safe.
    """
    with table_lock(path, timeout_seconds=timeout_seconds), translated(table):
        yield
