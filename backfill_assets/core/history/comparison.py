"""Two tallies of a partition, held against each other rule by rule.

A difference is a finding, never an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.ports import Lake, Rows
from backfill_assets.core.spec.checks import Rule
from backfill_assets.core.state.receipts import PartitionReceipt
from backfill_assets.core.state.tallies import NOTHING_KNOWN, Contents, Tally
from backfill_assets.errors import UnreadableTableError, written_out


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """Whether one rule holds for a partition.

    Args:
        rows: How many rows break it, as far as counts can tell; more than none in what was let pass, too.
        what: One sentence; empty where it holds.
        examples: A few of the rows.
    """

    rule: Rule
    passed: bool
    rows: int = 0
    what: str = ""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", written_out(self.what))
        object.__setattr__(self, "examples", tuple(map(written_out, self.examples)))

    def __str__(self) -> str:
        if self.passed and not self.rows:
            return f"{self.rule}: holds"
        named = f" For example: {'; '.join(self.examples)}." if self.examples else ""
        return f"{self.rule}: {self.what}{named}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One partition of the table held against its source.

    Args:
        source_rows: Rows that the source has; None if it could not be counted.
        table_rows: Rows that the table has.
        late_rows: Late rows among the source's.
        superseded_rows: Rows of the source, or late ones, that a newer one with the same key replaced.
        receipt: What the table was held against, if that was a receipt.
        as_of: The moment that both sides are of, where the source has one.
    """

    partition: Partition
    source_rows: int | None
    table_rows: int
    source_checksum: str
    table_checksum: str
    verdicts: tuple[RuleVerdict, ...]
    late_rows: int = 0
    superseded_rows: int = 0
    receipt: PartitionReceipt | None = None
    as_of: str = ""

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def failures(self) -> list[RuleVerdict]:
        return [verdict for verdict in self.verdicts if not verdict.passed]

    @property
    def tolerated(self) -> str:
        """What differs and was let pass, in words; empty if nothing was."""
        return " ".join(str(verdict) for verdict in self.verdicts if verdict.passed and verdict.rows)

    def __str__(self) -> str:
        return f"{self.partition.key}: " + ("; ".join(map(str, self.failures)) or "reconciled")


def compare(
    partition: Partition,
    *,
    table: Tally,
    source: Tally | PartitionReceipt | None,
    source_problems: Sequence[str] = (),
    schema_problems: Sequence[str] = (),
    has_other_columns: bool = False,
    unreadable: str = "",
) -> Comparison:
    """Hold the tally of a table's partition against what its source has.

    Args:
        source: A fresh tally of the source, or the receipt of what was published; None if there is neither.
        source_problems: Why the source cannot be trusted to be whole.
        schema_problems: How the table's columns differ from the spec's.
        has_other_columns: Whether the source is a receipt whose checksum is of other columns.
        unreadable: Why the table's rows cannot be read; empty if they were.
    """
    if unreadable:
        remedy = [] if source_problems else [f"Launch {partition.key} again: a launch writes it anew."]
        source_problems = [f"the table's rows cannot be read: {unreadable}.", *remedy, *source_problems]
    rows = None if source is None else source.rows
    checksum = "" if source is None else source.checksum_hex if isinstance(source, Tally) else source.checksum
    verdicts = (
        rows_match(
            (table.rows, table.checksum_hex), (rows, checksum), source_problems, has_other_columns=has_other_columns
        ),
        RuleVerdict(
            Rule.KEYS_ARE_UNIQUE,
            passed=not table.duplicate_keys and not table.null_keys,
            rows=table.duplicate_keys + table.null_keys,
            what=_both(table.duplicate_keys, "repeat a key", table.null_keys, "have no key"),
        ),
        RuleVerdict(
            Rule.ROWS_INSIDE_PARTITION,
            passed=not table.stray_rows,
            rows=table.stray_rows,
            what=f"{table.stray_rows:,} rows have an event time outside the partition." if table.stray_rows else "",
        ),
        RuleVerdict(
            Rule.SCHEMA_MATCHES,
            passed=not schema_problems,
            what=f"{'; '.join(schema_problems)}." if schema_problems else "",
        ),
    )
    receipt = source if isinstance(source, PartitionReceipt) else None
    return Comparison(partition, rows, table.rows, checksum, table.checksum_hex, verdicts=verdicts, receipt=receipt)


def read_back(
    lake: Lake[Rows], partitions: Sequence[Partition], *, version: int | None, unique: Contents = NOTHING_KNOWN
) -> tuple[dict[str, Tally], dict[str, str]]:
    """Tally partitions of the table; if some cannot be read, tally the others.

    Returns:
        The tallies by partition key, and why partitions cannot be read, by key.
    """
    try:
        return lake.tally(partitions, version=version, unique=unique), {}
    except UnreadableTableError:
        if not (unreadable := lake.unreadable(partitions, version=version)):
            raise
    readable = [partition for partition in partitions if partition.key not in unreadable]
    return lake.tally(readable, version=version, unique=unique) if readable else {}, unreadable


def rows_match(
    table: tuple[int, str],
    source: tuple[int | None, str],
    problems: Sequence[str] = (),
    *,
    has_other_columns: bool = False,
) -> RuleVerdict:
    """Say whether two sides have the same rows.

    Args:
        table: How many rows, and their checksum.
        source: Likewise; no number if it could not be counted.
        problems: Why the source cannot be trusted to be whole.
        has_other_columns: Whether the checksums are of different columns.
    """
    (table_rows, table_checksum), (rows, checksum) = table, source
    if problems:
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, what=" ".join(problems))
    if rows is None:
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, rows=table_rows, what="it was never published.")
    if rows != table_rows:
        difference = table_rows - rows
        more_or_fewer = "more" if difference > 0 else "fewer"
        what = f"the table has {table_rows:,} rows, {abs(difference):,} {more_or_fewer} than its source ({rows:,})."
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, rows=abs(difference), what=what)
    if checksum != table_checksum and has_other_columns:
        what = "holds by count alone: it was published with other columns, so the checksum says nothing"
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=True, what=what)
    if checksum != table_checksum:
        what = f"both have {rows:,} rows, but not the same: checksum `{table_checksum}`, source `{checksum}`."
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, rows=1, what=what)
    return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=True)


def _both(first: int, first_what: str, second: int, second_what: str) -> str:
    parts = [f"{count:,} rows {what}" for count, what in ((first, first_what), (second, second_what)) if count]
    return " and ".join(parts) + "." if parts else ""
