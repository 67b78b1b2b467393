"""How far the backfill of a whole table is: derived each time it is asked, and stored nowhere. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

NewestLaunch = Literal["none", "queued", "started", "succeeded", "failed", "canceled"]
"""How the newest launch of a table stands, as Dagster has it."""


class BackfillState(StrEnum):
    """The states of a table's backfill."""

    NOT_STARTED = "NOT_STARTED"
    PENDING = "PENDING"
    """A launch waits to be started."""
    ACTIVE = "ACTIVE"
    STOPPED = "STOPPED"
    """Somebody has stopped the newest launch; `only: MISSING` does the rest."""
    FAILED = "FAILED"
    """The newest launch failed, was killed, or was refused a partition; what it had published stays."""
    PARTIAL = "PARTIAL"
    """Some partitions are as their source would make them, and no launch is under way for the others; or the feed that
    kept them up to date has stopped, and they are as they were then."""
    COMPLETED = "COMPLETED"
    """Every partition is published as its source would make it now."""


def backfill_state(
    published: int, total: int, newest: NewestLaunch, *, stale: int = 0, feed_has_stopped: bool = False
) -> BackfillState:
    """Say how far the backfill of a table is.

    | published | of | stale | newest launch | state       | feed    |
    |-----------|----|-------|---------------|-------------|---------|
    | 0         | 0  | 0     | none          | NOT_STARTED | -       |
    | 0         | 9  | 0     | none          | NOT_STARTED | -       |
    | 0         | 9  | 0     | succeeded     | NOT_STARTED | -       |
    | 0         | 9  | 9     | succeeded     | PARTIAL     | -       |
    | 0         | 9  | 0     | queued        | PENDING     | -       |
    | 4         | 9  | 0     | queued        | PENDING     | -       |
    | 9         | 9  | 0     | queued        | PENDING     | -       |
    | 0         | 9  | 0     | started       | ACTIVE      | -       |
    | 9         | 9  | 0     | started       | ACTIVE      | -       |
    | 4         | 9  | 0     | canceled      | STOPPED     | -       |
    | 0         | 9  | 0     | canceled      | STOPPED     | -       |
    | 4         | 9  | 0     | failed        | FAILED      | -       |
    | 0         | 0  | 0     | failed        | FAILED      | -       |
    | 4         | 9  | 0     | succeeded     | PARTIAL     | -       |
    | 4         | 9  | 0     | none          | PARTIAL     | -       |
    | 9         | 9  | 0     | succeeded     | COMPLETED   | -       |
    | 9         | 9  | 0     | canceled      | COMPLETED   | -       |
    | 9         | 9  | 0     | failed        | COMPLETED   | -       |
    | 9         | 9  | 0     | none          | COMPLETED   | -       |
    | 9         | 9  | 0     | succeeded     | PARTIAL     | stopped |
    | 9         | 9  | 0     | none          | PARTIAL     | stopped |
    | 9         | 9  | 0     | started       | ACTIVE      | stopped |
    | 0         | 9  | 0     | none          | NOT_STARTED | stopped |

    Args:
        published: Partitions that are published as their source would make them now.
        total: Partitions of history for which the source is complete.
        stale: Partitions that are published too, and are not as their source would make them now.
        feed_has_stopped: Whether changes of the source come no more.
    """
    if newest == "queued":
        return BackfillState.PENDING
    if newest == "started":
        return BackfillState.ACTIVE
    if total and published >= total and not feed_has_stopped:
        return BackfillState.COMPLETED
    if newest == "canceled":
        return BackfillState.STOPPED
    if newest == "failed":
        return BackfillState.FAILED
    return BackfillState.PARTIAL if published or stale else BackfillState.NOT_STARTED
