"""The largest memory of the processes of a session, while they run."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Peak:
    """The largest memory of the processes of a session, in bytes."""

    session: int
    size_bytes: int = 0

    def watch(self, process: subprocess.Popen[str]) -> None:
        before: set[int] = set()
        while process.poll() is None:
            now = set(_session(self.session))
            # A JVM that starts a program is there twice for a moment, with one and the same memory.
            self.size_bytes = max(self.size_bytes, sum(map(_resident, now & before)))
            before = now
            time.sleep(0.5)


def _session(session: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                yield int(folder.name)


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextmanager
def watched(process: subprocess.Popen[str]) -> Iterator[Peak]:
    """Watch a process that leads a session, and all that it starts, until it has ended."""
    peak = Peak(process.pid)
    watcher = threading.Thread(target=peak.watch, args=(process,))
    watcher.start()
    try:
        yield peak
    finally:
        watcher.join()
