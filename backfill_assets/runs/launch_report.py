"""What a launch has done so far, as a person reads it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.stages import Stages
from backfill_assets.core.state.tallies import sum_if_known
from backfill_assets.core.words import bytes_in_words, count_in_words, seconds_in_words

MAX_ROWS_IN_MARKDOWN = 40

REFUSED = "refused"
"""Metadata of a failure: each cause for which partitions were refused, with their keys."""


@dataclass(slots=True)
class LaunchReport:
    """What a launch did so far.

    Args:
        waited_seconds: How long it waited between chunks, by what it waited for.
        stages: What was read so far, and what became of it.
    """

    wanted: Sequence[Partition]
    started: float = field(default_factory=time.monotonic)
    published: list[Published] = field(default_factory=list[Published])
    identical: list[Partition] = field(default_factory=list[Partition])
    refused: list[Verdict] = field(default_factory=list[Verdict])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    waited_seconds: dict[str, float] = field(default_factory=dict[str, float])
    stages: Stages = field(default_factory=Stages)

    @property
    def rows(self) -> int:
        return sum(sum(chunk.commit.rows.values()) for chunk in self.published)

    @property
    def rows_before(self) -> int | None:
        """Rows that the published partitions had before, whoever wrote them; None if nobody could count some."""
        return sum_if_known(part.rows_before for chunk in self.published for part in chunk.receipt.partitions.values())

    @property
    def done(self) -> list[Partition]:
        """Partitions that were read, and are in the table as the source has them: published, or identical."""
        return [partition for chunk in self.published for partition in chunk.partitions] + self.identical

    @property
    def up_to_date(self) -> list[Partition]:
        """Partitions that were not read again, since the table has them as the source does."""
        return [partition for out in self.left_out if out.published for partition in out.partitions]

    @property
    def not_looked_at(self) -> list[Partition]:
        """Partitions that are live, or that the source is not complete for."""
        return [p for out in self.left_out if not out.published and not out.is_failure for p in out.partitions]

    @property
    def skipped(self) -> list[str]:
        """Which partitions were not looked at, and why, a text each."""
        return [_left_out_in_words(out) for out in self.left_out if not out.published and not out.is_failure]

    @property
    def not_replaced(self) -> list[Partition]:
        """Partitions that newer code has published meanwhile."""
        return [partition for out in self.left_out if out.is_failure for partition in out.partitions]

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def metadata(self) -> dict[str, dg.MetadataValue[Any]]:
        """Return the launch as Dagster shows it."""
        return {"launch": dg.MetadataValue.md(self.summary())}

    def summary(self) -> str:
        """Return the launch in Markdown."""
        partitions = sum(len(chunk.partitions) for chunk in self.published)
        size = sum(sum(chunk.commit.size_bytes.values()) for chunk in self.published)
        lines = [
            "| published | rows before | rows | stored | commits | identical | refused | left out | seconds | "
            "rows per second |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            f"| {partitions:,} | {count_in_words(self.rows_before)} | {self.rows:,} | {bytes_in_words(size)} "
            f"| {len(self.published)} | {len(self.identical):,} | {len(self.refused)} "
            f"| {sum(len(o.partitions) for o in self.left_out):,} | {self.seconds:.1f} "
            f"| {self.rows / max(self.seconds, 0.1):,.0f} |",
        ]
        if counted := self.stages.as_markdown():
            lines += ["", *counted]
        for left_out in self.left_out:
            lines += ["", f"**Left out:** {_left_out_in_words(left_out)}."]
        if waited := waited_in_words(self.waited_seconds):
            lines += ["", f"**Waited:** {waited}."]
        if self.refused:
            lines += ["", "| refused | why |", "|---|---|"]
            lines += [
                f"| {verdict.partition.key} | {'<br>'.join(str(finding) for finding in verdict.findings)} |"
                for verdict in self.refused[:MAX_ROWS_IN_MARKDOWN]
            ]
            if len(self.refused) > MAX_ROWS_IN_MARKDOWN:
                lines.append(f"| and {len(self.refused) - MAX_ROWS_IN_MARKDOWN} more | see the run's log |")
        return "\n".join(lines)


def _left_out_in_words(left_out: LeftOut) -> str:
    first, last = left_out.partitions[0].key, left_out.partitions[-1].key
    return f"{len(left_out.partitions):,} from `{first}` to `{last}`: {left_out.why}"


def waited_in_words(waited_seconds: Mapping[str, float]) -> str:
    """Return what was waited for and how long, of waits of a second and more."""
    waits = {what: seconds for what, seconds in waited_seconds.items() if seconds >= 1}
    return ", ".join(f"{seconds_in_words(seconds)} for {what}" for what, seconds in waits.items())


def progress(report: LaunchReport, chunk: Published) -> str:
    """Return the line of the log that says how far a launch is."""
    done = sum(len(c.partitions) for c in report.published) + len(report.identical) + len(report.refused)
    total = len(report.wanted) - sum(len(o.partitions) for o in report.left_out)
    left = report.seconds / max(done, 1) * max(total - done, 0)
    steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in chunk.seconds.items())
    return (
        f"Chunk {chunk.chunk} of {chunk.chunks} is version {chunk.commit.version}: "
        f"{chunk.partitions[0].key} to {chunk.partitions[-1].key}, "
        f"{len(chunk.partitions)} partitions, {sum(chunk.commit.rows.values()):,} rows; {done:,} of {total:,} "
        "partitions done, "
        f"{report.rows / max(report.seconds, 0.1):,.0f} rows per second, about {left:.0f} s left (seconds by step: "
        f"{steps})"
    )
