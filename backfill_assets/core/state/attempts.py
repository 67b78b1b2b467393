"""Attempts: what a launch did not publish. Refused partitions, and launches that stopped or failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["refused", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one launch did not publish, and why.

    Args:
        at: Instant in ISO format, in UTC.
        version: Newest version of the table then.
        reason: Why it was launched, in the launcher's words.
        by: Who launched.
        why: In words; of a launch that was refused partitions, what all of them have in common, or nothing.
        partitions: Why each was refused, by key; none where the launch as a whole stopped or failed.
    """

    at: str
    outcome: Outcome
    version: int
    run_id: str
    root_run_id: str
    reason: str = ""
    by: str = ""
    why: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict[str, str])
