"""A source and a lake over lists: the engine's two Protocols without an engine, and ways to make them fail.

Both take part in one `Script`: actions that run when a launch comes to a named point. An action may raise (a crash, a
conflict), change the source, commit as somebody else, or launch again. The points of one chunk, in order:

    stage          the source prepares the read, before anything is read
    hold           rows are about to be read
    before_save    the audit has passed, the source was seen to be unchanged
    during_save    conflicts were looked for, nothing is committed
    after_commit   the commit is there, its answer is not
    tally          the table is about to be read back
    before_put_back   what was there before is about to be written again

The points of a live batch and of a fence that is moved are in `tests/fake_live.py`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any

from backfill_assets.core.history.audit import AuditRule, Evidence, Finding, Verdict
from backfill_assets.core.history.ports import NO_LATE, Commit, Difference, Held, Late, Staged, Survey
from backfill_assets.core.state.fence import Fence, first_fence, refuse_live
from backfill_assets.core.calendar.partitions import Grid, Partition
from backfill_assets.core.state.receipts import PartitionReceipt, PublishedPartition, Receipt, newest_by_partition, receipt_from_json
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    CommitConflictError,
    MemoryExhaustedError,
    SchemaMismatchError,
    UnreadableSourceError,
)

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOME, PROBLEM, UNREADABLE_FILE = "_ba_home", "_ba_problem", "_ba_unreadable_file"
POINTS = ("stage", "hold", "before_save", "during_save", "after_commit", "tally", "before_put_back")
LIVE_POINTS = (
    *("find", "before_append", "during_append", "after_append", "before_late", "after_late", "before_quarantine", "after_quarantine"),
    *("before_close", "during_close", "after_close", "before_store", "during_store", "after_store", "count"),
)


@dataclass
class Script:
    """What happens at which point of a launch.

    Args:
        passed: Every point that was passed, in order.
    """

    passed: list[str] = field(default_factory=list)
    _actions: dict[str, list[tuple[int, Callable[[], object]]]] = field(default_factory=dict)

    def at(self, point: str, action: Callable[[], object], *, visit: int = 1) -> None:
        """Run an action at one visit of a point; the first from now is 1. It runs once."""
        assert point in (*POINTS, *LIVE_POINTS), point
        self._actions.setdefault(point, []).append((self.passed.count(point) + visit, action))

    def always(self, point: str, action: Callable[[], object], *, visits: int = 50) -> None:
        """Run an action at every visit of a point."""
        for visit in range(1, visits + 1):
            self.at(point, action, visit=visit)

    def reach(self, point: str) -> None:
        """Pass a point; an action may launch again, so what is due is taken off the script first."""
        self.passed.append(point)
        visit = self.passed.count(point)
        due = [action for at, action in self._actions.get(point, []) if at == visit]
        self._actions[point] = [(at, action) for at, action in self._actions.get(point, []) if at != visit]
        for action in due:
            action()


def raising(error: BaseException) -> Callable[[], None]:
    """Return an action that raises."""

    def action() -> None:
        raise error

    return action


def hash_of(row: Mapping[str, Any]) -> int:
    """Return 64 bits of a row's values; names that start with `_ba_` are not among them."""
    values = sorted((name, repr(value)) for name, value in row.items() if not name.startswith("_ba_"))
    return int.from_bytes(hashlib.sha256(repr(values).encode()).digest()[:8], "big")


def partition_key_of(spec: TableSpec, row: Row) -> str | None:
    """Return the key of the partition in which a row's event time lies; None without one."""
    moment = row[spec.event_time]
    return None if moment is None else _key_at(spec.grid, moment)


@lru_cache(10_000)
def _key_at(grid: Grid, moment: datetime) -> str:
    return grid.partition_of(moment).key


