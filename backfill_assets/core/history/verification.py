"""After a commit: what it holds is compared with what was audited, and restored if it differs."""

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
        """Restore the partitions if a commit replaced anything that its audit had not looked at.

        Another commit that wrote them after the look is named by the log. Beside that, the rows in the files that the
        commit removed must not be more than the rows that were looked at.

        Raises:
            CommitConflictError: It did. The partitions have again what they had before the commit.
            PutBackError: It did, and what it replaced could not be restored.
        """
        what = self._not_looked_at(partitions, commit, receipt)
        if not what:
            return
        try:
            self._restore(partitions, commit, receipt, "replaced rows that its audit had not looked at")
        except PutBackError:
            raise
        except PublishError as error:
            raise _not_put_back(error) from error
        raise CommitConflictError(
            f"`{self.spec.key}`: {what}.",
            state=f"What version {commit.version} had replaced was restored.",
            remedy="The chunk is read, audited and published again.",
        )

    def _not_looked_at(self, partitions: Sequence[Partition], commit: Commit, receipt: Receipt) -> str:
        """Say what a commit replaced that its receipt does not count; empty if there is nothing."""
        looked_at = receipt.staged_from_version
        if overtaken := self.lake.versions_writing(looked_at, commit.version, partitions):
            return f"version {overtaken[-1]} wrote partitions of this chunk after version {looked_at} was looked at"
        if more := removed_more(receipt.partitions, commit):
            key, counted, removed = more[0]
            return f"version {commit.version} removed {removed:,} rows of `{key}`, of which {counted:,} were looked at"
        return ""

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
            if receipt.run.plan or receipt.kind == "put_back":
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
            except PutBackError:
                raise
            except PublishError as error:
                if attempt == ATTEMPTS or not isinstance(error, CommitConflictError | TableLockedError):
                    stays = f"Version {wrong.version} {why}, and stays: what was there before could not be put back."
                    raise error.with_state(stays) from error
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
            partitions={
                p.key: PartitionReceipt.of(old.get(p.key, EMPTY), fingerprint="", rows_before=wrong.rows.get(p.key, 0))
                for p in partitions
            },
            late_version=None,
            run=replace(receipt.run, reason=f"version {wrong.version} {why}"),
            kind="put_back",
        )
        commit = self.lake.restore(partitions, version=before, receipt=restored)
        if what := self._not_looked_at(partitions, commit, restored):
            raise PutBackError(
                f"`{self.spec.key}`: version {wrong.version} {why}, and while that was put right, {what}.",
                state=f"These partitions have what they had in version {before}; what came after it is in version "
                f"{commit.version - 1}.",
                remedy="Compare these versions, and launch again when nobody else writes these partitions.",
            )
        return commit


def removed_more(looked_at: Mapping[str, PartitionReceipt], commit: Commit) -> list[tuple[str, int, int]]:
    """Return the partitions of which a commit removed more rows than were looked at: key, looked at, removed.

    | looked at | removed | more |
    |-----------|---------|------|
    | 10        | 10      | no   |
    | 10        | 11      | yes  |
    | 10        | 9       | no   |
    | 0         | none    | no   |
    | 0         | 3       | yes  |
    | unknown   | 3       | no   |
    | 10        | unknown | no   |
    """
    found: list[tuple[str, int, int]] = []
    for key, part in looked_at.items():
        removed = commit.rows_removed.get(key, 0)
        if part.rows_before is not None and removed is not None and removed > part.rows_before:
            found.append((key, part.rows_before, removed))
    return found


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
