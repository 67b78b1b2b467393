"""A chunk that was read once, audited, and summed up in the receipt that its commit would carry.

A launch saves it then; a rehearsal only looks at it.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import Verdict
from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.expectations import ComparedWith, hold_to_expectations
from backfill_assets.core.history.identical import identical, is_as_published
from backfill_assets.core.history.outcomes import Identical, Rehearsed
from backfill_assets.core.history.plan import Launch, LaunchPlan
from backfill_assets.core.history.ports import Lake, Rows, Source
from backfill_assets.core.history.staging import (
    StagedPartitions,
    audit_all,
    refuse_dependence_on_chunk,
    refuse_lost_keys,
    stage_chunk,
)
from backfill_assets.core.history.stopwatch import Stopwatch
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt, audited_contents, summed_columns, without
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import EMPTY


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a plan, as it is about to be published.

    Args:
        number: From 1, of as many as are known by now.
        surveys: What the source has of each partition, by key.
        foreign: Partitions with rows that no publish put there, of the whole launch.
        must_keep: Whether its rows are kept even if nothing tells them from what was published.
        began_at: Newest version of the table when the launch began.
    """

    partitions: tuple[Partition, ...]
    number: tuple[int, int]
    surveys: Mapping[str, Survey]
    foreign: frozenset[Partition] = frozenset()
    must_keep: bool = False
    began_at: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class AuditedChunk(Generic[Rows]):
    """A chunk that was read and audited.

    Args:
        receipt: Of what passed, and is to be written.
        same: What of it the table has already.
        again: Partitions whose rows were not kept, and that it has not as was expected, or that were made together
            with such: they have to be read again. Nothing else is said of them.
    """

    read: StagedPartitions[Rows]
    verdicts: list[Verdict]
    receipt: Receipt
    same: Identical
    again: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Auditor(Generic[Rows]):
    """Reads chunks of one launch and audits them. Writes nothing."""

    spec: TableSpec
    source: Source[Rows]
    lake: Lake[Rows]
    launch: Launch
    effects: Effects

    @contextmanager
    def audited(
        self, chunk: Chunk, staged_from: int, clock: Stopwatch, *, writes: bool
    ) -> Generator[AuditedChunk[Rows]]:
        """Stage and audit one chunk; its rows are kept until the block ends, unless they seem to be in the table.

        Args:
            writes: Whether the rows may be written as files, to be published after `staged_from`.
        """
        began = self.effects.now()
        unique = audited_contents(self.launch.published, chunk.partitions, self.spec, self.launch.run.code_version)
        known, foreign = self.launch.may_be_identical, [p for p in chunk.partitions if p in chunk.foreign]
        read = stage_chunk(
            chunk.partitions,
            chunk.surveys,
            self.source,
            self.lake,
            clock.begin,
            publish_after=staged_from if writes else None,
            unique=unique,
            keeps=chunk.must_keep
            or bool(self.launch.guards or foreign)
            or not is_as_published(known, unique, chunk.partitions, chunk.surveys),
        )
        with read.staged:
            refuse_dependence_on_chunk(self.spec, read, self.source, self.lake)
            rows_now = self.lake.rows_now(read.partitions, version=staged_from)
            verdicts = audit_all(
                self.spec,
                read,
                self.source,
                self.lake,
                rows_now=rows_now,
                allow_shrink=self.launch.allowed.allow_shrink,
                foreign=foreign,
                guards=self.launch.guards,
                published=self.launch.published,
            )
            passed = [v.partition for v in verdicts if v.passed]
            receipt = self._receipt(passed, read, staged_from, began, rows_now)
            same = identical(self.spec, self.lake, self.launch, receipt, read.staged.tallies)
            if read.staged.kept is None:
                yield self._of_unkept(read, verdicts, receipt, same)
                return
            unexpected, measured = hold_to_expectations(
                self.spec,
                self.lake,
                read.staged,
                without(receipt, same.published),
                ComparedWith(staged_from, chunk.began_at),
                are_binding=not self.launch.allowed.allow_unexpected,
                log=self.effects.log,
            )
            verdicts = [unexpected.get(v.partition.key, v) for v in verdicts]
            verdicts = refuse_lost_keys(read, self.lake, verdicts, self.launch.guards)
            measured = without(measured, {v.partition.key for v in verdicts if not v.passed})
            yield AuditedChunk(read, verdicts, measured, same)

    def _of_unkept(
        self, read: StagedPartitions[Rows], verdicts: Sequence[Verdict], receipt: Receipt, same: Identical
    ) -> AuditedChunk[Rows]:
        """Return what can be said of rows that were not kept: which of them the table has already, and nothing else.

        Nothing at all where others have to be read again and all were made in one call: they are made together again.
        """
        if len(same.published) < len(read.partitions) and self.source.makes_chunks_at_once():
            same = Identical((), {}, {}, same.version)
        return AuditedChunk(
            read,
            [verdict for verdict in verdicts if verdict.partition.key in same.published],
            without(receipt, receipt.partitions),
            same,
            again=tuple(partition for partition in read.partitions if partition.key not in same.published),
        )

    def rehearse(self, plan: LaunchPlan) -> Iterator[Rehearsed]:
        """Read and audit every chunk of a plan as its launch would, and write nothing.

        Raises:
            PublishError: A chunk could not be read.
        """
        done, total, began = 0, sum(map(len, plan.chunks)), self.lake.version()
        for number, partitions in enumerate(plan.chunks, start=1):
            of = number, len(plan.chunks)
            chunk = Chunk(partitions, of, plan.surveys, plan.foreign, began_at=began)
            while chunk.partitions:
                found, again = self._rehearse(chunk)
                yield from found
                chunk = replace(chunk, partitions=again, must_keep=True)
            done += len(partitions)
            self.effects.log(f"Read {done:,} of {total:,} partitions.")

    def _rehearse(self, chunk: Chunk) -> tuple[list[Rehearsed], tuple[Partition, ...]]:
        """Read and audit a chunk; return what became of it, and the partitions that have to be read again."""
        with self.audited(chunk, self.lake.version(), Stopwatch(self.effects.clock), writes=False) as audited:
            tallies, same = audited.read.staged.tallies, audited.same.published
            found = [
                Rehearsed(v, tallies.get(v.partition.key, EMPTY), v.partition.key in same) for v in audited.verdicts
            ]
            return found, audited.again

    def _receipt(
        self,
        partitions: Sequence[Partition],
        read: StagedPartitions[Rows],
        staged_from: int,
        began: datetime,
        rows_now: Mapping[str, int | None],
    ) -> Receipt:
        staged, launch = read.staged, self.launch
        return Receipt(
            receipt_id=uuid.uuid4().hex,
            table=self.spec.key,
            run=launch.run,
            staged_from_version=staged_from,
            source=read.scan.position,
            partitions={
                p.key: PartitionReceipt.of(
                    staged.tallies.get(p.key, EMPTY),
                    fingerprint=read.scan.fingerprints.get(p.key) or read.surveys[p.key].fingerprint,
                    superseded_rows=staged.superseded_rows.get(p.key, 0),
                    late_rows=staged.late.rows.get(p.key, 0),
                    rows_before=rows_now.get(p.key, 0),
                )
                for p in partitions
            },
            late_version=staged.late.version,
            made_at=self.effects.now().isoformat(timespec="seconds"),
            columns=summed_columns(self.spec),
            began_at=began.isoformat(timespec="milliseconds"),
            overrides=str(launch.allowed),
        )
