"""What a reader could have seen at any time of a schedule: every version, held against the one before it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from tests.support.fake_live import FakeLiveLake
from tests.support.fake_versions import Version
from tests.support.fakes import tally_of
from tests.support.schedule_plans import SPEC, Plan, identity, instant


def check_log(plan: Plan, table: FakeLiveLake) -> None:
    """Hold every version against the one before it: what a reader could have seen at any time."""
    lake, receipts, live_receipts = table.lake, table.lake.receipts(), table.receipts()
    delivered = Counter(map(identity, plan.delivered))
    parted_at = {(f"late:{r.stream}", r.batch): r.fence for r in live_receipts.values()}
    for transaction, rows in table.late_commits:
        assert all(row["created_at"] < parted_at[transaction] for row in rows), (
            f"{transaction}: rows that are not late are in the late table"
        )
    published: set[str] = set()
    batches = Counter((r.stream, r.batch) for r in live_receipts.values() if r.kind == "batch")
    assert set(batches.values()) <= {1}, f"a batch was committed twice: {batches}"
    epochs = {version.fence.epoch: version.fence for version in lake.versions if version.fence}
    for number, (old, new) in enumerate(pairwise(lake.versions), start=1):
        assert old.fence is not None
        assert new.fence is not None
        at = f"version {number}"
        assert new.fence.at_utc >= old.fence.at_utc, f"{at}: the fence went back"
        assert new.fence == old.fence or new.fence.epoch > old.fence.epoch, f"{at}: another fence in the same epoch"
        assert epochs[new.fence.epoch] == new.fence, f"{at}: epoch {new.fence.epoch} comes twice"
        changed = {key for key in new.rows if new.rows[key] is not old.rows.get(key)}
        assert changed <= new.touched, f"{at}: rows changed outside of what was written"
        if number in receipts:
            assert new.touched == receipts[number].partitions.keys()
            for key, receipt in receipts[number].partitions.items():
                _check_overwrite(f"{at}: {key}", old, new, key)
                assert receipt.matches(tally_of(SPEC, key, new.rows[key])), f"{at}: {key} is not what was audited"
            published |= new.touched
        if number in live_receipts:
            receipt = live_receipts[number]
            in_force = (old.fence.stream, old.fence.epoch)
            assert (receipt.stream, receipt.epoch) == in_force, (
                f"{at}: written in epoch {receipt.epoch} of {receipt.stream}, not {in_force}"
            )
            assert receipt.kind == "close" or receipt.fence == old.fence.at_utc, (
                f"{at}: parted at {receipt.fence}, not at the fence"
            )
            added = 0
            for key in new.touched:
                before, after = old.rows.get(key, ()), new.rows[key]
                assert instant(key) >= old.fence.at_utc, f"{at}: live rows in {key}, before the fence"
                assert after[: len(before)] == before
                added += len(after) - len(before)
            assert added == receipt.rows
        for key in new.touched - published:
            surplus = Counter(map(identity, new.rows[key])) - delivered
            assert not surplus, f"{at}: {key} has rows more often than they came: {surplus}"


def _check_overwrite(at: str, old: Version, new: Version, key: str) -> None:
    """A partition that history wrote lies before the fence, has each key once, and no key has gone or gone back."""
    assert old.fence is not None
    assert SPEC.grid.partition(key).window.end_utc <= old.fence.at_utc, f"{at} was overwritten behind the fence"
    rows = dict(map(identity, new.rows[key]))
    assert len(rows) == len(new.rows[key]), f"{at} has a key twice"
    for order_id, version in map(identity, old.rows.get(key, ())):
        assert rows.get(order_id, -1) >= version, f"{at} lost version {version} of order {order_id}"
