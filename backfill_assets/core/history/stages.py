"""How many rows and bytes a launch has seen at each stage, from what the source said to what was written. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_assets.core.history.audit import NO_EVIDENCE
from backfill_assets.core.history.staging import StagedPartitions
from backfill_assets.core.state.tallies import EMPTY


@dataclass(frozen=True, slots=True)
class Stages:
    """Rows, and stored bytes, of some partitions at each stage: `read + late = superseded + unreadable + staged`.

    Args:
        expected_rows: That the source said it has, where it says so.
        unsaid: Partitions of which it does not say.
        expected_bytes: That the source stores; 0 where it does not know.
        read_rows: Rows of the source that were read, unreadable ones too.
        late_rows: Of the live stream, that were joined to them.
        superseded_rows: That another row with the same key replaced.
        unreadable_rows: That could not be read.
        staged_rows: That came to the audit.
        written_rows: That are in the table by this; not those that were identical, or refused.
        written_bytes: That the table stores of them.
    """

    expected_rows: int = 0
    unsaid: int = 0
    expected_bytes: int = 0
    read_rows: int = 0
    late_rows: int = 0
    superseded_rows: int = 0
    unreadable_rows: int = 0
    staged_rows: int = 0
    written_rows: int = 0
    written_bytes: int = 0

    def __add__(self, more: Stages) -> Stages:
        return Stages(*(getattr(self, name) + getattr(more, name) for name in self.__slots__))

    def as_markdown(self) -> list[str]:
        """Return a table with a row for rows and one for bytes; nothing where nothing was read."""
        if self == Stages():
            return []
        unsaid = f" and what {self.unsaid:,} partitions have" if self.unsaid else ""
        expected = f"{self.expected_rows:,}{unsaid}" if self.expected_rows or not self.unsaid else "not said"
        return [
            "| | expected | read | late | superseded | unreadable | staged | written |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            f"| rows | {expected} | {self.read_rows:,} | {self.late_rows:,} | {self.superseded_rows:,} | "
            f"{self.unreadable_rows:,} | {self.staged_rows:,} | {self.written_rows:,} |",
            f"| bytes | {self.expected_bytes:,} | | | | | | {self.written_bytes:,} |",
        ]


def stages_of(
    read: StagedPartitions[Any],
    keys: Sequence[str],
    rows: Mapping[str, int] | None = None,
    size_bytes: Mapping[str, int] | None = None,
) -> Stages:
    """Return what some partitions of a chunk came to.

    Args:
        rows: Of its commit, by partition key; None where nothing was written.
        size_bytes: Likewise.
    """
    total = Stages()
    for key in keys:
        tally, said = read.staged.tallies.get(key, EMPTY), read.scan.evidence.get(key, NO_EVIDENCE)
        late, superseded = read.staged.late.rows.get(key, 0), read.staged.superseded_rows.get(key, 0)
        total += Stages(
            expected_rows=said.raw_rows or 0,
            unsaid=int(said.raw_rows is None),
            expected_bytes=read.surveys[key].size_bytes if key in read.surveys else 0,
            read_rows=tally.rows + tally.unreadable_rows + superseded - late,
            late_rows=late,
            superseded_rows=superseded,
            unreadable_rows=tally.unreadable_rows,
            staged_rows=tally.rows,
            written_rows=(rows or {}).get(key, 0),
            written_bytes=(size_bytes or {}).get(key, 0),
        )
    return total
