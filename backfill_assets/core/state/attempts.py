"""Attempts: what a launch did not publish. Refused partitions, and launches that stopped or failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from backfill_assets.core.state.receipts import PublishedPartition, Run

Outcome = Literal["refused", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one launch did not publish, and why.

    Args:
        at: Instant in ISO format, in UTC.
        version: Newest version of the table then.
        why: In words; of a launch that was refused partitions, what all of them have in common, or nothing.
        partitions: Why each was refused, by key; none where the launch as a whole stopped or failed.
    """

    at: str
    outcome: Outcome
    version: int
    run: Run
    why: str = ""
    partitions: Mapping[str, str] = field(default_factory=dict[str, str])


def refusals(attempts: Iterable[Attempt], published: Mapping[str, PublishedPartition]) -> dict[str, str]:
    """Return when and why the newest refusal of each partition was, in words, by key; none that a publish followed.

    Args:
        attempts: The oldest first.
    """
    found: dict[str, str] = {}
    for attempt in attempts:
        at = datetime.fromisoformat(attempt.at)
        for key, why in attempt.partitions.items() if attempt.outcome == "refused" else ():
            newest = published.get(key)
            made_at = newest.receipt.made_at if newest else ""
            if made_at and datetime.fromisoformat(made_at) > at:
                continue
            found[key] = f"refused on {at:%Y-%m-%d at %H:%M} UTC: {why.rstrip('.')}"
    return found
