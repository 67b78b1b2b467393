"""The audit: what must hold for a staged partition before it is published. Pure.

A partition that fails is left as it is in the table: its old rows and its old files stay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import written_out


class AuditRule(StrEnum):
    """What must hold for a staged partition."""

    SOURCE_IS_PRESENT = "source_is_present"
    FILES_ARE_READABLE = "files_are_readable"
    SCHEMA_MATCHES = "schema_matches"
    VALUES_FIT_THEIR_TYPES = "values_fit_their_types"
    REQUIRED_COLUMNS_ARE_FILLED = "required_columns_are_filled"
    ROWS_INSIDE_PARTITION = "rows_inside_partition"
    KEYS_ARE_UNIQUE = "keys_are_unique"
    ROWS_ARE_ACCOUNTED_FOR = "rows_are_accounted_for"
    PARTITION_IS_NOT_EMPTIED = "partition_is_not_emptied"
    PARTITION_DOES_NOT_SHRINK = "partition_does_not_shrink"
    MEASURES_ARE_AS_EXPECTED = "measures_are_as_expected"
    LIVE_ROWS_ARE_COVERED = "live_rows_are_covered"
    LATE_ROWS_ARE_KEPT = "late_rows_are_kept"
    KEYS_ARE_KEPT = "keys_are_kept"
    OTHER_KEYS_ARE_UNCHANGED = "other_keys_are_unchanged"


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that does not hold.

    Args:
        rows: How many rows break it; 0 where it is not about rows.
        what: One sentence, with names and values.
        examples: A few of the rows, each in one line.
    """

    rule: AuditRule
    rows: int
    what: str
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "what", written_out(self.what))
        object.__setattr__(self, "examples", tuple(map(written_out, self.examples)))

    def __str__(self) -> str:
        named = f" For example: {'; '.join(self.examples)}." if self.examples else ""
        return f"{self.rule}: {self.what}{named}"


