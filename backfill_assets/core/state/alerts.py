"""Alerts: what somebody should know of, told once, and once more when it is over. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import TypeAdapter, ValidationError

from backfill_assets.core.words import shortened

MOST_LETTERS = 2_000
"""So much of a sentence is posted."""


class AlertKind(StrEnum):
    """What an alert is about."""

    RUN_FAILED = "run_failed"
    CHECK_FAILED = "check_failed"
    GAP_FOUND = "gap_found"
    STREAM_SILENT = "stream_silent"
    STREAM_LAGS = "stream_lags"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that somebody should know of.

    Args:
        subject: What it is about: a run, a check, a stream.
        what: One sentence, with names and values.
        table: Key of the table, where there is one.
        since: Instant in ISO format; empty if nobody knows.
        details: What makes it another alert when it changes, while `what` may tell a newer count of seconds.
        refused: Of a run that failed because partitions were refused alone: why and since when, by table and key.
    """

    kind: AlertKind
    subject: str
    what: str
    table: str = ""
    since: str = ""
    run_id: str = ""
    partitions: tuple[str, ...] = ()
    details: str = ""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        """What stays the same while it changes."""
        return f"{self.kind} {self.subject}"

    @property
    def alert_id(self) -> str:
        """Names it as it is now, however often it is found."""
        told = json.dumps([self.kind, self.subject, self.details, self.since, *self.partitions])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def to_body(self, at: datetime, *, project: str = "", began: str = "", is_over: bool = False) -> dict[str, object]:
        """Return the JSON object that is posted.

        Args:
            project: Name of the project that posts it; empty if its Dagster has no other.
            began: When it was first found as it is; the same alert, said again after another one, is a post of its own.
        """
        told = json.dumps([project, self.alert_id, began, is_over])
        return {
            "id": hashlib.sha256(told.encode()).hexdigest()[:16],
            "project": project,
            "kind": str(self.kind),
            "state": "over" if is_over else "open",
            "table": self.table,
            "subject": self.subject,
            "what": shortened(self.what, MOST_LETTERS),
            "since": self.since,
            "run_id": self.run_id,
            "partitions": list(self.partitions),
            "at": at.isoformat(timespec="seconds"),
        }


@dataclass(slots=True)
class StreamMemory:
    """What is known of a live stream.

    Args:
        until: Storage id of its newest event that was looked at.
        newest: Instant at which its newest batch was told of; empty if it has never begun.
        lag_seconds: Of that batch, or those that were told with it; None if they had no file.
        stopped: Why the capture of a change feed has ended; empty if it has not.
    """

    until: int = 0
    newest: str = ""
    lag_seconds: float | None = None
    stopped: str = ""


@dataclass(slots=True)
class AlertMemory:
    """What has been told: the memory between two looks.

    Args:
        open: The alerts that were told and are not over, by name.
        began: Instant of the first look: of runs that failed before it nobody is told. Empty before that.
        runs_until: Instant from which on runs are looked at.
        runs: Failed runs that were told, and when they were last changed: those that changed after that instant.
        found: When each alert that is to be told was first found as it is, by its id; none once it was told.
        streams: By table.
        checks: Id of the newest evaluation of each check that was looked at.
        changed: Which run was changed last before that look, and when.
        refused: Why and since when partitions are refused, as far as that was told, by table and key.
    """

    open: dict[str, Alert] = field(default_factory=dict[str, Alert])
    began: str = ""
    runs_until: str = ""
    runs: dict[str, str] = field(default_factory=dict[str, str])
    found: dict[str, str] = field(default_factory=dict[str, str])
    streams: dict[str, StreamMemory] = field(default_factory=dict[str, StreamMemory])
    checks: dict[str, int] = field(default_factory=dict[str, int])
    changed: str = ""
    refused: dict[str, str] = field(default_factory=dict[str, str])

    def has_told_refusal(self, alert: Alert) -> bool:
        """Say whether every refusal of a run was told: same partition, same reasons, no pass since."""
        return bool(alert.refused) and alert.refused.items() <= self.refused.items()

    def to_json(self) -> str:
        """Return it as text, for a sensor's cursor."""
        return _MEMORY.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | None) -> AlertMemory:
        """Read it again; nothing was told where there is no text, or one that this version cannot read."""
        try:
            return _MEMORY.validate_json(text) if text else cls()
        except ValidationError:
            return cls()


