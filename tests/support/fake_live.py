"""The live side over lists: a lake whose appends share their log with `FakeLake`, batches, and a clock.

Appends keep to Delta's rules for transactions: a number that is not larger than the recorded one is skipped without a
commit; a commit fails if another with the same transaction id, or another fence, came since it began. The points of a
batch and of a move, in order; the first three of each commit lie before, in and after it:

    find              the log is about to be looked through
    before_append     the fence was read and the batch was split
    during_append     the transaction began, nothing is committed
    after_append      the commit is there, its answer is not
    before_late, after_late, before_quarantine, after_quarantine
    before_close, during_close, after_close   the first step of a move
    before_store, during_store, after_store   the second one
    count             the live rows are about to be counted
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from backfill_assets.core.live.ports import Effects, Split
from backfill_assets.core.live.receipts import CLOSED, LiveReceipt, live_receipt_from_json
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import NOTHING_WRITTEN, CommitConflictError
from tests.support.fake_lake import FakeLake
from tests.support.fakes import PROBLEM, Row, Script, partition_key_of, spec_with

LIVE_ORDERS = spec_with(latest_wins_by=["updated_at"], live={"path": "events", "starts": "2024-02-29"})
"""The orders with a stream: the first fence is 2024-02-29."""


receipt_in = lru_cache(4_096)(live_receipt_from_json)
"""The log is read again and again; what a commit says does not change."""


def conflict() -> CommitConflictError:
    return CommitConflictError("Another writer was there.", state=NOTHING_WRITTEN, remedy="Try again.")


def order(order_id: int, when: str, *, version: int = 1, **more: Any) -> Row:
    """Return an order event; a later version of the same order is another row with the same key."""
    created_at = datetime.fromisoformat(when).replace(tzinfo=UTC)
    row = {"order_id": order_id, "created_at": created_at, "amount": 10 * order_id + version}
    return {**row, "updated_at": created_at + timedelta(minutes=version), "coupon": None, **more}


@dataclass
class Clock:
    """A clock that only moves when somebody sleeps, or when it is set."""

    now_utc: datetime = datetime(2024, 3, 10, tzinfo=UTC)
    slept_seconds: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.now_utc

    def sleep(self, seconds: float) -> None:
        self.slept_seconds.append(seconds)
        self.now_utc += timedelta(seconds=seconds)

    def effects(self, log: Callable[[str], None] = lambda _: None, *, wait_seconds: float = 60.0) -> Effects:
        return Effects(log, self.sleep, self.now, wait_seconds, lambda: sum(self.slept_seconds))


@dataclass(frozen=True)
class FakeBatch:
    """A batch of events; one with `_ba_problem` is none, and the problem says why."""

    spec: TableSpec
    number: int
    rows: Sequence[Row]
    landed_utc: tuple[str, str] | None = None

    @property
    def digest(self) -> str:
        lines = sorted(repr({name: value for name, value in row.items() if name != PROBLEM}) for row in self.rows)
        return hashlib.sha256(repr(lines).encode()).hexdigest()[:16]

    def split(self, fence: datetime, until: datetime) -> Split[list[Row]]:
        live: list[Row] = []
        late: list[Row] = []
        quarantined: list[Row] = []
        for row in self.rows:
            when = row[self.spec.event_time]
            if row.get(PROBLEM):
                quarantined.append(row)
            elif when >= until:
                quarantined.append({**row, PROBLEM: f"`{self.spec.event_time}` lies in the future"})
            else:
                (live if when >= fence else late).append(row)
        return Split(live, late, quarantined, (len(live), len(late), len(quarantined)))


class FakeLiveLake:
    """The live side of a table in memory.

    Args:
        late_commits: Transaction and rows of each commit to the late table, whose rows are in the lake's `late_rows`.
        quarantine_commits: The same of the quarantine.
    """

    def __init__(self, lake: FakeLake, script: Script | None = None) -> None:
        self.lake = lake
        self.script = script or lake.script
        self.late_commits: list[tuple[tuple[str, int], list[Row]]] = []
        self.quarantine_commits: list[tuple[tuple[str, int], list[Row]]] = []

    # -- what a test asks ----------------------------------------------------------------------------------------------

    def receipts(self) -> dict[int, LiveReceipt]:
        """Return every live receipt in the log, by version, read from its JSON."""
        read = {number: receipt_in(version.metadata) for number, version in enumerate(self.lake.versions)}
        return {number: receipt for number, receipt in read.items() if receipt is not None}

    def quarantined(self) -> list[Row]:
        return [row for _, rows in self.quarantine_commits for row in rows]

    # -- the Protocol --------------------------------------------------------------------------------------------------

    def fence(self) -> Fence | None:
        return self.lake.fence()

    def append(self, rows: list[Row], receipt: LiveReceipt, transaction: tuple[str, int]) -> bool:
        return self._commit("append", rows, receipt, transaction)

    def close(self, receipt: LiveReceipt, transaction: tuple[str, int]) -> None:
        self._commit("close", [], receipt, transaction)

    def find(self, matches: Callable[[LiveReceipt], bool]) -> LiveReceipt | None:
        self.script.reach("find")
        for version in reversed(self.lake.versions):
            receipt = receipt_in(version.metadata)
            if receipt is not None and matches(receipt):
                return receipt
        return None

    def used_up_to(self, name: str) -> int:
        used = [v.transaction[1] for v in self.lake.versions if v.transaction and v.transaction[0] == name]
        return max((number for number in used if number < CLOSED), default=-1)

    def append_late(self, rows: list[Row], transaction: tuple[str, int]) -> None:
        self.script.reach("before_late")
        if not _is_used_up(self.late_commits, transaction):
            self.late_commits.append((transaction, list(rows)))
            self.lake.late_rows += rows
        self.script.reach("after_late")

    def append_quarantine(self, rows: list[Row], transaction: tuple[str, int]) -> None:
        self.script.reach("before_quarantine")
        if not _is_used_up(self.quarantine_commits, transaction):
            self.quarantine_commits.append((transaction, list(rows)))
        self.script.reach("after_quarantine")

    def rows_from(self, at: datetime) -> int:
        self.script.reach("count")
        first = self.lake.spec.grid.partition_of(at).key
        now = self.lake.versions[-1].rows if self.lake.versions else {}
        return sum(len(rows) for key, rows in now.items() if key >= first)

    def store_fence(self, fence: Fence, *, instead_of: Fence) -> None:
        self.script.reach("before_store")
        if self.fence() != instead_of:
            return
        self.script.reach("during_store")
        if self.fence() != instead_of:
            raise conflict()
        self.lake.add_version({}, fence=fence)
        self.script.reach("after_store")

    # -- how -----------------------------------------------------------------------------------------------------------

    def _commit(self, step: str, rows: list[Row], receipt: LiveReceipt, transaction: tuple[str, int]) -> bool:
        self.script.reach(f"before_{step}")
        versions = self.lake.versions
        name, number = transaction
        if any(v.transaction is not None and v.transaction[0] == name and v.transaction[1] >= number for v in versions):
            return any(known.receipt_id == receipt.receipt_id for known in self.receipts().values())
        began_at = len(versions)
        self.script.reach(f"during_{step}")
        since = versions[began_at:]
        if any(
            (v.transaction is not None and v.transaction[0] == name) or v.fence != versions[began_at - 1].fence
            for v in since
        ):
            raise conflict()
        by_key: dict[str, list[Row]] = {}
        for row in rows:
            key = partition_key_of(self.lake.spec, row)
            assert key is not None
            by_key.setdefault(key, list(versions[-1].rows.get(key, ()))).append(
                {name: row[name] for name in self.lake.spec.columns}
            )
        self.lake.add_version(by_key, metadata=receipt.to_json(), transaction=transaction)
        self.script.reach(f"after_{step}")
        return True


def _is_used_up(commits: Sequence[tuple[tuple[str, int], list[Row]]], transaction: tuple[str, int]) -> bool:
    return any(name == transaction[0] and number >= transaction[1] for (name, number), _ in commits)
