"""Links, on local disks; elsewhere there are none."""

from __future__ import annotations

import os
from pathlib import Path

from backfill_assets.errors import SourceRepeatedError
from backfill_assets.spark.local_disk import local_path


def refuse_endless_links(key: str, root: str) -> None:
    """Refuse a landing folder below which a link leads back: Spark would follow it, and read each event forty times.

    Args:
        key: Of the table, for the message.

    Raises:
        SourceRepeatedError: There is such a link.
    """
    local = local_path(root)
    if local is None:
        return
    for folder, below, _ in os.walk(local):
        real = Path(folder).resolve()
        for name in below:
            link = Path(folder, name)
            if link.is_symlink() and link.resolve() in (real, *real.parents):
                raise SourceRepeatedError(
                    f"`{key}`: `{link}` is a link to `{link.resolve()}`, a folder that it lies in; each event "
                    "would be read again and again.",
                    state="Nothing was started.",
                    remedy="Remove the link, or put it outside of the landing folder.",
                    path=str(link),
                )


def identity(path: str) -> object:
    """Return what is the same for all names of one file; of a file that is not here, its path."""
    local = local_path(path)
    try:
        known = local.stat() if local else None
    except OSError:
        return path
    return (known.st_dev, known.st_ino) if known else path
