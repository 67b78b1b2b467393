"""What a reconciliation of one table found, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from backfill_assets.commands.row_report import RowReport


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What a reconciliation found in one partition.

    Args:
        source_rows: None if the source could not be counted.
        failures: Rules that do not hold: `rule`, `rows`, `what` and `examples` of each.
        as_of: The moment of a database that both sides are of; empty for other sources.
        tolerated: What differs and was let pass by `checks.tolerance`, in words; empty if nothing was.
    """

    partition: str
    passed: bool
    source_rows: int | None
    table_rows: int
    source_checksum: str
    table_checksum: str
    failures: list[dict[str, Any]]
    as_of: str = ""
    tolerated: str = ""


@dataclass(frozen=True, slots=True)
class FenceCheck:
    """What was found at the fence.

    Args:
        counts: Whether a failure means that the table is wrong: a gap or an overlap, not silence or rows that wait.
    """

    name: str
    passed: bool
    what: str
    counts: bool


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a reconciliation of one table found.

    Args:
        outside: Which rows lie in no partition, in words; empty if none do.
        rows: The rows that differ, if somebody asked for them.
    """

    key: str
    run_id: str
    compared: tuple[PartitionReport, ...]
    left_out: tuple[str, ...]
    at_fence: tuple[FenceCheck, ...] = ()
    outside: str = ""
    rows: RowReport | None = None

    @property
    def passed(self) -> bool:
        checks = [check.passed for check in self.at_fence if check.counts]
        return not self.outside and all(report.passed for report in self.compared) and all(checks)

    @property
    def differing(self) -> list[PartitionReport]:
        return [report for report in self.compared if not report.passed]

    def summary(self) -> str:
        """Return the outcome in one sentence."""
        rows = sum(report.table_rows for report in self.compared)
        left_out = (
            f" {len(self.left_out):,} were left out: the source is not complete for them yet." if self.left_out else ""
        )
        count = f"{len(self.compared):,} partitions"
        tolerated = sum(bool(report.tolerated) for report in self.compared)
        if not self.differing and tolerated:
            return f"{self.key}: {count} ({rows:,} rows); {tolerated:,} differ by no more than is let pass.{left_out}"
        if not self.differing:
            return f"{self.key}: all {count} ({rows:,} rows) equal their source.{left_out}"
        return f"{self.key}: {len(self.differing):,} of {count} differ from their source.{left_out}"

    def to_json(self) -> str:
        """Return one JSON object; `partitions` holds every partition that was compared."""
        partitions = [{name: getattr(report, name) for name in PartitionReport.__slots__} for report in self.compared]
        whole = {
            "table": self.key,
            "passed": self.passed,
            "run_id": self.run_id,
            "left_out": list(self.left_out),
            "outside": self.outside,
            "at_fence": [{"check": c.name, "passed": c.passed, "what": c.what} for c in self.at_fence],
            "partitions": partitions,
            **(self.rows.to_body() if self.rows else {}),
        }
        return json.dumps(whole, indent=2)

    def show(self, console: Console) -> None:
        """Print what differs, what was found at the fence, and the outcome in one sentence."""
        if self.differing:
            from rich.table import Table

            table = Table(title=f"{self.key}: partitions that differ from their source", title_justify="left")
            table.add_column("partition", overflow="fold")
            table.add_column("source rows", justify="right", overflow="fold")
            table.add_column("table rows", justify="right", overflow="fold")
            table.add_column("what differs", overflow="fold")
            for report in self.differing:
                source = "?" if report.source_rows is None else f"{report.source_rows:,}"
                what = "\n".join(map(_in_words, report.failures))
                table.add_row(report.partition, source, f"{report.table_rows:,}", what)
            console.print(table)
        for report in self.compared:
            if report.tolerated:
                console.print(f"{report.partition}: {report.tolerated}", highlight=False, markup=False, soft_wrap=True)
        if self.rows:
            self.rows.show(console)
        for check in self.at_fence:
            mark = "[green]ok  [/]" if check.passed else "[red]not [/]"
            console.print(f"{mark} {check.name}: {check.what}", highlight=False)
        if self.outside:
            console.print(self.outside, style="bold red", highlight=False)
        console.print(self.summary(), style="bold green" if self.passed else "bold red", highlight=False)


def _in_words(failure: dict[str, Any]) -> str:
    named = "".join(f"\n  {example}" for example in failure["examples"])
    return f"{failure['rule']}: {failure['what']}{named}"
