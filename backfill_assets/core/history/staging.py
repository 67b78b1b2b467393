"""Staging: from partitions to rows that were read once, tallied and audited.

A launch and a reconciliation share it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import ALL_ROWS, NO_EVIDENCE, Evidence, Finding, Verdict, audit, with_examples
from backfill_assets.core.history.guards import ALL_KEYS, LIVE_ROWS, Guard, Others
from backfill_assets.core.history.ports import Lake, Rows, Scan, Source
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PublishedPartition
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import EMPTY, NOTHING_KNOWN, NOWHERE, Contents, Tally
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    ChunkDependenceError,
    SourceChangedError,
    StrayRowsError,
    UnreadableSourceError,
)

NO_ROWS: Mapping[str, int | None] = {}
NOTHING_PUBLISHED: Mapping[str, PublishedPartition] = {}


@dataclass(frozen=True, slots=True)
class StagedPartitions(Generic[Rows]):
    """Some partitions that were read once.

    Args:
        surveys: What the source had of each of them before, by key.
        scan: The read as the source described it.
        staged: The rows; whoever stages them releases them.
    """

    partitions: Sequence[Partition]
    surveys: Mapping[str, Survey]
    scan: Scan[Rows]
    staged: StagedChunk[Rows]


def stage_chunk(
    chunk: Sequence[Partition],
    surveys: Mapping[str, Survey],
    source: Source[Rows],
    lake: Lake[Rows],
    begin: Callable[[str], None] = lambda _: None,
    *,
    publish_after: int | None = None,
    unique: Contents = NOTHING_KNOWN,
    keeps: bool = True,
) -> StagedPartitions[Rows]:
    """Read a chunk and its late rows once; if files turn out to be unreadable, read again what lies beside them.

    Args:
        begin: Called with the name of each step when it begins.
        publish_after: As of `Lake.stage`.
        unique: Contents of which it is known that no key comes twice, by partition key.
        keeps: As of `Lake.stage`.
    """
    size_bytes = sum(surveys[p.key].size_bytes for p in chunk)
    read = partial(
        lake.stage,
        late=lake.late(chunk),
        publish_after=publish_after,
        size_bytes=size_bytes,
        unique=unique,
        begin=begin,
    )
    while True:
        begin("scan")
        scan = source.scan(chunk, surveys)
        try:
            staged = _stage(scan, partial(read, scan, keeps=keeps or bool(scan.also)))
        except UnreadableSourceError:
            if not source.set_aside_unreadable({p.key: surveys[p.key] for p in chunk}):
                refuse_changed_source(chunk, surveys, source)
                raise
        else:
            named = [*chunk, *scan.also]
            _refuse_strays(named, staged)
            return StagedPartitions(named, surveys, scan, staged)


def _stage(scan: Scan[Rows], read: Callable[[], StagedChunk[Rows]]) -> StagedChunk[Rows]:
    """Read a scan; what the source holds for it is released with the rows, or when they cannot be read."""
    try:
        staged = read()
    except BaseException:
        scan.release()
        raise

    def release() -> None:
        staged.release()
        scan.release()

    return replace(staged, release=release)


def _refuse_strays(chunk: Sequence[Partition], staged: StagedChunk[Rows]) -> None:
    """Refuse rows of partitions outside the chunk: a later chunk would replace them, or an earlier one has."""
    strays = sorted(staged.tallies.keys() - {p.key for p in chunk})
    if NOWHERE in strays:
        staged.release()
        raise StrayRowsError(
            f"The source gave {staged.tallies[NOWHERE].rows:,} rows without an event time for the chunk {chunk[0].key} "
            f"to {chunk[-1].key}; they lie in no partition.",
            state=NOTHING_WRITTEN,
            remedy="Let the transform leave such rows out or give them an event time; with `transform_by: partition` "
            "the partitions that they are made for are refused, and the others published.",
        )
    if strays:
        rows = sum(staged.tallies[key].rows for key in strays)
        staged.release()
        raise StrayRowsError(
            f"The source gave {rows:,} rows of {len(strays)} partitions that are not in the chunk {chunk[0].key} to "
            f"{chunk[-1].key} "
            f"(first `{strays[0]}`).",
            state=NOTHING_WRITTEN,
            remedy="Make the transform give each partition its own rows only, or declare `start_offset` and "
            "`end_offset` of its inputs.",
            partitions=strays,
        )


def refuse_dependence_on_chunk(
    spec: TableSpec, read: StagedPartitions[Rows], source: Source[Rows], lake: Lake[Rows]
) -> None:
    """Make one partition of a chunk once more by itself, where code makes a chunk in one call: it must be the same.

    The one in the middle of those that have rows is taken: it has neighbours on both sides. Of a table with floating
    point columns only the rows are counted, since their sums depend on the order in which they are added.

    Raises:
        ChunkDependenceError: It is another one. The chunk is not written.
    """
    if len(read.partitions) < 2 or not source.makes_chunks_at_once():
        return
    together = read.staged.tallies
    filled = [p for p in read.partitions if p.key in together] or list(read.partitions)
    sample = filled[len(filled) // 2]
    late = read.staged.late
    of_sample = {key: rows for key, rows in late.rows.items() if key == sample.key}
    with lake.stage(source.scan([sample], read.surveys), replace(late, rows=of_sample)) as made:
        alone = made.tallies
    here, there = alone.get(sample.key, EMPTY), together.get(sample.key, EMPTY)
    is_exact = not any(re.search("float|double", column.type) for column in spec.columns.values())
    if alone.keys() <= {sample.key} and (here.same_content(there) if is_exact else here.rows == there.rows):
        return
    first, last = read.partitions[0].key, read.partitions[-1].key
    raise ChunkDependenceError(
        f"`{spec.key}`: partition {sample.key} is another one when it is made by itself than in the chunk {first} to "
        f"{last}: {here.rows:,} rows (checksum `{here.checksum_hex}`), not {there.rows:,} (`{there.checksum_hex}`).",
        state="This chunk was not written; the chunks before it are published.",
        remedy="The transform, or an expression of `computed`, looks at rows of other partitions, at the clock, or at "
        "random numbers. `computed` may use the values of its row alone. For a transform say `transform_by: partition` "
        "in `source`, with the offsets of the inputs that it looks back or ahead on, and leave out what is not of its "
        "inputs.",
        partitions=[sample.key],
    )


def audit_all(
    spec: TableSpec,
    read: StagedPartitions[Rows],
    source: Source[Rows],
    lake: Lake[Rows],
    *,
    rows_now: Mapping[str, int | None] = NO_ROWS,
    allow_shrink: bool = False,
    foreign: Sequence[Partition] = (),
    guards: Sequence[Guard] = (),
    published: Mapping[str, PublishedPartition] = NOTHING_PUBLISHED,
) -> list[Verdict]:
    """Audit every partition that was read; name rows only where something is wrong.

    Args:
        rows_now: Rows of the table that these would replace, by key; none if they replace nothing.
        allow_shrink: Whether the table may lose more of them than the spec's `max_shrink`.
        foreign: Partitions with rows that no publish put there: none of them may get lost. The source must cover each
            by its key, which is stricter than their number: a stream may have brought some of them twice.
        published: The newest publish of each partition, by key.
    """
    staged = read.staged
    suspects = {key: tally for key, tally in staged.tallies.items() if _is_suspect(spec, tally)}
    examined = source.examine(suspects, read.surveys) if suspects else {}
    at_stake = [_at_stake(read, lake, guard) for guard in guards]
    if foreign:
        at_stake.append(lake.rows_at_stake(staged, foreign, LIVE_ROWS))
    verdicts = [
        audit(
            spec,
            partition,
            tally=staged.tallies.get(partition.key, EMPTY),
            superseded_rows=staged.superseded_rows.get(partition.key, 0),
            evidence=_with_findings(
                read.scan.evidence.get(partition.key, NO_EVIDENCE), examined.get(partition.key, [])
            ),
            rows_now=rows_now.get(partition.key, 0),
            allow_shrink=allow_shrink or partition in foreign,
            late_rows=staged.late.rows.get(partition.key, 0),
            folded_before=known.partition.late_rows if (known := published.get(partition.key)) else 0,
        )
        for partition in read.partitions
    ]
    for found in at_stake:
        verdicts = [replace(v, findings=(*v.findings, f)) if (f := found.get(v.partition.key)) else v for v in verdicts]
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if failed and staged.kept is not None:
        examples = lake.examples(staged, failed)
        verdicts = [with_examples(v, examples.get(v.partition.key, {})) for v in verdicts]
    return verdicts


def refuse_lost_keys(
    read: StagedPartitions[Rows], lake: Lake[Rows], verdicts: Sequence[Verdict], guards: Sequence[Guard]
) -> list[Verdict]:
    """Refuse what would lose a key to a partition that is refused itself, whatever for: there it is not written either.

    Also what a feed says has left a partition, and partitions that are there only because something left them: so it
    is asked of whatever follows one. Each refusal may be the next one's reason: it is asked until there is none.
    """
    found = list(verdicts)
    while ALL_KEYS in guards or read.scan.follows_feed:
        passed = [v.partition for v in found if v.passed]
        refused = tuple(v.partition for v in found if not v.passed)
        lost = lake.rows_at_stake(read.staged, passed, ALL_KEYS, Others(refused=refused)) if passed and refused else {}
        if not lost:
            break
        found = [replace(v, findings=(*v.findings, f)) if (f := lost.get(v.partition.key)) else v for v in found]
    return found


def _at_stake(read: StagedPartitions[Rows], lake: Lake[Rows], guard: Guard) -> dict[str, Finding]:
    """Hold what was asked for against a guard; of keys not those that left, or all where all of them may have."""
    scan = read.scan
    emptied = {key for key, said in scan.evidence.items() if said.deleted_rows >= ALL_ROWS}
    known = emptied if guard == ALL_KEYS else set[str]()
    some = [p for p in read.partitions if p not in scan.also and p.key not in known]
    others = tuple(p for p in read.partitions if p not in some) if guard == ALL_KEYS else ()
    return lake.rows_at_stake(read.staged, some, guard, Others(written=others, gone=scan.gone)) if some else {}


def _is_suspect(spec: TableSpec, tally: Tally) -> bool:
    """Say whether the source should look closer: unreadable rows, or a column that has no value at all."""
    return tally.unreadable_rows > 0 or any(not spec.columns[name].optional for name in tally.empty_columns)


def _with_findings(evidence: Evidence, findings: list[Finding]) -> Evidence:
    return replace(evidence, findings=tuple(dict.fromkeys((*evidence.findings, *findings))))


def refuse_changed_source(partitions: Sequence[Partition], before: Mapping[str, Survey], source: Source[Rows]) -> None:
    """Hold the source's position, just before the save, against the one before the read.

    Raises:
        SourceChangedError: They differ; what was read, and what was found wrong with it, may be of neither.
    """
    now = source.survey(partitions)
    changed = [p.key for p in partitions if now[p.key].fingerprint != before[p.key].fingerprint]
    if changed:
        raise SourceChangedError(
            f"The source of {len(changed)} partitions changed while it was read (first `{changed[0]}`).",
            state=NOTHING_WRITTEN,
            remedy="Launch again when whoever writes the source has finished.",
            partitions=changed,
        )
