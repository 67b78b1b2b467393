"""A source over lists, and what it shares with the lakes over lists (`fake_lake.py`, `fake_live.py`): rows, and ways to fail.

They take part in one `Script`: actions that run when a launch comes to a named point. An action may raise (a crash, a
conflict), change the source, commit as somebody else, or launch again. The points of one chunk, in order:

    scan           the source describes the read, before anything is read
    stage          rows are about to be read
    before_save    the audit has passed, the source was seen to be unchanged
    during_save    conflicts were looked for, nothing is committed
    after_commit   the commit is there, its answer is not
    tally          the table is about to be read back
    before_restore   what was there before is about to be written again

The points of a live batch and of a fence that is moved are in `tests/support/fake_live.py`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any

from backfill_assets.core.calendar.partitions import Grid, Partition
from backfill_assets.core.history.audit import AuditRule, Evidence, Finding
from backfill_assets.core.history.guards import Allowances
from backfill_assets.core.history.plan import Launch
from backfill_assets.core.history.ports import Scan, Source
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.receipts import PartitionReceipt, Receipt, Run
from backfill_assets.core.state.surveys import Survey
from backfill_assets.core.state.tallies import Tally
from backfill_assets.errors import NOTHING_WRITTEN, SchemaMismatchError

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOME, PROBLEM, UNREADABLE_FILE = "_ba_file_id", "_ba_problem", "_ba_unreadable_file"
POINTS = ("scan", "stage", "before_save", "during_save", "after_commit", "tally", "before_restore")
BATCH_POINTS = (
    *("find", "before_append", "during_append", "after_append"),
    *("before_late", "after_late", "before_quarantine", "after_quarantine"),
)
MOVE_POINTS = ("find", "before_close", "during_close", "after_close", "before_store", "during_store", "after_store")


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
        assert point in (*POINTS, *BATCH_POINTS, *MOVE_POINTS, "count"), point
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
    keys = Counter(row_key(spec, row) for row in read) if spec.key_columns else Counter[tuple[Any, ...]]()
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
        empty_columns=_empty_columns(spec, read),
    )


def _empty_columns(spec: TableSpec, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns that are NULL in every row of one file; of the partition, where there are no files."""
    by_file: dict[Any, list[Row]] = {}
    for row in rows:
        by_file.setdefault(row.get(HOME), []).append(row)
    return tuple(n for n in spec.columns if any(all(row[n] is None for row in file) for file in by_file.values()))


def row_key(spec: TableSpec, row: Row) -> tuple[Any, ...]:
    """Return the values of a row's key."""
    return tuple(row[name] for name in spec.key_columns)


class FakeSource(Source[list[Row]]):
    """History in memory: one file of rows for each partition.

    Args:
        files: Rows by partition key. A row with `_ba_problem` cannot be read; the problem says why.
        complete_until: The source's answer; by default the end of its last partition.
        lacking: Partition keys whose file lacks a column: key and column.
        unreadable: Partition keys whose file cannot be read to its end.
        forgotten: Partition keys of which the read leaves out the first row, though the file says that it is there.
        schema_problem: If set, the source does not have the spec's columns.
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
        self.staged_keys: list[list[str]] = []
        self._set_aside: set[str] = set()

    def complete_until(self) -> datetime | None:
        return self.complete_until_utc

    def check_schema(self, partitions: Sequence[Partition]) -> list[str]:
        if self.schema_problem:
            raise SchemaMismatchError(f"{self.schema_problem}.", state=NOTHING_WRITTEN, remedy="Change the spec.")
        return self.remarks

    def survey(self, partitions: Sequence[Partition]) -> dict[str, Survey]:
        return {p.key: self._survey(p.key) for p in partitions}

    def foretell(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> dict[str, Evidence]:
        return {p.key: self._evidence(p.key) for p in partitions}

    def scan(self, partitions: Sequence[Partition], surveys: Mapping[str, Survey]) -> Scan[list[Row]]:
        self.script.reach("scan")
        keys = [p.key for p in partitions]
        self.staged_keys.append(keys)
        rows: list[Row] = []
        for key in keys:
            if key in self._set_aside:
                continue
            if key in self.unreadable:
                rows.append({UNREADABLE_FILE: key})
            rows += [{**row, HOME: key} for row in self.files.get(key, [])[key in self.forgotten :]]
        position = {"kind": "files", "files": sum(len(surveys[key].content) for key in keys)}
        return Scan(
            rows, position, {key: self._evidence(key) for key in keys}, partition_by_file={key: key for key in keys}
        )

    def examine(self, suspects: Mapping[str, Tally], surveys: Mapping[str, Survey]) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for key, tally in suspects.items():
            assert key in surveys
            if tally.unreadable_rows:
                named = tuple(str(row[PROBLEM]) for row in self.files[key] if row.get(PROBLEM))
                what = f"{tally.unreadable_rows} lines cannot be read."
                found.setdefault(key, []).append(
                    Finding(AuditRule.VALUES_FIT_THEIR_TYPES, tally.unreadable_rows, what, named)
                )
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
        digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
        return Survey(digest, len(rows) * 100, (f"{key}.parquet",), files=1)

    def _evidence(self, key: str) -> Evidence:
        findings: list[Finding] = []
        if key not in self.files:
            findings.append(Finding(AuditRule.SOURCE_IS_PRESENT, 0, f"there is no file `{key}.parquet`."))
        if key in self._set_aside:
            findings.append(Finding(AuditRule.FILES_ARE_READABLE, 0, f"`{key}.parquet` cannot be read."))
        raw_rows = len(self.files.get(key, []))
        return Evidence(raw_rows, tuple(findings), place=f"{key}.parquet" if key in self.files else "")


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
    return TableSpec.model_validate({**ORDERS.model_dump(exclude_unset=True), **changes})


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


def files_of(
    spec: TableSpec, first_key: str, last_key: str, count: int = 3, *, amount: int = 1
) -> dict[str, list[Row]]:
    """Return a file of orders for each partition of a range."""
    return {p.key: orders_of(spec, p.key, count, amount=amount) for p in spec.grid.between(first_key, last_key)}


def receipt_of(partitions: Mapping[str, PartitionReceipt], **changes: Any) -> Receipt:
    """Return a receipt with plain values; `run_id`, `root_run_id`, `by` and so on are those of its run."""
    run = run_with(changes)
    return replace(Receipt("id", "bronze/orders", run, 0, {"kind": "files"}, dict(partitions)), **changes)


def run_with(facts: dict[str, Any], run_id: str = "run") -> Run:
    """Take the facts of a run out of others, and return the run."""
    named = {"id": facts.pop("run_id", run_id), "root_id": facts.pop("root_run_id", "")}
    return Run(**named, **{name: facts.pop(name) for name in OF_A_RUN if name in facts})


OF_A_RUN = ("by", "reason", "plan", "flow", "code_version")


def launch_with(**facts: Any) -> Launch:
    """Return a launch of the run `run`; all facts of its run and of what it is allowed stand beside the others."""
    run = run_with(facts)
    allowed = Allowances(**{field.name: facts.pop(field.name) for field in fields(Allowances) if field.name in facts})
    return Launch(run, allowed=allowed, **facts)