def tally_of(spec: TableSpec, key: str, rows: Sequence[Row]) -> Tally:
    """Count the rows that are kept in one partition."""
    read = [row for row in rows if row.get(PROBLEM) is None]
    micros = [(row[spec.event_time] - EPOCH) // timedelta(microseconds=1) for row in read if row[spec.event_time]]
    keys = Counter(_row_key(spec, row) for row in read) if spec.key_columns else Counter[tuple[Any, ...]]()
    nulls = {name: sum(row[name] is None for row in read) for name in spec.required_columns}
    return Tally(
        rows=len(read),
        checksum=sum(map(hash_of, read)) % (1 << 64),
        first_event_micros=min(micros, default=None),
        last_event_micros=max(micros, default=None),
        null_keys=sum(any(row[name] is None for name in spec.key_columns) for row in read),
        duplicate_keys=sum(times - 1 for times in keys.values()),
        stray_rows=sum(partition_key_of(spec, row) not in (key, None) for row in read),
        unreadable_rows=len(rows) - len(read),
        nulls={name: count for name, count in nulls.items() if count},
        empty_columns=tuple(n for n in spec.columns if read and all(row[n] is None for row in read)),
    )


def _row_key(spec: TableSpec, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in spec.key_columns)


class FakeSource:
    """History in memory: one file of rows for each partition.

    Args:
        files: Rows by partition key. A row with `_ba_problem` cannot be read; the problem says why.
        complete_until: The source's answer; by default the end of its last partition.
        lacking: Partition keys whose file lacks a column: key and column.
        unreadable: Partition keys whose file cannot be read to its end.
        forgotten: Partition keys of which the read leaves out the first row, though the file says that it is there.
        schema_problem: If set, the source does not have the spec's columns.
        bytes_a_row: Stored bytes of each row.
    """

    def __init__(self, spec: TableSpec, files: Mapping[str, Sequence[Row]], script: Script | None = None) -> None:
        self.spec = spec
        self.files: dict[str, list[Row]] = {key: list(rows) for key, rows in files.items()}
        self.script = script or Script()
        self.complete_until_utc = spec.grid.partition(max(files)).window.end_utc if files else None
        self.lacking: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.forgotten: set[str] = set()
        self.schema_problem = ""
        self.remarks: list[str] = []
        self.raw_rows_known = True
        self.bytes_a_row = 100
        self.staged_keys: list[list[str]] = []
        self.examined: list[str] = []
        self._set_aside: set[str] = set()

    def complete_until(self) -> datetime | None:
        return self.complete_until_utc

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        if self.schema_problem:
            raise SchemaMismatchError(f"{self.schema_problem}.", state=NOTHING_WRITTEN, remedy="Change the spec.")
        return self.remarks

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        return {p.key: self._survey(p.key) for p in partitions}

    def stage(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Staged[list[Row]]:
        self.script.reach("stage")
        keys = [p.key for p in partitions]
        self.staged_keys.append(keys)
        rows: list[Row] = []
        for key in keys:
            if key in self._set_aside:
                continue
            if key in self.unreadable:
                rows.append({UNREADABLE_FILE: key})
            rows += [{**row, HOME: key} for row in self.files.get(key, [])[key in self.forgotten :]]
        position = {"kind": "files", "files": sum(len(surveys[key].files) for key in keys)}
        return Staged(rows, position, {key: self._evidence(key) for key in keys}, homes={key: key for key in keys})

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for key, tally in suspects.items():
            assert key in surveys
            self.examined.append(key)
            if tally.unreadable_rows:
                named = tuple(str(row[PROBLEM]) for row in self.files[key] if row.get(PROBLEM))
                what = f"{tally.unreadable_rows} lines cannot be read."
                found.setdefault(key, []).append(Finding(AuditRule.VALUES_FIT_THEIR_TYPES, tally.unreadable_rows, what, named))
            if self.lacking.get(key) in tally.empty_columns:
                what = f"`{key}.parquet` has no column `{self.lacking[key]}`."
                found.setdefault(key, []).append(Finding(AuditRule.SCHEMA_MATCHES, 0, what))
        return found

    def set_aside_unreadable(self, surveys: Mapping[str, Survey]) -> bool:
        found = (self.unreadable & surveys.keys()) - self._set_aside
        self._set_aside |= found
        return bool(found)

    def _survey(self, key: str) -> Survey:
        rows = self.files.get(key)
        if rows is None:
            return Survey("no file")
        return Survey(hashlib.sha256(repr(rows).encode()).hexdigest()[:16], len(rows) * self.bytes_a_row, (f"{key}.parquet",))

    def _evidence(self, key: str) -> Evidence:
        findings: list[Finding] = []
        if key not in self.files:
            findings.append(Finding(AuditRule.SOURCE_IS_PRESENT, 0, f"there is no file `{key}.parquet`."))
        if key in self._set_aside:
            findings.append(Finding(AuditRule.FILES_ARE_READABLE, 0, f"`{key}.parquet` cannot be read."))
        raw_rows = len(self.files.get(key, [])) if self.raw_rows_known else None
        return Evidence(raw_rows, tuple(findings), place=f"{key}.parquet" if key in self.files else "")


@dataclass(frozen=True)
class Version:
    """The table after one commit: rows by partition key, its fence, which keys the commit wrote, and what else it carries."""

    rows: Mapping[str, tuple[Row, ...]]
    touched: frozenset[str] = frozenset()
    metadata: str | None = None
    fence: Fence | None = None
    transaction: tuple[str, int] | None = None


class FakeLake:
    """One table in memory with every version it ever had; version 0 is empty.

    Args:
        memory_partitions: Staging more partitions than this, times the slices, runs out of memory.
        damage: Given the rows that a save is about to write, returns those that it really writes.
        answers: Whether the write tells what passed through it.
        sees_conflicts: Whether a commit fails if another wrote its partitions since it began, as Delta's do. Without it
            only the launch itself can find that out.
    """

    def __init__(self, spec: TableSpec, script: Script | None = None) -> None:
        self.spec = spec
        self.script = script or Script()
        self.versions: list[Version] = [Version({}, fence=first_fence(spec))]
        self.memory_partitions: float | None = None
        self.damage: Callable[[list[Row]], list[Row]] | None = None
        self.miscounted = False
        self.answers = True
        self.sees_conflicts = False
        self.columns_differ: list[str] = []
        self.held_now = 0
        self.late_rows: list[Row] = []
        self.looked_at: list[str] = []

    # -- what a test asks ----------------------------------------------------------------------------------------------

    def content(self, version: int | None = None) -> dict[str, list[int]]:
        """Return the multiset of each partition's rows at a version; partitions without rows are left out."""
        return {key: sorted(map(hash_of, rows)) for key, rows in self._at(version).items() if rows}

    def receipts(self) -> dict[int, Receipt]:
        """Return every receipt in the log, by version, read from its JSON."""
        read = {number: receipt_from_json(version.metadata) for number, version in enumerate(self.versions)}
        return {number: receipt for number, receipt in read.items() if receipt is not None}

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
        rows = dict(self._at(None))
        rows.update({key: tuple(new) for key, new in by_key.items()})
        self.versions.append(Version(rows, frozenset(by_key), metadata, fence or self.fence(), transaction))

    # -- the Protocol --------------------------------------------------------------------------------------------------

    def version(self) -> int:
        return len(self.versions) - 1

    def published(self) -> dict[str, PublishedPartition]:
        return newest_by_partition(self.receipts())

    def fence(self) -> Fence | None:
        return self.versions[-1].fence

    def late(self, partitions: Sequence[Partition]) -> Late:
        if self.spec.live is None or self.spec.live.late != "fold":
            return NO_LATE
        counts = Counter(partition_key_of(self.spec, row) for row in self.late_rows)
        return Late(len(self.late_rows), {p.key: counts[p.key] for p in partitions if counts[p.key]})

    def uncovered(self, held: Held[list[Row]], partitions: Sequence[Partition]) -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for partition in partitions:
            staged = [row for row in held.rows if row[HOME] == partition.key]
            lost = [row for row in self._at(None).get(partition.key, ()) if not self._covered(row, staged)]
            if lost:
                what = f"{len(lost)} rows of the live stream are not in the source."
                found[partition.key] = Finding(AuditRule.LIVE_ROWS_ARE_COVERED, len(lost), what)
        return found

    def hold(self, staged: Staged[list[Row]], late: Late, slices: int = 1) -> Held[list[Row]]:
        self.script.reach("hold")
        if self.memory_partitions is not None and len(staged.evidence) > self.memory_partitions * slices:
            raise MemoryExhaustedError("Spark ran out of memory.", state=NOTHING_WRITTEN, remedy="Use smaller chunks.")
        for row in staged.rows:
            if UNREADABLE_FILE in row:
                raise UnreadableSourceError(f"`{row[UNREADABLE_FILE]}` cannot be read.", state=NOTHING_WRITTEN, remedy="Restore it.")
        late_rows = [{**row, HOME: key} for row in self.late_rows[: late.version] if (key := partition_key_of(self.spec, row)) in late.rows]
        rows, superseded = self._latest_wins([*staged.rows, *late_rows])
        kept_in: dict[str, list[Row]] = {}
        for row in rows:
            kept_in.setdefault(row[HOME], []).append(row)
        self.held_now += 1

        def release() -> None:
            self.held_now -= 1

        return Held(rows, {key: tally_of(self.spec, key, kept) for key, kept in kept_in.items()}, superseded, staged.homes, release, late)

    def examples(self, held: Held[list[Row]], verdicts: Sequence[Verdict]) -> dict[str, dict[AuditRule, list[str]]]:
        found: dict[str, dict[AuditRule, list[str]]] = {}
        for verdict in verdicts:
            for finding in verdict.findings:
                named = [str(row[self.spec.key_columns[0]]) for row in held.rows if row[HOME] == verdict.partition.key][:3]
                found.setdefault(verdict.partition.key, {})[finding.rule] = named
        return found

    def rows_now(self, partitions: Sequence[Partition]) -> dict[str, int]:
        self.looked_at += [p.key for p in partitions]
        return {p.key: len(rows) for p in partitions if (rows := self._at(None).get(p.key))}

    def overwrite(self, held: Held[list[Row]], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        self.script.reach("before_save")
        refuse_live(self.spec, partitions, self.fence())
        keys = {p.key for p in partitions}
        if overtaken := self.touched_between(receipt.staged_from_version, self.version() + 1, partitions):
            raise CommitConflictError(f"Version {overtaken[-1]} came between.", state=NOTHING_WRITTEN, remedy="Try again.")
        rows = [row for row in held.rows if row[HOME] in keys]
        strays = [row for row in rows if partition_key_of(self.spec, row) not in keys]
        assert not strays, f"rows outside the predicate: {strays}"
        return self._commit(rows, partitions, receipt)

    def touched_between(self, after: int, before: int, partitions: Sequence[Partition]) -> list[int]:
        keys = {p.key for p in partitions}
        return [number for number in range(after + 1, before) if self.versions[number].touched & keys]

    def tally(self, partitions: Sequence[Partition], *, version: int | None = None) -> dict[str, Tally]:
        self.script.reach("tally")
        rows = self._at(version)
        return {p.key: tally_of(self.spec, p.key, rows[p.key]) for p in partitions if rows.get(p.key)}

    def schema_problems(self) -> list[str]:
        return self.columns_differ

    def differences(self, held: Held[list[Row]], partitions: Sequence[Partition], *, version: int) -> dict[str, Difference]:
        found: dict[str, Difference] = {}
        for partition in partitions:
            source_rows = Counter(hash_of(row) for row in held.rows if row[HOME] == partition.key)
            table_rows = Counter(hash_of(row) for row in self._at(version).get(partition.key, ()))
            only_source, only_table = (source_rows - table_rows).total(), (table_rows - source_rows).total()
            if only_source or only_table:
                found[partition.key] = Difference(only_source, only_table, (f"row of {partition.key}",))
        return found

    def put_back(self, partitions: Sequence[Partition], *, version: int, receipt: Receipt) -> Commit:
        self.script.reach("before_put_back")
        earlier = self._at(version)
        return self._commit([dict(row) for p in partitions for row in earlier.get(p.key, ())], partitions, receipt)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _at(self, version: int | None) -> Mapping[str, tuple[Row, ...]]:
        return self.versions[self.version() if version is None else version].rows

    def _commit(self, rows: list[Row], partitions: Sequence[Partition], receipt: Receipt) -> Commit:
        began_at = self.version()
        self.script.reach("during_save")
        if self.versions[began_at].fence != self.fence():
            raise CommitConflictError("The table's properties changed meanwhile.", state=NOTHING_WRITTEN, remedy="Try again.")
        if self.sees_conflicts and self.touched_between(began_at, self.version() + 1, partitions):
            raise CommitConflictError("These partitions were written meanwhile.", state=NOTHING_WRITTEN, remedy="Try again.")
        if self.damage is not None and receipt.kind == "publish":
            rows = self.damage(list(rows))
        by_key: dict[str, list[Row]] = {p.key: [] for p in partitions}
        for row in rows:
            key = partition_key_of(self.spec, row)
            assert key is not None
            by_key[key].append({name: row[name] for name in self.spec.columns})
        self.add_version(by_key, metadata=receipt.to_json())
        number = self.version()
        self.script.reach("after_commit")
        counts = {key: len(new) + self.miscounted for key, new in by_key.items() if new}
        written = (len(rows), sum(map(hash_of, rows)) % (1 << 64)) if self.answers else None
        return Commit(number, counts, {key: count * 100 for key, count in counts.items()}, written)

    def _latest_wins(self, rows: Iterable[Row]) -> tuple[list[Row], dict[str, int]]:
        if not self.spec.latest_wins_by:
            return list(rows), {}
        newest: dict[tuple[Any, ...], Row] = {}
        superseded = Counter[str]()
        for row in rows:
            key = (row[HOME], *_row_key(self.spec, row))
            if key in newest:
                superseded[row[HOME]] += 1
            if key not in newest or self._rank(newest[key]) < self._rank(row):
                newest[key] = row
        return list(newest.values()), dict(superseded)

    def _covered(self, row: Row, staged: Sequence[Row]) -> bool:
        """Say whether staged rows have a row, or one that supersedes it."""
        if not self.spec.key_columns:
            return hash_of(row) in map(hash_of, staged)
        same_key = [other for other in staged if _row_key(self.spec, other) == _row_key(self.spec, row)]
        return any(
            hash_of(other) == hash_of(row) or (self.spec.latest_wins_by and self._rank(other) >= self._rank(row)) for other in same_key
        )

    def _rank(self, row: Row) -> tuple[Any, ...]:
        return (*(row[name] for name in self.spec.latest_wins_by), hash_of(row))


# -- rows for tests ----------------------------------------------------------------------------------------------------

ORDERS = TableSpec.model_validate(
    {
        "key": "bronze/orders",
        "columns": {
            "order_id": "bigint not null",
            "created_at": "timestamp not null",
            "amount": "decimal(18,2)",
            "updated_at": "timestamp",
            "coupon": {"type": "string", "optional": True},
        },
        "key_columns": ["order_id"],
        "event_time": "created_at",
        "grain": "daily",
        "start": "2024-01-01",
        "source": {"kind": "files", "path": "orders", "format": "parquet"},
    }
)


def spec_with(**changes: Any) -> TableSpec:
    """Return the orders' spec with some fields changed."""
    return TableSpec.model_validate({**ORDERS.model_dump(), **changes})


def orders_of(spec: TableSpec, key: str, count: int = 3, *, amount: int = 1) -> list[Row]:
    """Return the orders of one partition; another amount makes them other rows with the same keys."""
    partition = spec.grid.partition(key)
    start = partition.window.start_utc
    return [
        {
            "order_id": partition.value.toordinal() * 1_000 + n,
            "created_at": start + timedelta(minutes=n),
            "amount": amount,
            "updated_at": datetime.combine(partition.value, time(12), UTC),
            "coupon": None,
        }
        for n in range(count)
    ]


def files_of(spec: TableSpec, first_key: str, last_key: str, count: int = 3, *, amount: int = 1) -> dict[str, list[Row]]:
    """Return a file of orders for each partition of a range."""
    return {p.key: orders_of(spec, p.key, count, amount=amount) for p in spec.grid.between(first_key, last_key)}


def receipt_of(partitions: Mapping[str, PartitionReceipt], **changes: Any) -> Receipt:
    """Return a receipt with plain values."""
    plain = Receipt("id", "bronze/orders", "run", "run", 0, {"kind": "files"}, dict(partitions))
    return replace(plain, **changes)
