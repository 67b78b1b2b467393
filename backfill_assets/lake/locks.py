"""The lock that stands in for an atomic "create if absent" where the storage has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from backfill_assets.errors import NOTHING_WRITTEN, TableLockedError
from backfill_assets.lake import paths


def writers_wait(uri: str) -> bool:
    """Say whether writers of a table wait for each other: where the storage needs the lock."""
    return paths.local_path(uri) is not None


@contextmanager
def table_lock(table_uri: str, *, timeout_seconds: float) -> Iterator[None]:
    """Hold a table's lock while a commit is saved.

    On local disks two JVMs can both believe that they wrote the same version, and one commit is lost without an error.
    Every writer of ours therefore holds `<table>.lock` for the whole save. Readers never lock. A process that dies
    lets go of it. Other storages need no lock, and take none.

    Raises:
        TableLockedError: It was held by somebody else for the whole time.
    """
    path = paths.local_path(table_uri)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_file = paths.lock_file(path)
    try:
        with FileLock(lock_file, timeout=timeout_seconds):
            yield
    except Timeout as error:
        raise TableLockedError(
            f"`{lock_file}` was held by another writer for {timeout_seconds:.0f} s.",
            state=NOTHING_WRITTEN,
            remedy="Wait for that writer; if there is none, `fuser` on the lock file names the process.",
        ) from error
