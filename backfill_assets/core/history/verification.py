"""After a commit: what it holds is held against what was audited, and put back where it should not be there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.effects import ATTEMPTS, Effects, seconds_after
from backfill_assets.core.history.other_code import OtherCode
from backfill_assets.core.history.ports import Commit, Lake, Rows
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt
from backfill_assets.core.state.tallies import EMPTY, Tally, total
from backfill_assets.errors import (
    CommitConflictError,
    PublishError,
    PutBackError,
    StagedContentLostError,
    TableLockedError,
    UnreadableTableError,
)


@dataclass(frozen=True, slots=True)
class Verification(Generic[Rows]):
    """What a launch makes sure of after each of its commits."""

    spec: TableSpec
    lake: Lake[Rows]
    others: OtherCode[Rows]
    effects: Effects

    def refuse_overtaken(self, partitions: Sequence[Partition], commit: Commit, receipt: Receipt) -> None:
        """Find out whether another commit came between what was read and what was committed; put newer code's back.

        Raises:
            CommitConflictError: It did; what is committed may be older than what it replaced.
            PutBackError: It did, and what it replaced could not be put back.
        """
        staged_from = receipt.staged_from_version
        overtaken = self.lake.versions_writing(staged_from, commit.version, partitions)
        if overtaken:
            try:
                if receipt.plan or receipt.kind == "put_back":
                    self._restore(partitions, commit, receipt, "replaced what was written since it was planned")
                elif newer := self.others.newer(partitions):
                    self._restore(newer, commit, receipt, "replaced what newer code had published")
            except PublishError as error:
                raise _not_put_back(error) from error
            raise CommitConflictError(
                f"`{self.spec.key}`: version {overtaken[-1]} wrote partitions of this chunk after it was staged from "
                f"version {staged_from}.",
                state=f"Version {commit.version} holds content that may be older.",
                remedy="It is staged and published again.",
            )

    def verify(
        self, partitions: Sequence[Partition], tallies: Mapping[str, Tally], commit: Commit, receipt: Receipt
    ) -> None:
        """Hold what was committed against what was audited; restore the old content if it differs.

        Two counts that Spark and Delta keep anyway are looked at first. Only when one differs or is lacking is the
        table read. What another commit has replaced since is newer, and stays.

        Args:
            tallies: Of what was audited, by partition key; a key without rows may be missing.

        Raises:
            UnreadableTableError: A file of the commit does not exist. Another attempt publishes the chunk again.
        """
        lake = self.lake
        if lost := lake.lost_files(commit.version):
            raise _files_lost(self.spec.key, commit.version, lost)
        audited = {p.key: tallies.get(p.key, EMPTY) for p in partitions}
        counted = all(commit.rows.get(key, 0) == tally.rows for key, tally in audited.items())
        if counted and commit.written == total(audited.values()):
            return
        committed = lake.tally(partitions, version=commit.version)
        wrong = [key for key, tally in audited.items() if not tally.same_content(committed.get(key, EMPTY))]
        if not wrong:
            return
        try:
            restored = self._restore(partitions, commit, receipt, "does not hold what was audited")
        except PublishError as error:
            if receipt.plan or receipt.kind == "put_back":
                raise _not_put_back(error) from error
            raise  # another attempt publishes over it
        if restored:
            state = f"The content from before was put back as version {restored.version}."
        else:
            since = lake.versions_writing(commit.version, lake.version() + 1, partitions)
            state = f"Version {since[-1]} has replaced it since, so nothing was put back."
        raise StagedContentLostError(
            f"`{self.spec.key}`: version {commit.version} does not hold what was audited in {len(wrong)} partitions "
            f"(first `{wrong[0]}`).",
            state=state,
            remedy="Launch the range again; if it happens twice, look for executors, or files of Spark's disk "
            "(`spark.local.dir`), that are lost during the write.",
            partitions=wrong,
            version=commit.version,
        )

    def _restore(self, partitions: Sequence[Partition], wrong: Commit, receipt: Receipt, why: str) -> Commit | None:
        """Replace partitions with what they held before a commit of ours; what was written since is newer, and stays.

        The lake refuses to put back over what comes between the look and the commit; then it is looked again.

        Returns:
            The commit that did; None if all of them were written since.

        Raises:
            PublishError: They could not be replaced, and the error says so.
        """
        for attempt in range(1, ATTEMPTS + 1):
            after, before = wrong.version, self.lake.version() + 1
            left = list(partitions)
            if self.lake.versions_writing(after, before, partitions):
                left = [p for p in partitions if not self.lake.versions_writing(after, before, [p])]
            if not left:
                break
            try:
                return self._put_back(left, wrong, receipt, why)
            except PublishError as error:
                if attempt == ATTEMPTS or not isinstance(error, CommitConflictError | TableLockedError):
                    stays = f"Version {wrong.version} {why}, and stays: what was there before could not be put back."
                    raise type(error)(error.what, state=stays, remedy=error.remedy, **error.facts) from error
                seconds = seconds_after(attempt)
                self.effects.log(
                    f"Version {wrong.version} {why}; putting back what was there before did not succeed ({error}), "
                    f"attempt {attempt} of {ATTEMPTS}; the next one is made in {seconds:.1f} s."
                )
                self.effects.sleep(seconds)
        return None

    def _put_back(self, partitions: Sequence[Partition], wrong: Commit, receipt: Receipt, why: str) -> Commit:
        before = wrong.version - 1
        old = self.lake.tally(partitions, version=before)
        restored = replace(
            receipt,
            receipt_id=uuid.uuid4().hex,
            staged_from_version=wrong.version,
            source={"kind": "version", "version": before},
            partitions={p.key: PartitionReceipt.of(old.get(p.key, EMPTY), fingerprint="") for p in partitions},
            late_version=None,
            reason=f"version {wrong.version} {why}",
            kind="put_back",
        )
        return self.lake.restore(partitions, version=before, receipt=restored)


def _not_put_back(error: PublishError) -> PutBackError:
    """Return what ends a launch at once: another attempt would take what this one wrote for somebody else's."""
    remedy = "Take this launch back with `backfill-assets undo`, when no other one writes these partitions."
    return PutBackError(error.what, state=error.state, remedy=remedy, **error.facts)


def _files_lost(table: str, version: int, files: Sequence[str]) -> UnreadableTableError:
    return UnreadableTableError(
        f"`{table}`: {len(files):,} files that version {version} has added do not exist, first `{files[0]}`: somebody "
        "has removed them, for example by a VACUUM that keeps nothing.",
        state=f"Version {version} is committed, and the partitions of these files cannot be read.",
        remedy="The chunk is published again; if that fails too, end the VACUUM and launch these partitions again.",
        files=list(files),
    )
