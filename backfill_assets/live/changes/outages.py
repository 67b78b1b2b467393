"""A capture that outlives a restart of its database, and a connection that broke."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from backfill_assets.errors import SourceUnavailableError
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import Landed, note_why_it_stopped

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0

NOTED_AFTER_SECONDS = 300.0
"""A shorter outage is no reason to wake anybody; of a longer one `status` tells, and `stream_lags` is posted."""

LOCK_WAIT_SECONDS = 120.0
"""So long a server may take to notice that a connection broke, and to let the same capture begin again."""


def capture_until_stopped(
    capture: Capture, *, pause_seconds: float, stop: threading.Event, report: Callable[[Landed], None] | None = None
) -> None:
    """Capture; where the database does not answer any more, wait until it does, and continue where the files end.

    It is asked after a second, two, four, and so on, at most every half minute. A slot that is not there
    any more, a right that is missing, a server that was put back: those end it, for a person to look at.

    Raises:
        SourceUnavailableError: The database did not answer at the start.
        SourceRefusedError, ChangeFeedError: As `Capture.run`.
    """
    wait, lost_at = FIRST_WAIT_SECONDS, None
    while True:
        try:
            return capture.run(once=False, pause_seconds=pause_seconds, stop=stop, report=report)
        except SourceUnavailableError as error:
            now = time.monotonic()
            if lost_at is None and capture.begun_at is None:
                raise
            if lost_at is None or now - (capture.begun_at or now) > LONGEST_WAIT_SECONDS:
                wait, lost_at = FIRST_WAIT_SECONDS, now
            if now - lost_at > NOTED_AFTER_SECONDS:
                note_why_it_stopped(capture.folder, f"{error.what} It goes on by itself when the database answers.")
            capture.log(f"{error.what} {error.state} It is asked again in {wait:g} s.")
        capture.lock_wait_seconds = LOCK_WAIT_SECONDS
        if stop.wait(wait):
            return None
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
