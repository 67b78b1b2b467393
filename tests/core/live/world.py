"""A table with history and a live stream over lists, and who writes it: what the tests of the live side share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from backfill_assets.core.history.effects import Effects as LaunchEffects
from backfill_assets.core.history.outcomes import Published
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.publish import materialize
from backfill_assets.core.live import batches as live
from backfill_assets.core.live import fence_moves as moves
from backfill_assets.core.spec.table import TableSpec
from tests.support.actors import Killed
from tests.support.fake_lake import FakeLake
from tests.support.fake_live import LIVE_ORDERS, Clock, FakeBatch, FakeLiveLake, order
from tests.support.fakes import PROBLEM, FakeSource, Script, launch_with, raising

STREAM = "a1"
DAYS = ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03"]
START = datetime(2024, 2, 29, tzinfo=UTC)
"""Where the fence stands at first."""


def at(day, hour=0):
    """Return an instant in UTC."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(hours=hour)


@dataclass
class World:
    """A table with history and a live stream, which share a script and a clock."""

    spec: TableSpec = LIVE_ORDERS
    script: Script = field(default_factory=Script)
    said: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    stream: str = STREAM

    def __post_init__(self):
        self.lake = FakeLake(self.spec, self.script)
        self.live = FakeLiveLake(self.lake, self.script)
        self.clock = Clock()
        self.effects = self.clock.effects(self.said.append)
        self.source = FakeSource(
            self.spec, {day: [order(n * 100, f"{day}T06:00")] for n, day in enumerate(DAYS, 1)}, self.script
        )
        if self.stream:
            self.claim(self.stream)

    # -- the actors ----------------------------------------------------------------------------------------------------

    def claim(self, stream=STREAM, *, is_new=False):
        return moves.claim(self.spec, self.live, stream, self.effects, is_new=is_new)

    def write(self, number, *rows, stream=STREAM, is_first=True):
        """Write one batch, as a writer does that has just started; or one that has not."""
        return live.write_batch(
            self.spec, FakeBatch(self.spec, number, rows), self.live, stream, self.effects, is_first=is_first
        )

    def move(self, day):
        return moves.move_fence(self.spec, self.live, at(day) if isinstance(day, str) else day, self.effects)

    def launch(self, *days, **how):
        launch = launch_with(**how)
        effects = LaunchEffects(sleep=self.slept.append, log=self.said.append)
        partitions = [self.spec.grid.partition(day) for day in days]
        return list(materialize(self.spec, partitions, self.source, self.lake, launch, effects=effects))

    # -- what a test asks ----------------------------------------------------------------------------------------------

    def orders(self, day=None):
        """Return the order ids in the table, sorted, each as often as it is there; of one day or of all."""
        rows = self.lake.versions[-1].rows
        return sorted(row["order_id"] for key in ([day] if day else rows) for row in rows.get(key, ()))

    def late(self):
        return sorted(row["order_id"] for row in self.lake.late_rows)

    def quarantined(self):
        return sorted(row["order_id"] for row in self.live.quarantined())

    def fences(self):
        """Return the fence of every version."""
        found = [version.fence for version in self.lake.versions if version.fence]
        assert len(found) == len(self.lake.versions)
        return found

    def check_fences(self):
        """The fence never goes back, and no two fences share an epoch."""
        fences = self.fences()
        assert all(was.at_utc <= now.at_utc for was, now in pairwise(fences))
        assert all(was == now or was.epoch < now.epoch for was, now in pairwise(fences))

    def check_live_commits(self):
        """Every batch was committed once, in the epoch and at the fence that were in force; no row came twice."""
        receipts = self.live.receipts()
        for version, receipt in receipts.items():
            fence = self.lake.versions[version - 1].fence
            assert (receipt.stream, receipt.epoch) == (fence.stream, fence.epoch)
            assert receipt.kind == "close" or receipt.fence == fence.at_utc
        batches = Counter((r.stream, r.batch) for r in receipts.values() if r.kind == "batch")
        assert set(batches.values()) <= {1}
        assert len(set(self.orders())) == len(self.orders())
        assert len(set(self.late())) == len(self.late())


EVENTS = (
    order(1, "2024-02-28T23:59:59.999999"),
    order(2, "2024-02-29T00:00"),
    order(3, "2024-03-01T10:00"),
    order(4, "2024-03-02T10:00"),
)
"""One before the first fence, one at it, and two after it."""


NO_EVENT = {**order(9, "2024-03-01T10:00"), PROBLEM: "`amount`: `abc` is no number"}


def interrupt(world, day="2024-03-02"):
    """Begin a move and crash between its two steps."""
    world.script.at("after_close", raising(Killed()))
    with pytest.raises(Killed):
        world.move(day)


def forget(world):
    """Have the log forget what its commits carry, as Delta does after a month."""
    world.lake.versions[:] = [replace(version, metadata=None) for version in world.lake.versions]


def published(outcomes):
    return [p.key for outcome in outcomes if isinstance(outcome, Published) for p in outcome.partitions]


def left_out(outcomes):
    return [(p.key, o.why) for o in outcomes if isinstance(o, LeftOut) for p in o.partitions]
