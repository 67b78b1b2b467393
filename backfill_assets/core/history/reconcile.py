"""Reconciliation: whether a partition of the table equals its source.

A difference is a finding, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backfill_assets.core.history.ports import Difference, Lake, Rows, Source, Survey
from backfill_assets.core.state.fence import history_part
from backfill_assets.core.calendar.partitions import Partition, chunks_of
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition
from backfill_assets.core.spec.table import Rule, TableSpec
from backfill_assets.core.history.staging import audit_all, complete_part, in_smaller_parts, stage_and_hold
from backfill_assets.core.state.tallies import EMPTY, Tally
from backfill_assets.errors import MemoryExhaustedError


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """Whether one rule holds for a partition.

    Args:
        rows: How many rows break it, as far as counts can tell.
        what: One sentence; empty where it holds.
        examples: A few of the rows.
    """

    rule: Rule
    passed: bool
    rows: int = 0
    what: str = ""
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.passed:
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
    """

    partition: Partition
    source_rows: int | None
    table_rows: int
    source_checksum: str
    table_checksum: str
    verdicts: tuple[RuleVerdict, ...]
    late_rows: int = 0
    superseded_rows: int = 0

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def failures(self) -> list[RuleVerdict]:
        return [verdict for verdict in self.verdicts if not verdict.passed]

    def __str__(self) -> str:
        return f"{self.partition.key}: " + ("; ".join(map(str, self.failures)) or "reconciled")


def compare(
    partition: Partition,
    *,
    table: Tally,
    source: Tally | PartitionReceipt | None,
    source_problems: Sequence[str] = (),
    schema_problems: Sequence[str] = (),
) -> Comparison:
    """Hold the tally of a table's partition against what its source has.

    Args:
        source: A fresh tally of the source, or the receipt of what was published; None if there is neither.
        source_problems: Why the source cannot be trusted to be whole.
        schema_problems: How the table's columns differ from the spec's.
    """
    rows = None if source is None else source.rows
    checksum = "" if source is None else source.checksum_hex if isinstance(source, Tally) else source.checksum
    verdicts = (
        _rows_match(table, rows, checksum, source_problems),
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
        RuleVerdict(Rule.SCHEMA_MATCHES, passed=not schema_problems, what=f"{'; '.join(schema_problems)}." if schema_problems else ""),
    )
    return Comparison(partition, rows, table.rows, checksum, table.checksum_hex, verdicts)


def _rows_match(table: Tally, rows: int | None, checksum: str, problems: Sequence[str]) -> RuleVerdict:
    if problems:
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, what=" ".join(problems))
    if rows is None:
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, rows=table.rows, what="it was never published.")
    if rows != table.rows:
        difference = table.rows - rows
        more_or_fewer = "more" if difference > 0 else "fewer"
        what = f"the table has {table.rows:,} rows, {abs(difference):,} {more_or_fewer} than its source ({rows:,})."
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, rows=abs(difference), what=what)
    if checksum != table.checksum_hex:
        what = f"both have {rows:,} rows, but not the same: checksum `{table.checksum_hex}`, source `{checksum}`."
        return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=False, rows=1, what=what)
    return RuleVerdict(Rule.ROWS_MATCH_SOURCE, passed=True)


def _both(first: int, first_what: str, second: int, second_what: str) -> str:
    parts = [f"{count:,} rows {what}" for count, what in ((first, first_what), (second, second_what)) if count]
    return " and ".join(parts) + "." if parts else ""


# -- afresh: both sides are read ---------------------------------------------------------------------------------------


def reconcile(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: Source[Rows],
    lake: Lake[Rows],
    *,
    code_version: str = "",
    log: Callable[[str], None] = lambda _: None,
) -> Iterator[Comparison]:
    """Read source and table afresh, both at a pinned point, and hold them against each other.

    Partitions for which the source is not complete yet cannot be compared; they are named in the log and left out.

    Args:
        code_version: Of the code that would make the rows now: a difference in a partition that other code made says so.

    Yields:
        One comparison for each partition that was compared, in order.

    Raises:
        SourceIncompleteError: The source is complete for none of the partitions.
    """
    history, live = history_part(spec, sorted(partitions), lake.fence())
    if live:
        log(f"{len(live)} partitions from {live[0].key} on are left out: they belong to the live stream.")
    wanted, beyond = complete_part(spec, history, source.complete_until())
    if beyond:
        log(f"{len(beyond)} partitions from {beyond[0].key} on are left out: the source is not complete for them yet.")
    version = lake.version()
    published = lake.published() if spec.live or code_version else {}
    schema_problems = lake.schema_problems()
    surveys = source.survey(wanted)
    sizes = {key: survey.size_bytes for key, survey in surveys.items()}
    for chunk in chunks_of(wanted, max_partitions=spec.max_partitions_per_chunk, max_bytes=spec.chunk.max_source_bytes, size_bytes=sizes):
        pinned = _Pinned(version, schema_problems, published, code_version)
        yield from _compare_chunk(spec, chunk, surveys, pinned, source, lake, log)


