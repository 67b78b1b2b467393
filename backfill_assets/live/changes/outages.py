"""A capture that outlives a restart of its database, and a connection that broke."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from backfill_assets.errors import CaptureRunningError, SourceUnavailableError
from backfill_assets.live.changes.capture import Capture
from backfill_assets.live.changes.landed import STOPPED, FeedState, Landed, feed_state, note_why_it_stopped

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0

NOTED_AFTER = timedelta(minutes=5)
"""A shorter outage is no reason to wake anybody; of a longer one `status` tells, and `stream_lags` is posted."""


def capture_until_stopped(
    capture: Capture, *, pause_seconds: float, stop: threading.Event, report: Callable[[Landed], None] | None = None
) -> None:
    """Capture; where the database does not answer any more, wait until it does, and continue where the files end.

    It is asked after 1, 2, 4, 8, 16 seconds, and then every half minute. The server may not have noticed yet that the
    connection broke, and keep the capture's lock for a while: that is waited for too. A slot that is not there any
    more, a right that is missing, a server that was put back: those end it, for a person to look at.

    Raises:
        SourceUnavailableError: The database did not answer at the start.
        CaptureRunningError: Another one of the same name is running at the start.
        SourceRefusedError, ChangeFeedError: As `Capture.run`.
    """
    wait, lost_at, noted = FIRST_WAIT_SECONDS, None, ""
    while True:
        began = time.monotonic()
        try:
            capture.run(once=False, pause_seconds=pause_seconds, stop=stop, report=report)
            break
        except (SourceUnavailableError, CaptureRunningError) as error:
            now = time.monotonic()
            if capture.has_landed:
                lost_at = now
                wait = FIRST_WAIT_SECONDS if now - began > LONGEST_WAIT_SECONDS else wait
            if lost_at is None:
                if isinstance(error, SourceUnavailableError):
                    note_why_it_stopped(capture.folder, error.what)
                raise
            if now - lost_at > NOTED_AFTER.total_seconds() and _nobody_lands(feed_state(capture.folder)):
                noted = f"{error.what} It asks again every half minute."
                note_why_it_stopped(capture.folder, noted)
            capture.log(f"{error.what} {error.state} It is asked again in {wait:g} s.")
        if stop.wait(wait):
            break
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)
    if noted and feed_state(capture.folder).stopped == noted:  # whoever stopped it knows
        (capture.folder / STOPPED).unlink(missing_ok=True)


def _nobody_lands(feed: FeedState) -> bool:
    """Say whether no other capture of the same name has landed all there is a short while ago, and no end is noted."""
    age = datetime.now(UTC) - feed.landed_at if feed.landed_at else NOTED_AFTER
    return not feed.stopped and not timedelta(0) <= age < NOTED_AFTER