_MEMORY = TypeAdapter(AlertMemory)


def news(
    told: Mapping[str, Alert], found: Sequence[Alert], looked_at: Collection[str]
) -> tuple[list[Alert], list[Alert]]:
    """Return what has to be told: alerts that are new or have changed, and those that are over.

    | told   | found    | looked at | told now |
    |--------|----------|-----------|----------|
    | no     | yes      | yes       | open     |
    | yes    | the same | yes       | nothing  |
    | yes    | changed  | yes       | open     |
    | yes    | no       | yes       | over     |
    | yes    | no       | no        | nothing  |
    | no     | no       | yes       | nothing  |

    Args:
        told: What was told and is not over, by name.
        found: What is so now.
        looked_at: Names of what was looked at: of the others nothing is known.
    """
    now = {alert.name: alert for alert in found}
    opened = [a for name, a in now.items() if name not in told or told[name].alert_id != a.alert_id]
    over = [alert for name, alert in told.items() if name in looked_at and name not in now]
    return opened, over


def silence(
    key: str, newest_utc: datetime | None, now_utc: datetime, *, silent_after_seconds: float, known_every: float
) -> Alert | None:
    """Return an alert if a stream that has begun to write will have been silent for too long at the next look.

    So it is told within its time, and not at the first look after it.

    Args:
        newest_utc: When its newest batch was told of; None before the first: a stream that has not begun is no outage.
        known_every: Seconds in which its writer tells of it once, and then somebody looks.
    """
    if newest_utc is None or now_utc - newest_utc <= timedelta(seconds=silent_after_seconds - known_every):
        return None
    what = (
        f"The stream of `{key}` is silent: its newest batch was told of at {newest_utc:%Y-%m-%d %H:%M:%S} UTC, and "
        f"{silent_after_seconds:,.0f} s are an outage: of the writer, or of what delivers events."
    )
    return Alert(AlertKind.STREAM_SILENT, f"stream {key}", what, key, since=newest_utc.isoformat(timespec="seconds"))


def lag(key: str, lag_seconds: float | None, max_lag_seconds: float | None) -> Alert | None:
    """Return an alert if what landed waited longer for its batch than it may.

    Args:
        lag_seconds: Of the newest batches that were told of; None if none had a file.
    """
    if lag_seconds is None or max_lag_seconds is None or lag_seconds <= max_lag_seconds:
        return None
    what = (
        f"The stream of `{key}` lags: a file waited {lag_seconds:,.0f} s until its events were in the table, and "
        f"`live.max_lag_seconds` is {max_lag_seconds:,.0f}."
    )
    return Alert(AlertKind.STREAM_LAGS, f"stream {key}", what, key)


def behind(key: str, lag_seconds: float | None, max_lag_seconds: float, *, stopped: str) -> Alert | None:
    """Return an alert if a table with a change feed is too far behind its database, or will be.

    Args:
        lag_seconds: How old what the table has was when the feed was folded in last; None if nothing has come.
        stopped: Why its capture has ended; empty if it has not.
    """
    is_late = lag_seconds is not None and lag_seconds > max_lag_seconds
    if not stopped and not is_late:
        return None
    far = f"`{key}` is {lag_seconds or 0:,.0f} s behind its database"
    what = (
        f"{far}, and is not coming any closer: its capture has stopped. {stopped}"
        if stopped
        else f"{far}, and `changes.max_lag_seconds` is {max_lag_seconds:,.0f}."
    )
    return Alert(AlertKind.STREAM_LAGS, f"stream {key}", what, key, details=stopped)