@dataclass(frozen=True, slots=True)
class _Pinned:
    """What a reconciliation holds still: the table's version, what is wrong with its columns, its receipts, and the code."""

    version: int
    schema_problems: Sequence[str]
    published: Mapping[str, PublishedPartition]
    code_version: str


def _compare_chunk(
    spec: TableSpec,
    chunk: Sequence[Partition],
    surveys: Mapping[str, Survey],
    pinned: _Pinned,
    source: Source[Rows],
    lake: Lake[Rows],
    log: Callable[[str], None],
    slices: int = 1,
) -> Iterator[Comparison]:
    """Compare one chunk; in smaller parts if memory runs out."""
    try:
        yield from _compare_at_once(spec, chunk, surveys, pinned, source, lake, slices)
    except MemoryExhaustedError:
        smaller = in_smaller_parts(chunk, slices)
        if not smaller:
            raise
        log(smaller[0].why)
        for part in smaller:
            yield from _compare_chunk(spec, part.partitions, surveys, pinned, source, lake, log, part.slices)


def _compare_at_once(
    spec: TableSpec,
    chunk: Sequence[Partition],
    surveys: Mapping[str, Survey],
    pinned: _Pinned,
    source: Source[Rows],
    lake: Lake[Rows],
    slices: int,
) -> Iterator[Comparison]:
    staged, held = stage_and_hold(chunk, surveys, source, lake, slices=slices)
    try:
        verdicts = {v.partition.key: v for v in audit_all(spec, chunk, surveys, staged, held, source, lake, emptying=False)}
        tallies = lake.tally(chunk, version=pinned.version)
        compared = [
            replace(
                compare(
                    partition,
                    table=tallies.get(partition.key, EMPTY),
                    source=held.tallies.get(partition.key, EMPTY),
                    source_problems=[str(finding) for finding in verdicts[partition.key].findings],
                    schema_problems=pinned.schema_problems,
                ),
                late_rows=held.late.rows.get(partition.key, 0),
                superseded_rows=held.superseded_rows.get(partition.key, 0),
            )
            for partition in chunk
        ]
        differing = [c.partition for c in compared if not c.passed and verdicts[c.partition.key].passed]
        differences = lake.differences(held, differing, version=pinned.version) if differing else {}
    finally:
        held.release()
    for comparison in compared:
        difference = differences.get(comparison.partition.key)
        receipt = pinned.published.get(comparison.partition.key)
        since = comparison.late_rows - receipt.partition.late_rows if receipt else 0
        is_outdated = receipt is not None and bool(pinned.code_version) and receipt.receipt.code_version not in ("", pinned.code_version)
        yield _explained(comparison, difference, since, is_outdated=is_outdated) if difference else comparison


def _explained(comparison: Comparison, difference: Difference, late_since: int, *, is_outdated: bool) -> Comparison:
    """Name the rows behind a difference.

    Args:
        late_since: Late rows that arrived after the partition was published.
        is_outdated: Whether the partition was published before the spec, or the transform, was changed.
    """
    first, *others = comparison.verdicts
    if first.passed:
        return comparison
    what = (
        f"{first.what.rstrip('.')}; {difference.only_in_source:,} rows only in the source, {difference.only_in_table:,} only in the table."
    )
    if late_since > 0:
        what += f" {late_since:,} late rows arrived after it was published: it is stale, and the next launch folds them in."
    if is_outdated:
        what += " It was published before the spec was changed: launch it again (`only: MISSING` does)."
    rows = difference.only_in_source + difference.only_in_table
    return replace(comparison, verdicts=(replace(first, rows=rows, what=what, examples=difference.examples), *others))
