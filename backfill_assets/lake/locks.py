"""The lock that stands in for an atomic "create if absent" where the storage has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from backfill_assets.core.spec.paths import S3_SCHEMES
from backfill_assets.errors import NOTHING_WRITTEN, STORAGE_REMEDY, ConfigurationError, StorageError, TableLockedError
from backfill_assets.lake import paths
from backfill_assets.spark.local_disk import local_path


def refuse_racing_writers(table: str, uri: str, setting_of: Callable[[str], str | None]) -> None:
    """Refuse a table with a stream where two drivers could commit the same version, and one of the commits be lost.

    S3 has no "create if absent" that Delta uses, and no lock of ours: a log store has to stand in for it.

    Args:
        table: Key of the table, for the message.
        setting_of: Returns a setting of Spark by its name; None where it is not set.

    Raises:
        ConfigurationError: It lies on S3, and no log store is named.
    """
    scheme = uri.partition(":/")[0]
    if scheme not in S3_SCHEMES:
        return
    settings = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
    if any(map(setting_of, settings)):
        return
    raise ConfigurationError(
        f"`{table}` has a live stream and lies at `{uri}`, where Delta cannot keep two drivers from writing the same "
        "version: a launch or a batch could be lost without an error.",
        state=NOTHING_WRITTEN,
        remedy=f"Set `{settings[0]}` in SPARK_EXTRA_CONF: `io.delta.storage.S3DynamoDBLogStore`, or, if one driver "
        "alone ever writes, `io.delta.storage.S3SingleDriverLogStore`; docs/places.md says more.",
    )


@contextmanager
def table_lock(table_uri: str, *, timeout_seconds: float) -> Iterator[None]:
    """Hold a table's lock while a commit is saved.

    On local disks two JVMs can both believe that they wrote the same version, and one commit is lost without an error.
    Every writer of ours therefore holds `<table>.lock` for the whole save. Readers never lock. A process that dies
    releases it. Other storages need no lock, and take none.

    Raises:
        TableLockedError: It was held by somebody else for the whole time.
        StorageError: The lock file cannot be made or written: a disk is full or read-only, or the folder is not ours.
    """
    path = local_path(table_uri)
    if path is None:
        yield
        return
    lock_file = paths.lock_file(path.resolve())
    with _taken(lock_file, timeout_seconds):
        yield


@contextmanager
def stream_lock(table_uri: str) -> Iterator[None]:
    """Be the only one who writes a table's live stream, wherever its checkpoint is, for as long as it is written.

    Whoever gives a table up holds it too. On other storages than a local disk there is no such lock.

    Raises:
        TableLockedError: Somebody else writes the stream. Nothing was written.
    """
    with table_lock(paths.stream_path(table_uri), timeout_seconds=1):
        yield


def _taken(lock_file: Path, timeout_seconds: float) -> AbstractContextManager[object]:
    """Take a lock; whoever leaves what is returned gives it back."""
    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(lock_file).acquire(timeout=timeout_seconds)
    except Timeout as error:
        raise TableLockedError(
            f"`{lock_file}` was held by another writer for {timeout_seconds:.0f} s.",
            state=NOTHING_WRITTEN,
            remedy="Wait for that writer; if there is none, `fuser` on the lock file names the process.",
        ) from error
    except OSError as error:
        raise StorageError(
            f"The lock file `{lock_file}` cannot be written: {error.strerror}.",
            state=NOTHING_WRITTEN,
            remedy=f"{STORAGE_REMEDY} If the root lies in HDFS, name it with its scheme: `hdfs:///...`.",
        ) from error
