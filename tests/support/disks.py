"""A disk of its own that holds little, so that it can be full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Let a folder that is there be a disk; skip the test where nobody may make one."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may make a disk of its own")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def leave_free(disk: Path, kilobytes: int) -> Path:
    """Fill a disk but for so much; return what fills it."""
    free, ballast = os.statvfs(disk), disk / "ballast"
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize - (kilobytes << 10)))
    return ballast
