"""What history before the boundary of a new version's stream still waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from backfill_assets.commands.version.chosen import ChosenVersion
from backfill_assets.core.words import seconds_in_words


@dataclass(frozen=True, slots=True)
class Waiting:
    """A new version of which some history is not complete yet.

    Args:
        partitions: So many of them lie before the boundary, and are neither published nor complete.
        boundary_utc: Where its own stream begins.
        complete_until: Up to when its source is complete; None where it has nothing.
        source: In a few words.
    """

    key: str
    partitions: int
    boundary_utc: datetime
    complete_until: datetime | None
    source: str
    now: datetime

    def __str__(self) -> str:
        what = "partition before its boundary waits" if self.partitions == 1 else "partitions before its boundary wait"
        said = f"{self.key}: {self.partitions:,} {what}. The boundary is at {self.boundary_utc:%Y-%m-%d %H:%M} UTC, "
        ahead = (self.boundary_utc - self.now).total_seconds()
        if ahead > 0:
            return f"{said}which is {seconds_in_words(ahead)} ahead; then {self.source} has to drain to it."
        drained = (
            f"is complete until {self.complete_until:%Y-%m-%d %H:%M:%S} UTC" if self.complete_until else "is empty"
        )
        return f"{said}which has passed; {self.source} {drained}, and has to drain to the boundary."


@dataclass(frozen=True, slots=True)
class NothingBefore:
    """A new version of which the version before, that it is copied from, was never made."""

    key: str
    before: str
    partitions: int = 0

    def __str__(self) -> str:
        return (
            f"{self.key}: nothing is copied. {self.before}, the version before, was never made: launch it first, or "
            "name the lakehouse that has it."
        )


def waiting_for(chosen: ChosenVersion, log: Callable[[str], None]) -> list[Waiting | NothingBefore]:
    """Return the new versions of which history, where they have a boundary that before it, cannot be copied yet."""
    from backfill_assets.core.state.fence import is_history
    from backfill_assets.lake.definition import utc_now

    found: list[Waiting | NothingBefore] = []
    for pair in chosen.pairs:
        lake, spec = chosen.lake(pair.new, log), chosen.specs[pair.new]
        fence = lake.fence()
        if fence is None:
            is_copy = spec.source.is_of_version and not (spec.version_of and spec.version_of.retired)
            if is_copy and not chosen.lake(pair.before, log).exists():
                found.append(NothingBefore(pair.new, pair.before))
            continue
        until = chosen.project.lakehouse.source(spec, chosen.specs, None, log).complete_until()
        published = lake.published()
        left = [
            p
            for p in spec.grid.until(fence.at_utc)
            if is_history(p, fence) and p.key not in published and (until is None or p.window.end_utc > until)
        ]
        if left:
            source = spec.source.description.replace("`", "")
            found.append(Waiting(pair.new, len(left), fence.at_utc, until, source, now=utc_now()))
    return found