def unreadable_rows(rows: int, examples: Sequence[str]) -> Finding:
    """Return what is wrong with rows whose values are none of the spec's types."""
    return Finding(
        AuditRule.VALUES_FIT_THEIR_TYPES, rows, f"{_rows(rows)} cannot be read as the spec says.", tuple(examples)
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the source says of one partition, without the frame that was staged from it.

    Args:
        raw_rows: Rows that the source says it has: from Parquet footers, line counts or receipts; None if it cannot
            say.
        findings: What the source itself found wrong.
        place: Where the rows lie, for messages.
        deleted_rows: That it says were deleted since the table had them: that these are not there any more is no sign
            of a source that lost them.
    """

    raw_rows: int | None
    findings: tuple[Finding, ...] = ()
    place: str = ""
    deleted_rows: int = 0


NO_EVIDENCE = Evidence(raw_rows=None)

ALL_ROWS = sys.maxsize
"""As many deleted rows as there may be."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one partition's audit."""

    partition: Partition
    findings: tuple[Finding, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        return f"{self.partition.key}: " + (" ".join(map(str, self.findings)) or "passed")


def audit(
    spec: TableSpec,
    partition: Partition,
    *,
    tally: Tally,
    superseded_rows: int,
    evidence: Evidence,
    rows_now: int | None,
    allow_shrink: bool = False,
    late_rows: int = 0,
    folded_before: int = 0,
) -> Verdict:
    """Hold one staged partition against every rule.

    Args:
        tally: Of the staged rows.
        superseded_rows: Rows that another row with the same key replaced.
        evidence: What the source says of itself.
        rows_now: Rows that the table has in this partition, whoever wrote them; None if nobody can count them.
        allow_shrink: Whether it may lose more of them than the spec's `max_shrink`.
        late_rows: Late rows among the staged.
        folded_before: Late rows that the partition's newest receipt folded in. Nothing else has them.
    """
    found = list(evidence.findings)
    at = f" ({evidence.place})" if evidence.place else ""
    for column, rows in sorted(tally.nulls.items()):
        found.append(Finding(AuditRule.REQUIRED_COLUMNS_ARE_FILLED, rows, f"`{column}` is NULL in {_rows(rows)}{at}."))
    if tally.stray_rows:
        lie = _verb(tally.stray_rows, "has", "have")
        what = (
            f"{_rows(tally.stray_rows)} of {tally.rows:,} {lie} an event time outside {partition.key}{at}{_hint(spec)}."
        )
        found.append(Finding(AuditRule.ROWS_INSIDE_PARTITION, tally.stray_rows, what))
    if tally.duplicate_keys:
        keys = ", ".join(f"`{name}`" for name in spec.key_columns)
        what = (
            f"{_rows(tally.duplicate_keys)} {_verb(tally.duplicate_keys, 'repeats', 'repeat')} a key ({keys}), "
            f"and `latest_wins_by` does not say which one counts{at}."
        )
        found.append(Finding(AuditRule.KEYS_ARE_UNIQUE, tally.duplicate_keys, what))
    accounted = tally.rows + superseded_rows + tally.unreadable_rows
    if tally.unreadable_rows and not evidence.findings:
        what = f"{_rows(tally.unreadable_rows)} cannot be read{at}."
        found.append(Finding(AuditRule.VALUES_FIT_THEIR_TYPES, tally.unreadable_rows, what))
    raw_rows = None if evidence.raw_rows is None else evidence.raw_rows + late_rows
    if raw_rows is not None and accounted != raw_rows and not evidence.findings:
        late = f" and {late_rows:,} came late" if late_rows else ""
        what = (
            f"the source has {_rows(raw_rows - late_rows)}{late}, but {tally.rows:,} staged + {superseded_rows:,} "
            "superseded + "
            f"{tally.unreadable_rows:,} unreadable are {accounted:,}{at}."
        )
        found.append(Finding(AuditRule.ROWS_ARE_ACCOUNTED_FOR, abs(accounted - raw_rows), what))
    if gone := late_loss(spec, late_rows, folded_before, allow_shrink=allow_shrink):
        found.append(gone)
    lost = loss(spec, rows_now, tally.rows, deleted_rows=evidence.deleted_rows, allow_shrink=allow_shrink)
    if lost is not None and not found:
        found.append(replace(lost, what=f"{lost.what}{at}."))
    return Verdict(partition, tuple(found))


def loss(
    spec: TableSpec, rows_now: int | None, rows: int, *, deleted_rows: int = 0, allow_shrink: bool = False
) -> Finding | None:
    """Say whether a launch would destroy more rows of a partition than it may; None if it would not.

    The rows are measured on the table, whoever wrote them. With the defaults of a spec (`max_shrink: 0.5`,
    `empty: refused`):

    | table has | deleted | staged | allow_shrink | finding                     |
    |-----------|---------|--------|--------------|-----------------------------|
    | 0         | -       | 0      | -            | none                        |
    | 0         | -       | 10     | -            | none                        |
    | 1000      | 0       | 1000   | -            | none                        |
    | 1000      | 0       | 500    | -            | none                        |
    | 1000      | 0       | 10     | no           | partition_does_not_shrink   |
    | 1000      | 0       | 10     | yes          | none                        |
    | 1000      | 985     | 10     | no           | none                        |
    | 1000      | 900     | 10     | no           | partition_does_not_shrink   |
    | 1000      | 0       | 0      | no           | partition_is_not_emptied    |
    | 1000      | 0       | 0      | yes          | partition_is_not_emptied    |
    | 1000      | 1000    | 0      | no           | none                        |
    | unknown   | -       | 10     | no           | partition_does_not_shrink   |
    | unknown   | -       | 10     | yes          | none                        |
    | unknown   | -       | 0      | yes          | partition_is_not_emptied    |

    Args:
        rows_now: That the partition has in the version that the launch is based on; None if nobody can count them.
        rows: That would replace them.
        deleted_rows: That the source says were deleted since the table had them.
    """
    remedy = "`allow_shrink: true` in the launch's config publishes them"
    if rows == 0 and spec.empty == "refused" and (rows_now is None or rows_now > deleted_rows):
        there = "the table has rows that nobody can count" if rows_now is None else f"the table has {rows_now:,}"
        what = f"the source has no rows, and {there}; `empty: allowed` in the spec would let a launch remove them"
        return Finding(AuditRule.PARTITION_IS_NOT_EMPTIED, rows_now or 0, what)
    if allow_shrink:
        return None
    if rows_now is None:
        what = (
            f"{_rows(rows)} would replace rows that nobody can count: a file of the table has no statistics and "
            f"cannot be read. {remedy}"
        )
        return Finding(AuditRule.PARTITION_DOES_NOT_SHRINK, 0, what)
    left = max(0, rows_now - deleted_rows)
    if not rows or not shrinks_too_much(spec.max_shrink, left, rows):
        return None
    deleted = f", {rows_now - left:,} of which were deleted at the source" if left < rows_now else ""
    what = (
        f"the table has {_rows(rows_now)}{deleted}, and {rows:,} would replace them ({rows_now:,} → {rows:,}): "
        f"{_percent((left - rows) / left)} fewer, and `max_shrink` allows {_percent(spec.max_shrink)}. {remedy}"
    )
    return Finding(AuditRule.PARTITION_DOES_NOT_SHRINK, left - rows, what)


def late_loss(spec: TableSpec, late_rows: int, folded_before: int, *, allow_shrink: bool) -> Finding | None:
    """Say whether a launch would drop late rows that the newest publish folded in; None if it would not.

    Args:
        late_rows: Of the partition, in the table of late rows.
        folded_before: That the partition's newest receipt folded in.
    """
    if allow_shrink or late_rows >= folded_before:
        return None
    what = (
        f"its newest publish folded in {folded_before:,} late rows, and `{spec.key}_late` has {late_rows:,} now. "
        "The missing ones exist nowhere else. Restore that table; `allow_shrink: true` in the launch's config "
        "publishes the partition without them."
    )
    return Finding(AuditRule.LATE_ROWS_ARE_KEPT, folded_before - late_rows, what)


def shrinks_too_much(max_shrink: float, rows_now: int, rows: int) -> bool:
    """Say whether a partition would lose more of its rows than a spec allows.

    | max_shrink | rows_now  | rows | too much |
    |------------|-----------|------|----------|
    | 0.5        | 100       | 50   | no       |
    | 0.5        | 100       | 49   | yes      |
    | 0.5        | 3         | 1    | yes      |
    | 0.5        | 100       | 200  | no       |
    | 0.5        | 0         | 0    | no       |
    | 0.1        | 100       | 90   | no       |
    | 0.1        | 100       | 89   | yes      |
    | 0          | 100       | 100  | no       |
    | 0          | 100       | 99   | yes      |
    | 1          | 100       | 1    | no       |
    | 1          | 100       | 0    | no       |
    """
    return rows_now - rows > Fraction(str(max_shrink)) * rows_now


def with_examples(verdict: Verdict, examples: dict[AuditRule, Sequence[str]]) -> Verdict:
    """Return a verdict whose findings name rows."""
    named = tuple(
        Finding(f.rule, f.rows, f.what, f.examples or tuple(examples.get(f.rule, ()))) for f in verdict.findings
    )
    return Verdict(verdict.partition, named)


def _rows(count: int) -> str:
    return f"{count:,} row{_verb(count, '', 's')}"


def _hint(spec: TableSpec) -> str:
    """Return what would read rows that lie in another time than their file's path says."""
    return BY_EVENT_TIME if isinstance(spec.source, FilesSpec) else ""


BY_EVENT_TIME = "; `layout: flat` with `complete_until` reads each row where its event time says"


def _percent(part: float) -> str:
    return f"{100 * part:.3g} %"


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
