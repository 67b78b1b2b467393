"""Partitions that differ from their source, read once more so that their rows can be named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from backfill_assets.core.calendar.chunks import chunks_of
from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.moments import FollowedSource
from backfill_assets.core.history.ports import Lake, Rows, Source
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.history.staging import audit_all, stage_chunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.surveys import Survey

Found = TypeVar("Found")


def explain(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: Source[Rows],
    lake: Lake[Rows],
    *,
    compare_rows: Callable[[StagedChunk[Rows], Sequence[Partition]], Found],
    log: Callable[[str], None] = lambda _: None,
) -> Iterator[Found | Verdict]:
    """Stage partitions chunk by chunk, and compare the rows of those whose source is whole. Writes nothing.

    Args:
        compare_rows: Compares staged rows of some partitions with the table's; the rows are released afterwards.

    Yields:
        What it returns; and a verdict for each partition whose source is not whole, which is not compared.

    Raises:
        PublishError: They could not be read.
    """
    surveys = source.survey(partitions)
    sizes = {key: survey.size_bytes for key, survey in surveys.items()}
    most = spec.max_partitions_per_chunk
    for chunk in chunks_of(partitions, max_partitions=most, max_bytes=spec.chunk.max_source_bytes, size_bytes=sizes):
        yield from _explained(spec, list(chunk), surveys, (source, lake), compare_rows=compare_rows)


def at_moments(
    spec: TableSpec,
    partitions: Sequence[Partition],
    source: FollowedSource[Rows],
    *,
    version: int,
    compare_rows: Callable[[Rows, Rows, int], Found],
) -> Iterator[Found | str]:
    """Compare the rows of both sides, chunk by chunk, as they were at one moment of a source that changes all the time.

    Args:
        version: Of the table.
        compare_rows: Takes the source's rows, the table's, and about how many there are.

    Yields:
        What it returns; and why the source of a partition is not whole, which is not compared.
    """
    for chunk in chunks_of(partitions, max_partitions=spec.max_partitions_per_chunk, max_bytes=1, size_bytes={}):
        moment = source.moment(chunk, version=version)
        try:
            yield from (f"{key}: {' '.join(problems)}" for key, problems in moment.problems.items())
            if whole := [partition for partition in chunk if partition.key not in moment.problems]:
                yield compare_rows(*moment.rows(whole), sum(found.rows for found in moment.source.values()))
        finally:
            moment.release()


def _explained(
    spec: TableSpec,
    partitions: Sequence[Partition],
    surveys: Mapping[str, Survey],
    sides: tuple[Source[Rows], Lake[Rows]],
    *,
    compare_rows: Callable[[StagedChunk[Rows], Sequence[Partition]], Found],
) -> Iterator[Found | Verdict]:
    source, lake = sides
    read = stage_chunk(partitions, surveys, source, lake)
    with read.staged as staged:
        verdicts = audit_all(spec, read, source, lake)
        yield from (verdict for verdict in verdicts if not verdict.passed)
        if whole := [verdict.partition for verdict in verdicts if verdict.passed]:
            yield compare_rows(staged, whole)
