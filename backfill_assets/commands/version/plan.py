"""How a new version comes up, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backfill_assets.commands.version.chosen import ChosenVersion
from backfill_assets.core.words import seconds_in_words

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from backfill_assets.core.spec.version_sets import VersionPair


@dataclass(frozen=True, slots=True)
class PlannedVersion:
    """What will be done with one new version.

    Args:
        partitions: Of history, that it has until now.
        rows: That the version before has published.
        seconds: About so long the copy takes, at least and at most.
        not_compared: In words.
    """

    before: str
    new: str
    strategy: str
    why: str
    partitions: int
    rows: int
    seconds: tuple[float, float]
    not_compared: tuple[str, ...]


def plan_version(chosen: ChosenVersion, pair: VersionPair, log: Callable[[str], None]) -> PlannedVersion:
    """Say how one new version comes up. Nothing is written."""
    import math

    from backfill_assets.commands.time_and_cost import past_of
    from backfill_assets.core.history.estimate import seconds_of, work_of
    from backfill_assets.core.history.version_comparison import not_compared
    from backfill_assets.core.spec.history import history_of
    from backfill_assets.core.spec.version_strategy import strategy_of
    from backfill_assets.core.state.fence import first_fence

    new, before = chosen.specs[pair.new], chosen.specs[pair.before]
    strategy, fence = strategy_of(new, before), first_fence(new)
    until = min(datetime.now(UTC), fence.at_utc) if fence else datetime.now(UTC)
    partitions = len(history_of(new).until(until))
    rows = sum(known.partition.rows for known in chosen.lake(pair.before, log).published().values())
    past, _ = past_of(chosen.table(pair.before), log)
    chunks = max(1, math.ceil(partitions / new.max_partitions_per_chunk))
    seconds = seconds_of([work_of(partitions, rows) // chunks] * chunks, past)
    left_out = tuple(not_compared(new, before))
    return PlannedVersion(
        pair.before,
        pair.new,
        strategy.name,
        strategy.why,
        partitions,
        rows=rows,
        seconds=seconds,
        not_compared=left_out,
    )


def plan_as_table(found: Sequence[PlannedVersion]) -> Shown:
    """Return what a person reads."""
    from rich.markup import escape
    from rich.table import Table as Shown

    shown = Shown(title="New versions", title_justify="left", show_lines=True)
    for name in ("version", "how", "partitions", "rows before", "time", "not compared"):
        shown.add_column(name, justify="right" if name in ("partitions", "rows before") else "left", overflow="fold")
    for one in found:
        least, most = map(seconds_in_words, one.seconds)
        time = least if least == most else f"{least} to {most}"
        cells = (
            f"{one.new}\nbeside {one.before}",
            one.strategy,
            f"{one.partitions:,}",
            f"{one.rows:,}",
            f"about {time}",
            "\n".join(one.not_compared),
        )
        shown.add_row(*map(escape, cells))
    return shown
