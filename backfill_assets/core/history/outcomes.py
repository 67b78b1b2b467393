"""What can become of the partitions of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.ports import Commit
from backfill_assets.core.history.stages import Stages
from backfill_assets.core.state.receipts import PublishedPartition, Receipt
from backfill_assets.core.state.tallies import Tally

NOTHING_COUNTED = Stages()


@dataclass(frozen=True, slots=True)
class Published:
    """A chunk is in the table.

    Args:
        seconds: By step: scan, write, audit, commit.
        tallies: Of the files that the commit published, by partition key; empty if it published a copy of what was
            audited.
    """

    chunk: int
    chunks: int
    partitions: tuple[Partition, ...]
    receipt: Receipt
    commit: Commit
    seconds: dict[str, float]
    stages: Stages = field(default=NOTHING_COUNTED, compare=False)
    tallies: Mapping[str, Tally] = field(default_factory=dict[str, Tally], compare=False)


@dataclass(frozen=True, slots=True)
class Identical:
    """Partitions of a chunk that were made again, and are in the table already, row for row: they were not written.

    Args:
        published: The publish that put them there, by partition key.
        tallies: What the table's own rows are, by partition key.
        version: A version of the table after which its rows were read.
    """

    partitions: tuple[Partition, ...]
    published: Mapping[str, PublishedPartition]
    tallies: Mapping[str, Tally]
    version: int
    stages: Stages = field(default=NOTHING_COUNTED, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition failed its audit; the table keeps what it had."""

    verdict: Verdict
    stages: Stages = field(default=NOTHING_COUNTED, compare=False)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What became of one partition when it was read and audited, and nothing was written.

    Args:
        tally: Of the rows that would be written.
        identical: Whether the table has them already, row for row.
    """

    verdict: Verdict
    tally: Tally
    identical: bool


@dataclass(frozen=True, slots=True)
class NextChunk:
    """A chunk is about to begin: it does when the next outcome is asked for. No rows are held until then.

    Args:
        number: From 1.
        rows: Rows of the source that were read before it, by receipts: those of refused partitions are not in it.
        files: Files that were read before it.
    """

    number: int
    rows: int
    files: int


def in_fewer_rows(receipt: Receipt) -> str:
    """Say which partitions of a commit have fewer rows than before; empty if none has."""
    fewer = [
        (key, part.rows_before, part.rows)
        for key, part in sorted(receipt.partitions.items())
        if part.rows_before is not None and part.rows < part.rows_before
    ]
    if not fewer:
        return ""
    key, before, after = fewer[0]
    return (
        f"{len(fewer):,} of {len(receipt.partitions):,} partitions have fewer rows than before, first `{key}` "
        f"({before:,} → {after:,})."
    )


Outcome = Published | Identical | Refused | LeftOut | NextChunk
