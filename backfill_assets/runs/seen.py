"""What the launch of a run has seen of a table, and what not: the check that follows it goes by that."""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill_assets.core.state.tallies import Tally


@dataclass(slots=True)
class Seen:
    """What a run has seen of one table so far.

    Args:
        is_launched: Whether the launch of the table is in this run, and in this process: then the check after it knows
            what it read and left out. A run that is executed again from its check on has no launch; with some executors
            its launch had another process.
        rows: What the rows of partitions are, by key, each with a version after which they were read.
        left_out: Keys of partitions that its launch left out without knowing whether they are as their source has them.
    """

    is_launched: bool = False
    rows: dict[str, tuple[int, Tally]] = field(default_factory=dict[str, tuple[int, Tally]])
    left_out: set[str] = field(default_factory=set[str])
