"""The one way in which tests kill what they started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Any


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it started, its JVM too, as when the machine goes down.

    Args:
        process: Leads a session of its own (`start_new_session=True`); it may have ended.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
