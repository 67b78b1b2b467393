"""Links, on local disks; elsewhere there are none."""

from __future__ import annotations

from backfill_assets.spark.local_disk import local_path


def identity(path: str) -> object:
    """Return what is the same for all names of one file; of a file that is not here, its path."""
    local = local_path(path)
    try:
        known = local.stat() if local else None
    except OSError:
        return path
    return (known.st_dev, known.st_ino) if known and known.st_ino else path  # some storages number nothing
