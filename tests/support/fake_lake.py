"""One table over lists, with every version it ever had: `Lake` without an engine.

`tests/contracts/test_lakes.py` and its neighbours hold it against the real one. Its points are listed in `fakes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from backfill_assets.core.calendar.partitions import Partition
from backfill_assets.core.history.audit import AuditRule, Finding, Verdict
from backfill_assets.core.history.guards import NO_OTHERS, Guard, Others
from backfill_assets.core.history.ports import Commit, Difference, Scan
from backfill_assets.core.history.staged_rows import StagedChunk
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence, first_fence, refuse_live
from backfill_assets.core.state.measures import Measures
from backfill_assets.core.state.receipts import PublishedPartition, Receipt, newest_by_partition, receipt_from_json
from backfill_assets.core.state.surveys import NO_LATE, Late
from backfill_assets.core.state.tallies import EMPTY, NOTHING_KNOWN, Contents, Tally, are_known
from backfill_assets.errors import NOTHING_WRITTEN, UnreadableTableError, UnsafeWriteError
from tests.support import fake_rows
from tests.support.fake_measures import measures_of
from tests.support.fake_versions import Version, cleaned_up
from tests.support.fakes import HOME, Row, Script, hash_of, partition_key_of, row_key, tally_of


class FakeLake:
    """One table in memory with every version it ever had; version 0 is empty.

    Args:
        is_made: Whether the table is there already; if not, `create` makes it.
        damage: Given the rows that a save is about to write, returns those that it really writes; of `damaged_kind`.
        answers: Whether the write tells what passed through it.
        cleaned_up: Versions that cannot be read any more.
        unreadable_now: Why partitions cannot be read, by key, until they are written again.
        lost: Files of commits that are gone, by version.
        uncountable: Keys of partitions with a file that has no statistics and cannot be read.
        sees_conflicts: Whether a commit fails if another wrote its partitions since it began, as Delta's do. Without it
            only the launch itself can find that out.
    """

    def __init__(self, spec: TableSpec, script: Script | None = None, *, is_made: bool = True) -> None:
        self.spec = spec
        self.script = script or Script()
        self.versions: list[Version] = []
        self.columns: dict[str, str] = {}
        self.damage: Callable[[list[Row]], list[Row]] | None = None
        self.damaged_kind = "publish"
        self.miscounted = False
        self.answers = True
        self.sees_conflicts = False
        self.columns_differ: list[str] = []
        self.staged_now = 0
        self.cleaned_up: set[int] = set()
        self.uncountable: set[str] = set()
        self.late_rows: list[Row] = []
        self.unreadable_now: dict[str, str] = {}
        self.lost: dict[int, list[str]] = {}
        if is_made:
            self.create()

    # -- what a test asks ----------------------------------------------------------------------------------------------

    def content(self, version: int | None = None) -> dict[str, list[int]]:
        """Return the multiset of each partition's rows at a version; partitions without rows are left out."""
        return {key: sorted(map(hash_of, rows)) for key, rows in self._at(version).items() if rows}

    def receipts(self) -> dict[int, Receipt]:
        """Return every receipt in the log, by version, read from its JSON."""
        read = ((number, receipt_from_json(version.metadata)) for number, version in enumerate(self.versions))
        return {number: receipt for number, receipt in read if receipt is not None}

    def commit_as_somebody_else(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Commit partitions as a writer that is not ours."""
        self.add_version({key: list(new) for key, new in rows.items()}, metadata='{"writer": "somebody else"}')

    def add_version(
        self,
        by_key: Mapping[str, Sequence[Row]],
        *,
        metadata: str | None = None,
        fence: Fence | None = None,
        transaction: tuple[str, int] | None = None,
    ) -> None:
        """Make a version in which some partitions have new rows; the fence stays if none is given."""
        assert self.versions, "the table was not made"
        rows = dict(self._at(None))
        rows.update({key: tuple(new) for key, new in by_key.items()})
        self.versions.append(Version(rows, frozenset(by_key), metadata, fence or self.fence(), transaction))

    # -- the table itself ----------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the table if it is not there."""
        if not self.versions:
            self.columns = fake_rows.types_of(self.spec)
            self.versions.append(Version({}, fence=first_fence(self.spec)))

    # -- the Protocol --------------------------------------------------------------------------------------------------

    def failures(self) -> AbstractContextManager[None]:
        return nullcontext()

    def version(self) -> int:
        return len(self.versions) - 1

    def published(self) -> dict[str, PublishedPartition]:
        return newest_by_partition(self.receipts())

    def receipts_after(self, version: int) -> dict[int, Receipt]:
        return {number: receipt for number, receipt in self.receipts().items() if number > version}

    def fence(self) -> Fence | None:
        return self.versions[-1].fence if self.versions else first_fence(self.spec)

    def late(self, partitions: Sequence[Partition]) -> Late:
        if self.spec.live is None or self.spec.live.late != "fold" or not self.late_rows:
            return NO_LATE
        counts = Counter(partition_key_of(self.spec, row) for row in self.late_rows)
        return Late(len(self.late_rows), {p.key: counts[p.key] for p in partitions if counts[p.key]})

    def stage(
        self,
        scan: Scan[Any],
        late: Late = NO_LATE,
        *,
        publish_after: int | None = None,
        size_bytes: int = 0,
        unique: Contents = NOTHING_KNOWN,
        keeps: bool = True,
        begin: Callable[[str], None] = lambda _: None,
    ) -> StagedChunk[Any]:
        del publish_after, size_bytes
        begin("write")
        self.script.reach("stage")  # of `unique` contents keys are counted all the same
        fake_rows.refuse_unreadable(scan.rows)
        late_rows = [
            {**row, HOME: f"late rows of {key}", fake_rows.IS_LATE: True}
            for row in self.late_rows[: late.version]
            if (key := partition_key_of(self.spec, row)) in late.rows
        ]
        by_file = scan.partition_by_file
        if by_file is not None:
            by_file = {**by_file, **{f"late rows of {key}": key for key in late.rows}}
        else:
            late_rows = [{name: row[name] for name in row if name != HOME} for row in late_rows]
        rows, superseded = fake_rows.latest_wins(self.spec, [*scan.rows, *late_rows], by_file)
        self.staged_now += 1

        def release() -> None:
            self.staged_now -= 1

        begin("audit")
        by_key = fake_rows.by_partition(self.spec, rows, by_file)
        tallies = {key: tally_of(self.spec, key, kept) for key, kept in by_key.items()}
        is_kept = keeps or late.rows or superseded or not are_known(tallies, unique)
        return StagedChunk(rows if is_kept else None, tallies, superseded, by_file, release, late)

    def examples(
        self, staged: StagedChunk[list[Row]], verdicts: Sequence[Verdict]
    ) -> dict[str, dict[AuditRule, list[str]]]:
        found: dict[str, dict[AuditRule, list[str]]] = {}
        by_key = fake_rows.by_partition(self.spec, staged.rows, staged.partition_by_file)
        for verdict in verdicts:
            key = verdict.partition.key
            for finding in verdict.findings:
                broken = fake_rows.breaking(self.spec, finding.rule, key, by_key.get(key, []))
                if broken:
                    shown = [fake_rows.named(self.spec, key, row) for row in broken[: fake_rows.EXAMPLES]]
                    found.setdefault(key, {})[finding.rule] = shown
        return found

    def rows_now(self, partitions: Sequence[Partition], *, version: int | None = None) -> dict[str, int | None]:
        counts = {p.key: len(rows) for p in partitions if (rows := self._at(version).get(p.key))}
        return {key: None if key in self.uncountable else count for key, count in counts.items()}

    def rows_at_stake(
        self, staged: StagedChunk[list[Row]], partitions: Sequence[Partition], guard: Guard, others: Others = NO_OTHERS
    ) -> dict[str, Finding]:
        by_key = fake_rows.by_partition(self.spec, staged.rows, staged.partition_by_file)
        kept = {p.key: by_key.get(p.key, []) for p in [*partitions, *others.written]}
        moved = {row_key(self.spec, row) for row in staged.rows}
        there = {p.key: list(self._at(None).get(p.key, ())) for p in partitions}
        now = fake_rows.without(self.spec, there, others.gone or [])
        found: dict[str, Finding] = {}
        for key in now:
            rows = fake_rows.at_stake(self.spec, guard, key, (kept, now))
            if rows := [row for row in rows if not others.refused or row_key(self.spec, row) in moved]:
                names = tuple(fake_rows.named(self.spec, key, row) for row in rows[: fake_rows.EXAMPLES])
                found[key] = Finding(guard.rule, len(rows), f"{len(rows)} rows are at stake.", names)
        return found

    def overwrite(self, staged: StagedChunk[list[Row]], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        self.script.reach("before_save")
        by_key = fake_rows.by_partition(self.spec, staged.rows, staged.partition_by_file)
        return self._commit([row for p in partitions for row in by_key.get(p.key, [])], partitions, receipt)

    def versions_writing(self, after: int, before: int, partitions: Sequence[Partition]) -> list[int]:
        keys = {p.key for p in partitions}
        return [number for number in range(after + 1, before) if self.versions[number].touched & keys]

    def written_by_others(self, published: Mapping[str, PublishedPartition]) -> dict[str, int]:
        return {
            key: number
            for number, version in enumerate(self.versions)
            for key in version.touched & published.keys()
            if number > published[key].version and not version.is_ours
        }

    def rows_outside_grid(self) -> dict[str, int]:
        rows = self._at(None)
        return {v: len(rows[v]) for v in sorted(rows) if rows[v] and not self.spec.grid.is_key(v)}

    def tally(
        self, partitions: Sequence[Partition], *, version: int | None = None, unique: Contents = NOTHING_KNOWN
    ) -> dict[str, Tally]:
        del unique
        self.script.reach("tally")
        self._refuse_unreadable(partitions)
        rows = self._at(version)
        return {p.key: tally_of(self.spec, p.key, rows[p.key]) for p in partitions if rows.get(p.key)}

    def earlier_tally(self, partitions: Sequence[Partition], *, version: int) -> dict[str, Tally]:
        if version in self.cleaned_up:
            raise cleaned_up(version)
        return self.tally(partitions, version=version)

    def measures(
        self, partitions: Sequence[Partition], *, staged: StagedChunk[Any] | None = None, version: int | None = None
    ) -> Measures:
        rows = fake_rows.by_partition(self.spec, staged.rows, staged.partition_by_file) if staged else self._at(version)
        return measures_of(self.spec, {p.key: rows[p.key] for p in partitions if rows.get(p.key)})

    def same_as(self, tallies: Mapping[str, Tally]) -> frozenset[str]:
        found = self.tally([self.spec.grid.partition(key) for key in tallies])
        return frozenset(key for key, tally in tallies.items() if tally.same_content(found.get(key, EMPTY)))

    def unreadable(
        self, partitions: Sequence[Partition], *, version: int | None = None, reads: bool = True
    ) -> dict[str, str]:
        del version, reads
        return {p.key: self.unreadable_now[p.key] for p in partitions if p.key in self.unreadable_now}

    def lost_files(self, version: int) -> list[str]:
        return self.lost.get(version, [])

    def _refuse_unreadable(self, partitions: Iterable[Partition]) -> None:
        if unreadable := self.unreadable(list(partitions)):
            what = f"Partition {min(unreadable)} cannot be read."
            raise UnreadableTableError(what, state=NOTHING_WRITTEN, remedy="Launch it.")

    def schema_problems(self) -> list[str]:
        if not self.versions:
            return []
        have, want = self.columns, fake_rows.types_of(self.spec)
        return [
            *self.columns_differ,
            *(f"`{name}` is missing" for name in want if name not in have),
            *(f"`{name}` is not in the spec" for name in have if name not in want),
            *(f"`{n}` is `{have[n]}`, not `{kind}`" for n, kind in want.items() if have.get(n, kind) != kind),
        ]

    def differences(
        self, staged: StagedChunk[list[Row]], partitions: Sequence[Partition], *, version: int
    ) -> dict[str, Difference]:
        found: dict[str, Difference] = {}
        by_key = fake_rows.by_partition(self.spec, staged.rows, staged.partition_by_file)
        for partition in partitions:
            source_rows = Counter(map(hash_of, by_key.get(partition.key, [])))
            table_rows = Counter(map(hash_of, self._at(version).get(partition.key, ())))
            only_source, only_table = (source_rows - table_rows).total(), (table_rows - source_rows).total()
            if only_source or only_table:
                found[partition.key] = Difference(only_source, only_table, (f"row of {partition.key}",))
        return found

    def restore(self, partitions: Sequence[Partition], *, version: int, receipt: Receipt) -> Commit:
        self.script.reach("before_restore")
        earlier = self._at(version)
        return self._commit([dict(row) for p in partitions for row in earlier.get(p.key, ())], partitions, receipt)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _at(self, version: int | None) -> Mapping[str, tuple[Row, ...]]:
        return self.versions[number].rows if (number := self.version() if version is None else version) >= 0 else {}

    def _commit(self, rows: list[Row], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        refuse_live(self.spec, partitions, self.fence())
        if not self.versions:
            raise UnsafeWriteError("There is no table.", state=NOTHING_WRITTEN, remedy="A launch makes it.")
        if overtaken := self.versions_writing(receipt.staged_from_version, self.version() + 1, partitions):
            raise fake_rows.conflict(f"Version {overtaken[-1]} came between.")
        self._refuse_strays(rows, partitions)
        began_at = self.version()
        self.script.reach("during_save")
        if self.versions[began_at].fence != self.fence():
            raise fake_rows.conflict("The table's properties changed meanwhile.")
        if self.sees_conflicts and self.versions_writing(began_at, self.version() + 1, partitions):
            raise fake_rows.conflict("These partitions were written meanwhile.")
        removed = {p.key: len(self._at(None).get(p.key, ())) for p in partitions}
        rows = self.damage(list(rows)) if self.damage and receipt.kind == self.damaged_kind else rows
        by_key: dict[str, list[Row]] = {p.key: [] for p in partitions}
        for row in rows:
            key = partition_key_of(self.spec, row)
            assert key is not None
            by_key[key].append({name: row[name] for name in self.spec.columns})
        self.add_version(by_key, metadata=receipt.to_json())
        self.unreadable_now = {key: why for key, why in self.unreadable_now.items() if key not in by_key}
        number = self.version()
        self.script.reach("after_commit")
        counts = {key: len(new) + self.miscounted for key, new in by_key.items() if new}
        written = (len(rows), sum(map(hash_of, rows)) % (1 << 64)) if self.answers else None
        return Commit(number, counts, {key: count * 100 for key, count in counts.items()}, written, removed)

    def _refuse_strays(self, rows: Iterable[Row], partitions: Sequence[Partition]) -> None:
        if any(partition_key_of(self.spec, row) not in {p.key for p in partitions} for row in rows):
            what = "A row lies outside the partitions."
            raise UnsafeWriteError(what, state=NOTHING_WRITTEN, remedy="The audit lets none through.")
