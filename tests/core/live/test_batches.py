"""The live side of the fence, forced into every interleaving that was thought of: with history, with moves, with itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from backfill_assets.core.live import batches as live
from backfill_assets.core.live import fence_moves as moves
from backfill_assets.core.state.fence import Fence
from backfill_assets.core.live.batches import CLOSED, LiveReceipt, live_receipt_from_json
from backfill_assets.core.history.publish import Launch, LeftOut, Published, Refused, materialize
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    CommitConflictError,
    FenceError,
    FenceMoveInterruptedError,
    LivePartitionsError,
    NaiveInstantError,
    ReceiptError,
    StagedContentLostError,
    StreamMismatchError,
    TableLockedError,
)
from tests.support.fake_live import LIVE_ORDERS, Clock, FakeBatch, FakeLiveLake, conflict, order
from tests.support.fakes import ORDERS, PROBLEM, FakeLake, FakeSource, Script, hash_of, raising, spec_with

STREAM = "a1"
DAYS = ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02", "2024-03-03"]
START = datetime(2024, 2, 29, tzinfo=UTC)
"""Where the fence stands at first."""

BATCH_POINTS = (
    "find",
    "before_append",
    "during_append",
    "after_append",
    "before_late",
    "after_late",
    "before_quarantine",
    "after_quarantine",
)
MOVE_POINTS = ("find", "before_close", "during_close", "after_close", "before_store", "during_store", "after_store")
HISTORY_POINTS = ("stage", "hold", "before_save", "during_save", "after_commit")
LOCKED = TableLockedError("Somebody holds the lock.", state=NOTHING_WRITTEN, remedy="Wait.")


class Killed(BaseException):
    """What a crash is to the code: nothing that it could catch."""


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
        self.pace = self.clock.pace(self.said.append)
        self.source = FakeSource(self.spec, {day: [order(n * 100, f"{day}T06:00")] for n, day in enumerate(DAYS, 1)}, self.script)
        if self.stream:
            self.claim(self.stream)

    # -- the actors ----------------------------------------------------------------------------------------------------

    def claim(self, stream=STREAM, *, is_new=False):
        return moves.claim(self.spec, self.live, stream, self.pace, is_new=is_new)

    def write(self, number, *rows, stream=STREAM, is_first=True):
        """Write one batch, as a writer does that has just started; or one that has not."""
        return live.write_batch(self.spec, FakeBatch(self.spec, number, rows), self.live, stream, self.pace, is_first=is_first)

    def move(self, day):
        return moves.move_fence(self.spec, self.live, at(day) if isinstance(day, str) else day, self.pace)

    def launch(self, *days, **how):
        launch = Launch("run", "run", sleep=self.slept.append, log=self.said.append, **how)
        return list(materialize(self.spec, [self.spec.grid.partition(day) for day in days], self.source, self.lake, launch))

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
            assert fence is not None
            assert (receipt.stream, receipt.epoch) == (fence.stream, fence.epoch)
            assert receipt.kind == "close" or receipt.fence == fence.at_utc
        batches = Counter((r.stream, r.batch) for r in receipts.values() if r.kind == "batch")
        assert set(batches.values()) <= {1}
        assert len(set(self.orders())) == len(self.orders())
        assert len(set(self.late())) == len(self.late())


@pytest.fixture
def world():
    return World()


EVENTS = (order(1, "2024-02-28T23:59:59.999999"), order(2, "2024-02-29T00:00"), order(3, "2024-03-01T10:00"), order(4, "2024-03-02T10:00"))
"""One before the first fence, one at it, and two after it."""

NO_EVENT = {**order(9, "2024-03-01T10:00"), PROBLEM: "`amount`: `abc` is no number"}


def published(outcomes):
    return [p.key for outcome in outcomes if isinstance(outcome, Published) for p in outcome.partitions]


def left_out(outcomes):
    return [(p.key, o.why) for o in outcomes if isinstance(o, LeftOut) for p in o.partitions]


# -- one batch ---------------------------------------------------------------------------------------------------------


def test_an_event_at_the_fence_is_live(world):
    """What happened at the fence or after it goes to the table, a microsecond earlier is late, and what is no event is set aside."""
    receipt = world.write(0, *EVENTS, NO_EVENT)
    assert world.orders() == [2, 3, 4]
    assert {day: world.orders(day) for day in DAYS[2:5]} == {"2024-02-29": [2], "2024-03-01": [3], "2024-03-02": [4]}
    assert world.late() == [1]
    assert world.quarantined() == [9]
    assert (receipt.rows, receipt.late_rows, receipt.quarantined_rows) == (3, 1, 1)


def test_the_table_is_committed_first(world):
    """Main table, late rows, quarantine: in this order, so that the receipt says how the others are parted."""
    world.write(0, *EVENTS, NO_EVENT)
    steps = [point for point in world.script.passed if point.startswith("after_")]
    assert steps == ["after_store", "after_append", "after_late", "after_quarantine"]


def test_the_receipt_of_a_batch_says_how_it_was_split(world):
    """It names the stream, the epoch, the batch and both instants at which rows were parted; and it is what the log has."""
    batch = FakeBatch(world.spec, 7, EVENTS, landed_utc=("2024-03-09T23:00:00Z", "2024-03-09T23:30:00Z"))
    receipt = live.write_batch(world.spec, batch, world.live, STREAM, world.pace)
    (logged,) = world.live.receipts().values()
    assert receipt == logged
    assert (receipt.table, receipt.kind, receipt.stream, receipt.epoch, receipt.batch) == ("bronze/orders", "batch", STREAM, 2, 7)
    assert receipt.fence == START
    assert receipt.until == world.clock.now() + timedelta(hours=1)
    assert receipt.landed_utc == batch.landed_utc
    assert world.lake.versions[-1].transaction == (f"live:{STREAM}:2", 7)


def test_a_batch_without_live_rows_is_committed_too(world):
    """Its receipt is what a replay goes by; the late rows alone could not say at which fence they were parted."""
    receipt = world.write(0, EVENTS[0])
    assert (receipt.rows, receipt.late_rows) == (0, 1)
    assert list(world.live.receipts().values()) == [receipt]
    assert (world.orders(), world.late()) == ([], [1])


def test_nothing_late_and_nothing_wrong_needs_no_other_table(world):
    """The late table and the quarantine are not touched by a batch that has nothing for them."""
    world.write(0, EVENTS[1])
    assert not {"before_late", "before_quarantine"} & set(world.script.passed)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_same_batch_twice_is_written_once(world, is_first):
    """A batch that comes again, to a writer that has just started or to one that has not, changes nothing."""
    first = world.write(0, *EVENTS, NO_EVENT)
    versions = world.lake.version()
    assert world.write(0, *EVENTS, NO_EVENT, is_first=is_first) == first
    assert world.lake.version() == versions
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9])
    if is_first:
        assert world.said[-1] == "Batch 0 was committed before; only what it lacks is written."


@pytest.mark.parametrize(("late", "kept", "folded"), [("fold", [1], [1, 200]), ("keep", [1], [200]), ("ignore", [], [200])])
def test_what_becomes_of_late_rows(late, kept, folded):
    """`fold` keeps them and joins them to their partition's next launch, `keep` only keeps them, `ignore` counts them."""
    world = World(spec_with(latest_wins_by=["updated_at"], live={"path": "events", "starts": "2024-02-29", "late": late}))
    receipt = world.write(0, *EVENTS)
    assert receipt.late_rows == 1
    assert world.late() == kept
    world.launch("2024-02-28")
    assert world.orders("2024-02-28") == folded
    newest = world.lake.published()["2024-02-28"]
    assert (newest.partition.late_rows, newest.receipt.late_version) == ((1, 1) if late == "fold" else (0, None))


def test_folding_twice_is_the_same(world):
    """A launch joins all late rows of a partition, always: the same launch again gives the same content."""
    world.write(0, EVENTS[0], order(200, "2024-02-28T06:00", version=3))
    world.launch("2024-02-28")
    content = world.lake.content()
    assert world.orders("2024-02-28") == [1, 200]
    assert [row["amount"] for row in world.lake.versions[-1].rows["2024-02-28"] if row["order_id"] == 200] == [2003]
    world.launch("2024-02-28")
    assert world.lake.content() == content


def test_a_partition_with_newer_late_rows_is_missing(world):
    """`only: missing` launches what has late rows that its receipt does not know, and nothing else."""
    world.launch("2024-02-27", "2024-02-28")
    world.write(0, EVENTS[0])
    assert published(world.launch("2024-02-27", "2024-02-28", only="missing")) == ["2024-02-28"]
    assert published(world.launch("2024-02-27", "2024-02-28", only="missing")) == []


def test_a_table_without_a_stream_is_not_written_live():
    """There is no fence, so no batch can be parted."""
    world = World(ORDERS, stream="")
    for attempt in (world.claim, lambda: world.write(0, *EVENTS), lambda: world.move("2024-03-01")):
        with pytest.raises(StreamMismatchError) as caught:
            attempt()
        assert str(caught.value) == (
            "`bronze/orders` has no live stream, and so no fence. Nothing was changed. "
            "Add `live:` to its spec: the folder of its events, and the day from which on the stream owns them."
        )
    assert world.lake.version() == 0


# -- events from the future --------------------------------------------------------------------------------------------


def test_events_from_the_future_are_quarantined(world):
    """From `max_future_seconds` after now on it is a wrong clock; a microsecond earlier it is an event."""
    now = world.clock.now()
    sold = [{**EVENTS[3], "order_id": n, "created_at": now + timedelta(hours=1, microseconds=n)} for n in (-1, 0, 1)]
    world.write(0, *sold)
    assert (world.orders(), world.quarantined()) == ([-1], [0, 1])


@pytest.mark.parametrize("point", ["after_append", "before_late", "after_late", "before_quarantine", "after_quarantine"])
def test_a_replay_quarantines_what_the_first_attempt_did(world, point):
    """Between a crash and its replay time goes by; the receipt's instant counts, not the clock's."""
    soon = order(5, "2024-03-10T02:00")
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, EVENTS[0], EVENTS[3], soon)
    world.clock.now_utc += timedelta(days=1)
    receipt = world.write(0, EVENTS[0], EVENTS[3], soon)
    assert receipt.until == at("2024-03-10", 1)
    assert (world.orders(), world.late(), world.quarantined()) == ([4], [1], [5])


def test_an_attempt_that_was_not_committed_does_not_fix_the_instant(world):
    """If nothing was committed before the crash, the replay goes by its own clock, in the table and in the quarantine alike."""
    soon = order(5, "2024-03-10T02:00")
    world.script.at("during_append", raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, soon)
    world.clock.now_utc += timedelta(days=1)
    world.write(0, soon)
    assert (world.orders(), world.quarantined()) == ([5], [])


# -- history and live side by side -------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before", *HISTORY_POINTS, "after"])
def test_a_batch_beside_a_launch(world, point):
    """A batch before, during or after a launch disturbs it in nothing: no attempt is repeated, and both are in the table whole."""
    if point == "before":
        world.write(0, *EVENTS)
    elif point != "after":
        world.script.at(point, lambda: world.write(0, *EVENTS))
    outcomes = world.launch("2024-02-27", "2024-02-28")
    if point == "after":
        world.write(0, *EVENTS)
    assert published(outcomes) == ["2024-02-27", "2024-02-28"]
    assert world.slept == world.clock.slept_seconds == []
    world.check_live_commits()
    world.launch("2024-02-28")
    assert world.orders() == [1, 2, 3, 4, 100, 200]


@pytest.mark.parametrize("point", BATCH_POINTS)
def test_a_launch_beside_a_batch(world, point):
    """The other way round: a launch in the midst of a batch, at any of its points, is published at once, and so is the batch."""
    world.script.at(point, lambda: world.launch("2024-02-27", "2024-02-28"))
    world.write(0, *EVENTS, NO_EVENT)
    assert world.slept == world.clock.slept_seconds == []
    assert world.orders("2024-02-27") == [100]
    assert world.orders("2024-02-28") == ([1, 200] if point in ("after_late", "before_quarantine", "after_quarantine") else [200])
    world.launch("2024-02-28")
    assert world.orders() == [1, 2, 3, 4, 100, 200]
    assert (world.late(), world.quarantined()) == ([1], [9])


def test_history_leaves_out_what_is_live(world):
    """Of a launch across the fence, the partition that ends at it is published, and the one that starts there is left out."""
    world.write(0, *EVENTS)
    outcomes = world.launch("2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01")
    assert published(outcomes) == ["2024-02-27", "2024-02-28"]
    why = "they are live: the fence is at 2024-02-29T00:00:00+00:00"
    assert left_out(outcomes) == [("2024-02-29", why), ("2024-03-01", why)]
    assert world.orders() == [1, 2, 3, 4, 100, 200]


def test_history_of_live_partitions_only_is_refused(world):
    """A launch that names nothing but live partitions is an error, before anything is read."""
    world.write(0, *EVENTS)
    with pytest.raises(LivePartitionsError, match="partition `2024-03-01` and those after it are live"):
        world.launch("2024-03-01")
    assert "stage" not in world.script.passed
    assert world.orders() == [2, 3, 4]


@pytest.mark.parametrize("point", HISTORY_POINTS)
def test_a_fence_that_moves_during_a_launch(world, point):
    """What the launch left out stays left out; what it publishes was history before and is history now."""
    world.write(0, *EVENTS)
    world.script.at(point, lambda: world.move("2024-03-02"))
    outcomes = world.launch("2024-02-28", "2024-02-29")
    assert published(outcomes) == ["2024-02-28"]
    assert [key for key, _ in left_out(outcomes)] == ["2024-02-29"]
    assert len(world.slept) == (1 if point == "during_save" else 0)
    assert world.orders() == [1, 2, 3, 4, 200]


def test_a_sealed_partition_is_launched_like_any_other(world):
    """After the fence moved past it, a partition's content is its source's and its late rows', each key once, the newest."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    world.write(1, order(6, "2024-03-01T11:00"), order(7, "2024-03-02T11:00"))
    assert world.late() == [1, 6]
    world.source.files["2024-03-01"] = [order(3, "2024-03-01T10:00", version=2), order(400, "2024-03-01T06:00")]
    assert published(world.launch("2024-03-01")) == ["2024-03-01"]
    assert world.orders("2024-03-01") == [3, 6, 400]
    assert [row["amount"] for row in world.lake.versions[-1].rows["2024-03-01"] if row["order_id"] == 3] == [32]


def test_a_sealed_partition_loses_no_live_row(world):
    """If the source lacks a row that the live stream wrote, the partition is refused and stays as it is."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    (outcome,) = world.launch("2024-03-01")
    assert isinstance(outcome, Refused)
    assert [finding.rule for finding in outcome.verdict.findings] == ["live_rows_are_covered"]
    assert world.orders("2024-03-01") == [3]


# -- a fence that moves while a batch is written -----------------------------------------------------------------------


def test_moving_the_fence(world):
    """Two commits: one that ends the epoch and names the target, one that stores fence, epoch and last batch."""
    world.write(4, *EVENTS)
    before = world.live.fence()
    move = world.move(at("2024-03-01", 1))
    assert move.before == before
    assert move.after == world.live.fence() == Fence(at("2024-03-02"), epoch=3, last_batch=4, stream=STREAM)
    closing = world.live.receipts()[max(world.live.receipts())]
    assert (closing.kind, closing.epoch, closing.batch, closing.fence) == ("close", 2, CLOSED, at("2024-03-02"))
    assert world.lake.versions[-2].transaction == (f"live:{STREAM}:2", CLOSED)
    assert world.lake.versions[-1].touched == world.lake.versions[-2].touched == frozenset()
    world.check_fences()


def test_moving_the_fence_to_where_it_is_does_nothing(world):
    """Neither an epoch nor a version is used up."""
    world.write(0, *EVENTS)
    version = world.lake.version()
    move = world.move("2024-02-29")
    assert move.before == move.after
    assert world.lake.version() == version


def test_a_fence_without_a_stream_is_moved_in_one_step():
    """Nobody can have written, so there is no epoch to end; whoever claims the table next begins a new one."""
    world = World(stream="")
    assert world.move("2024-03-01").after == Fence(at("2024-03-01"), epoch=2)
    assert world.live.receipts() == {}
    assert world.claim() == Fence(at("2024-03-01"), epoch=3, stream=STREAM)
    world.check_fences()


@pytest.mark.parametrize(("day", "error"), [("2024-02-27", FenceError), (datetime(2024, 3, 1), NaiveInstantError)])
def test_a_move_that_cannot_be_made_does_not_end_the_epoch(world, day, error):
    """Back, or to an instant without a zone: refused before the first step, and live writing goes on."""
    version = world.lake.version()
    with pytest.raises(error):
        world.move(day)
    assert world.lake.version() == version
    world.write(0, *EVENTS)
    assert world.orders() == [2, 3, 4]


@pytest.mark.parametrize("point", ["before_append", "during_append"])
def test_a_batch_that_read_the_old_fence_cannot_commit(world, point):
    """Fence read, fence moved, then the append: it is refused, the batch is split again, and the rows between are late."""
    world.script.at(point, lambda: world.move("2024-03-02"))
    receipt = world.write(0, *EVENTS)
    assert (receipt.epoch, receipt.fence) == (3, at("2024-03-02"))
    assert world.orders() == [4]
    assert world.late() == [1, 2, 3]
    world.check_live_commits()
    world.check_fences()
    assert sum(world.clock.slept_seconds) <= 1


@pytest.mark.parametrize("point", ["before_append", "during_append"])
def test_a_batch_that_read_the_old_fence_twice(world, point):
    """The fence may move again while the batch is tried again."""
    world.script.at(point, lambda: world.move("2024-03-01"))
    world.script.at(point, lambda: world.move("2024-03-02"), visit=2)
    receipt = world.write(0, *EVENTS)
    assert (receipt.epoch, receipt.fence) == (4, at("2024-03-02"))
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])
    world.check_live_commits()


@pytest.mark.parametrize("point", BATCH_POINTS)
def test_a_move_at_any_point_of_a_batch(world, point):
    """Whenever the fence moves, each row is in the table or in the late table, and in one of them once."""
    world.script.at(point, lambda: world.move("2024-03-02"))
    world.write(0, *EVENTS, NO_EVENT)
    assert sorted(world.orders() + world.late()) == [1, 2, 3, 4]
    assert world.quarantined() == [9]
    world.check_live_commits()
    world.write(0, *EVENTS, NO_EVENT)
    world.write(1, order(5, "2024-03-01T12:00"), order(6, "2024-03-02T12:00"), is_first=False)
    assert sorted(world.orders() + world.late()) == [1, 2, 3, 4, 5, 6]
    assert world.orders("2024-03-02") == [4, 6]
    world.check_live_commits()
    world.check_fences()


@pytest.mark.parametrize("point", MOVE_POINTS)
def test_a_batch_at_any_point_of_a_move(world, point):
    """Before the first step a batch is of the old epoch; between the two it waits and is given up; after them it is of the new one."""
    world.pace = world.clock.pace(world.said.append, wait_seconds=0)
    stopped = []

    def write():
        try:
            world.write(0, *EVENTS)
        except FenceMoveInterruptedError as error:
            stopped.append(error)

    world.script.at(point, write, visit=2 if point == "find" else 1)
    world.move("2024-03-02")
    assert len(stopped) == (point in ("after_close", "before_store", "during_store", "find"))
    receipt = world.write(0, *EVENTS)
    assert sorted(world.orders() + world.late()) == [1, 2, 3, 4]
    assert receipt.epoch == (2 if point in ("before_close", "during_close") else 3)
    world.check_live_commits()
    world.check_fences()


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("point", ["after_append", "before_late", "after_late", "before_quarantine"])
def test_a_batch_of_the_old_epoch_that_is_replayed_in_the_new(world, point, is_first):
    """Killed after its commit, the fence moved, started again: nothing is written twice, and what is late was parted by the OLD fence."""
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, *EVENTS, NO_EVENT)
    world.move("2024-03-02")
    receipt = world.write(0, *EVENTS, NO_EVENT, is_first=is_first)
    assert (receipt.epoch, receipt.fence) == (2, START)
    assert world.orders() == [2, 3, 4]
    assert world.late() == [1]
    assert world.quarantined() == [9]
    world.check_live_commits()


@pytest.mark.parametrize("point", ["find", "before_append", "during_append"])
def test_a_batch_that_was_not_committed_is_parted_by_the_new_fence(world, point):
    """Killed before its commit, the fence moved, started again: it is a batch of the new epoch."""
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, *EVENTS)
    world.move("2024-03-02")
    assert world.write(0, *EVENTS).epoch == 3
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


@pytest.mark.parametrize("point", BATCH_POINTS)
def test_a_crash_at_any_point_of_a_batch(world, point):
    """Killed anywhere and started again, a batch is written once, and so is the next."""
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, *EVENTS, NO_EVENT)
    world.claim()
    world.write(0, *EVENTS, NO_EVENT)
    world.write(1, order(5, "2024-03-01T12:00"), is_first=False)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4, 5], [1], [9])
    world.check_live_commits()


def test_a_batch_whose_receipt_is_gone_is_not_guessed_at(world):
    """An earlier epoch committed it, but the log no longer says where its late rows were parted: an error, not a guess."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    del world.lake.versions[2]
    with pytest.raises(ReceiptError) as caught:
        world.write(0, *EVENTS)
    assert str(caught.value) == (
        "`bronze/orders`: batch 0 of stream `a1` was committed in an earlier epoch, and the log no longer has its receipt, which says "
        "where its late rows were parted. Its rows at or after the fence of then are in the table; its late rows may not be in the late "
        "table. Seal the live partitions (`backfill-assets fence bronze/orders --at ...`), launch them from their source, and start a "
        "new stream: `backfill-assets live bronze/orders --new-stream`."
    )
    assert world.late() == [1]


# -- a move that is not ended ------------------------------------------------------------------------------------------


def interrupt(world, day="2024-03-02"):
    """Begin a move and crash between its two steps."""
    world.script.at("after_close", raising(Killed()))
    with pytest.raises(Killed):
        world.move(day)


def test_a_batch_waits_for_a_move_and_then_says_who_is_gone(world):
    """Between the two steps nothing is written; after a minute the writer ends and says which command ends the move."""
    interrupt(world)
    version = world.lake.version()
    with pytest.raises(FenceMoveInterruptedError) as caught:
        world.write(0, *EVENTS, NO_EVENT)
    assert str(caught.value) == (
        "`bronze/orders`: the fence was about to be moved from `2024-02-29T00:00:00+00:00` to `2024-03-02T00:00:00+00:00`, and whoever "
        "moved it did not end it. Live writing has stopped; nothing is lost, the events wait where they landed. End the move: "
        "`backfill-assets fence bronze/orders --at 2024-03-02T00:00:00+00:00`; then start the writer again."
    )
    assert 60 <= sum(world.clock.slept_seconds) <= 62
    assert world.said[-1] == "Batch 0 waits: the fence is being moved."
    assert world.lake.version() == version
    assert (world.orders(), world.late(), world.quarantined()) == ([], [], [])


def test_the_same_command_ends_an_interrupted_move(world):
    """Run again, it does the second step alone; then the writer goes on at the new fence."""
    world.write(0, EVENTS[2])
    interrupt(world)
    version = world.lake.version()
    assert world.move("2024-03-02").after == Fence(at("2024-03-02"), epoch=3, last_batch=0, stream=STREAM)
    assert world.lake.version() == version + 1
    world.write(1, *EVENTS[3:], order(5, "2024-03-01T12:00"))
    assert (world.orders(), world.late()) == ([3, 4], [5])
    world.check_fences()


def test_a_command_for_a_later_place_ends_an_interrupted_move_first(world):
    """The move that was begun is ended, and then the one that was asked for is made, in an epoch of its own."""
    interrupt(world)
    move = world.move("2024-03-03")
    assert (move.before.epoch, move.after) == (2, Fence(at("2024-03-03"), epoch=4, stream=STREAM))
    assert [fence.at_utc for fence in world.fences()[-3:]] == [at("2024-03-02"), at("2024-03-02"), at("2024-03-03")]
    world.check_fences()


def test_a_command_for_an_earlier_place_ends_an_interrupted_move_and_is_refused(world):
    """What was begun cannot be taken back: the fence stands where that move put it, and the refusal says so."""
    interrupt(world)
    with pytest.raises(FenceError) as caught:
        world.move("2024-03-01")
    assert "the fence is at `2024-03-02T00:00:00+00:00` and cannot be moved back to `2024-03-01T00:00:00+00:00`" in caught.value.what
    assert caught.value.state == "The fence stays where it is."
    assert world.live.fence() == Fence(at("2024-03-02"), epoch=3, stream=STREAM)
    world.write(0, *EVENTS)
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


def test_a_writer_that_starts_ends_an_interrupted_move(world):
    """The writer itself does the second step when it claims the table, so that a restart is enough."""
    interrupt(world)
    assert world.claim() == Fence(at("2024-03-02"), epoch=3, stream=STREAM)
    world.write(0, *EVENTS)
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


def test_a_batch_goes_on_when_the_move_is_ended_in_time(world):
    """While the batch waits somebody ends the move: the batch is split at the new fence, without an error."""
    interrupt(world)
    world.script.at("before_append", lambda: world.move("2024-03-02"), visit=20)
    assert world.write(0, *EVENTS).epoch == 3
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


@pytest.mark.parametrize("point", MOVE_POINTS)
def test_a_crash_at_any_point_of_a_move(world, point):
    """Killed anywhere, the same command ends the move; nothing is lost, and no batch is written twice."""
    world.write(0, EVENTS[0], EVENTS[2])
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.move("2024-03-02")
    assert world.live.fence() in (Fence(START, 2, -1, STREAM), Fence(at("2024-03-02"), 3, 0, STREAM))
    assert world.move("2024-03-02").after == Fence(at("2024-03-02"), 3, 0, STREAM)
    world.write(0, EVENTS[0], EVENTS[2])
    world.write(1, EVENTS[1], EVENTS[3])
    assert (world.orders(), world.late()) == ([3, 4], [1, 2])
    world.check_fences()
    world.check_live_commits()


@pytest.mark.parametrize("point", ["after_close", "before_store", "during_store", "after_store"])
def test_history_goes_on_while_a_move_is_not_ended(world, point):
    """Between the two steps the fence is the old one for history too; after them the new one."""
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.move("2024-03-01")
    outcomes = world.launch("2024-02-28", "2024-02-29")
    assert published(outcomes) == (["2024-02-28", "2024-02-29"] if point == "after_store" else ["2024-02-28"])


def test_the_last_batch_is_the_newest_of_the_stream(world):
    """An epoch without a batch keeps the last batch of the one before; the epoch that ends counts what it committed."""
    assert world.move("2024-03-01").after.last_batch == -1
    world.write(0)
    world.write(1)
    assert world.move("2024-03-02").after.last_batch == 1
    assert world.move("2024-03-03").after.last_batch == 1
    world.write(2)
    assert world.move("2024-03-04").after.last_batch == 2


# -- two who move ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", MOVE_POINTS)
@pytest.mark.parametrize(("mine", "theirs"), [("2024-03-01", "2024-03-02"), ("2024-03-02", "2024-03-01"), ("2024-03-02", "2024-03-02")])
def test_two_who_move_the_fence_at_once(world, point, mine, theirs):
    """It never goes back, no epoch comes twice, and each ends at its place or is told that the fence is beyond it."""
    world.write(0, *EVENTS)

    def move(day):
        try:
            assert world.move(day).after.at_utc >= at(day)
        except FenceError:
            assert day < max(mine, theirs)

    world.script.at(point, lambda: move(theirs))
    move(mine)
    fence = world.live.fence()
    assert fence is not None
    assert fence.at_utc == at(max(mine, theirs))
    assert fence.last_batch == 0
    world.check_fences()
    world.write(1, order(5, "2024-03-01T12:00"), order(6, "2024-03-03T12:00"))
    assert sorted(world.orders() + world.late()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("point", ["before_store", "during_store"])
def test_two_who_move_a_fence_without_a_stream(point):
    """Here there is one step only; still neither undoes the other."""
    world = World(stream="")
    world.script.at(point, lambda: world.move("2024-03-03"))
    with pytest.raises(FenceError, match="cannot be moved back"):
        world.move("2024-03-01")
    assert world.live.fence() == Fence(at("2024-03-03"), epoch=2)


# -- conflicts and answers that are lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [conflict(), LOCKED], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("point", ["before_append", "during_append", "before_late", "before_quarantine"])
def test_a_batch_outlasts_conflicts(world, point, error):
    """However often a commit fails for another writer, it is made in the end: a live writer does not die of it."""
    for visit in range(1, 31):
        world.script.at(point, raising(error), visit=visit)
    world.write(0, *EVENTS, NO_EVENT)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9])
    assert world.clock.slept_seconds == [0.2] * 30
    assert len(world.said) == 30
    world.check_live_commits()


@pytest.mark.parametrize("point", ["before_close", "during_close", "after_close", "before_store", "during_store", "after_store"])
def test_a_move_outlasts_conflicts(world, point):
    """A mover tries each step until it is made; a lost answer is no second move."""
    world.write(0, *EVENTS)
    for visit in range(1, 11):
        world.script.at(point, raising(conflict()), visit=visit)
    assert world.move("2024-03-02").after == Fence(at("2024-03-02"), 3, 0, STREAM)
    world.check_fences()
    assert [receipt.kind for receipt in world.live.receipts().values()] == ["batch", "close"]


@pytest.mark.parametrize("point", ["after_append", "after_late", "after_quarantine"])
@pytest.mark.parametrize("error", [conflict(), LOCKED], ids=lambda error: type(error).__name__)
def test_a_lost_answer_is_no_second_commit(world, point, error):
    """The commit is there, the answer says otherwise: trying again writes nothing twice, for the transaction is used up."""
    world.script.at(point, raising(error))
    receipt = world.write(0, *EVENTS, NO_EVENT)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9])
    assert list(world.live.receipts().values()) == [receipt]


@pytest.mark.parametrize("point", ["after_append", "after_late", "after_quarantine"])
def test_a_lost_answer_that_ends_the_writer(world, point):
    """An error that no retry helps ends the writer; the batch comes again, and is not written twice."""
    world.script.at(point, raising(OSError("no answer")))
    with pytest.raises(OSError, match="no answer"):
        world.write(0, *EVENTS, NO_EVENT)
    world.write(0, *EVENTS, NO_EVENT)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9])
    world.check_live_commits()


def test_a_long_wait_for_a_lock_is_no_interrupted_move(world):
    """The minute for a move begins when the move is seen: a batch that waited long for something else still waits for it."""

    def busy():
        world.clock.sleep(300)
        raise LOCKED

    world.script.at("before_append", busy)
    world.script.at("before_append", lambda: interrupt(world), visit=2)
    world.script.at("before_append", lambda: world.move("2024-03-02"), visit=4)
    assert world.write(0, *EVENTS).epoch == 3
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


def test_each_move_has_its_own_minute(world):
    """Two moves one after the other, each of them ended in time, do not add up to one that nobody ended."""
    world.pace = world.clock.pace(world.said.append, wait_seconds=5)
    interrupt(world, "2024-03-01")

    def end_and_begin():
        world.move("2024-03-01")
        interrupt(world, "2024-03-02")

    world.script.at("before_append", end_and_begin, visit=5)
    world.script.at("before_append", lambda: world.move("2024-03-02"), visit=10)
    assert world.write(0, *EVENTS).fence == at("2024-03-02")
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


# -- two who write -----------------------------------------------------------------------------------------------------


def test_another_stream_is_refused(world):
    """Two streams would write the same events twice: neither a claim nor a batch of another one gets in."""
    for attempt in (lambda: world.claim("b2"), lambda: world.write(0, *EVENTS, stream="b2")):
        with pytest.raises(StreamMismatchError) as caught:
            attempt()
        assert str(caught.value) == (
            "`bronze/orders` belongs to stream `a1`, and this is `b2`: two streams would write the same events twice. Nothing was written. "
            "Start the writer with the checkpoint of that stream. If it is lost: seal the live partitions, launch them from their "
            "source, then `backfill-assets live bronze/orders --new-stream`."
        )
    assert world.live.receipts() == {}


def test_a_batch_without_a_claim_is_refused():
    """A table that belongs to no stream yet takes rows of none."""
    world = World(stream="")
    with pytest.raises(StreamMismatchError, match="`bronze/orders` belongs to stream `none`, and this is `a1`"):
        world.write(0, *EVENTS)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("point", BATCH_POINTS)
def test_two_writers_of_one_stream(world, point, is_first):
    """Two processes with the same checkpoint have the same batches: at whatever point the other comes, each is written once."""
    world.script.at(point, lambda: [world.write(n, *EVENTS[2 * n : 2 * n + 2], NO_EVENT, is_first=is_first) for n in (0, 1)])
    world.write(0, *EVENTS[:2], NO_EVENT)
    world.write(1, *EVENTS[2:], NO_EVENT, is_first=False)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9, 9])
    world.check_live_commits()


# -- whose table it is -------------------------------------------------------------------------------------------------


def test_the_first_claim_begins_an_epoch():
    """A stream that claims a new table owns it; claiming it again changes nothing."""
    world = World(stream="")
    assert world.claim() == Fence(START, epoch=2, last_batch=-1, stream=STREAM)
    version = world.lake.version()
    assert world.claim() == world.claim(is_new=True) == world.live.fence()
    assert world.lake.version() == version


@pytest.mark.parametrize("point", ["before_store", "during_store", "after_store"])
def test_two_who_claim_at_once(point):
    """One of them owns the table, the other is told; they do not take turns."""
    world = World(stream="")
    won_by_other = point != "after_store"

    def other():
        if won_by_other:
            world.claim("b2")
        else:
            with pytest.raises(StreamMismatchError):
                world.claim("b2")

    world.script.at(point, other)
    if won_by_other:
        with pytest.raises(StreamMismatchError, match="belongs to stream `b2`, and this is `a1`"):
            world.claim()
    else:
        world.claim()
    fence = world.live.fence()
    assert fence is not None
    assert fence.stream == ("b2" if won_by_other else STREAM)
    world.check_fences()


@pytest.mark.parametrize("point", ["before_store", "during_store"])
def test_a_move_does_not_make_a_claim_fail(point):
    """The fence of a table that nobody owns is moved while it is claimed: the claim is made at the new place."""
    world = World(stream="")
    world.script.at(point, lambda: world.move("2024-03-01"))
    assert world.claim() == Fence(at("2024-03-01"), epoch=3, stream=STREAM)


def test_a_new_stream_is_refused_while_live_rows_are_there(world):
    """It would write them again. The refusal counts them; the old stream goes on."""
    world.write(0, *EVENTS)
    with pytest.raises(StreamMismatchError) as caught:
        world.claim("b2", is_new=True)
    assert str(caught.value) == (
        "`bronze/orders`: 3 rows at or after the fence (`2024-02-29T00:00:00+00:00`) are of stream `a1`, and a new stream would write "
        "them again. Nothing was written; the events wait where they landed. "
        "Seal them first: `backfill-assets fence bronze/orders --at ...`, at an instant after the newest of them."
    )
    world.write(1, order(5, "2024-03-01T12:00"), is_first=False)
    assert world.orders() == [2, 3, 4, 5]
    world.check_fences()


def test_a_new_stream_is_allowed_after_sealing(world):
    """Once nothing lies at or after the fence, a new stream starts over with every event, and what is sealed comes late."""
    world.write(0, *EVENTS)
    world.move("2024-03-03")
    fence = world.claim("b2", is_new=True)
    assert (fence.at_utc, fence.stream, fence.last_batch) == (at("2024-03-03"), "b2", -1)
    with pytest.raises(StreamMismatchError):
        world.write(1, order(5, "2024-03-03T12:00"))
    world.write(0, *EVENTS, order(5, "2024-03-03T12:00"), stream="b2")
    assert world.orders() == [2, 3, 4, 5]
    world.source.files["2024-03-01"] = [EVENTS[2], order(400, "2024-03-01T06:00")]
    assert published(world.launch("2024-03-01")) == ["2024-03-01"]
    assert world.orders("2024-03-01") == [3, 400]
    world.check_fences()


@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("point", ["find", "before_close", "during_close", "after_close", "count", "before_store", "during_store"])
def test_the_old_stream_writes_while_a_new_one_takes_over(world, point, visit):
    """At whatever point of the takeover it writes: no event is in the table of both."""
    world.pace = world.clock.pace(world.said.append, wait_seconds=0)

    def write():
        try:
            world.write(0, *EVENTS)
        except FenceMoveInterruptedError:
            world.claim()  # as its next start would
            world.write(0, *EVENTS)

    world.script.at(point, write, visit=visit)
    try:
        world.claim("b2", is_new=True)
    except StreamMismatchError:
        owner = STREAM
    else:
        owner = "b2"
    fence = world.live.fence()
    assert fence is not None
    assert fence.stream == owner
    world.write(0, *EVENTS, stream=owner)
    assert world.orders() == [2, 3, 4]
    world.check_live_commits()
    world.check_fences()


@pytest.mark.parametrize("how", [interrupt, World.move], ids=["begun", "made"])
@pytest.mark.parametrize("point", ["before_close", "during_close", "count", "before_store", "during_store"])
def test_a_move_while_a_new_stream_takes_over(world, point, how):
    """A move that is begun or made in the midst of a takeover is not lost by it."""

    def move():
        how(world, "2024-03-02")

    world.script.at(point, move)
    assert world.claim("b2", is_new=True).stream == "b2"
    assert world.move("2024-03-02").after.at_utc == at("2024-03-02")
    world.write(0, *EVENTS, stream="b2")
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])
    world.check_fences()
    world.check_live_commits()


@pytest.mark.parametrize("point", ["before_append", "during_append"])
def test_a_new_stream_takes_over_while_the_old_one_writes(world, point):
    """A batch of the old stream that read the fence before the takeover cannot commit after it."""
    world.script.at(point, lambda: world.claim("b2", is_new=True))
    with pytest.raises(StreamMismatchError, match="belongs to stream `b2`, and this is `a1`"):
        world.write(0, *EVENTS)
    world.write(0, *EVENTS, stream="b2")
    assert (world.orders(), world.late()) == ([2, 3, 4], [1])
    world.check_live_commits()


@pytest.mark.parametrize("point", ["before_close", "after_close", "count", "before_store", "during_store", "after_store"])
def test_a_crash_during_a_takeover(world, point):
    """Killed anywhere, the table belongs to one of the two, which can write; and the takeover can be run again."""
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.claim("b2", is_new=True)
    fence = world.live.fence()
    assert fence is not None
    world.claim(fence.stream)
    world.write(0, EVENTS[0], stream=fence.stream)
    assert world.claim("b2", is_new=True).stream == "b2"
    world.write(1, *EVENTS[1:], stream="b2")
    assert world.orders() == [2, 3, 4]
    world.check_live_commits()
    world.check_fences()


# -- receipts ----------------------------------------------------------------------------------------------------------

RECEIPT = LiveReceipt(
    *("id", "bronze/orders", STREAM, 2, 7, "2024-02-29T00:00:00+00:00", "2024-03-10T01:00:00+00:00"),
    rows=3,
    late_rows=1,
    landed_utc=("2024-03-09T23:00:00Z", "2024-03-09T23:30:00Z"),
)


@pytest.mark.parametrize(
    "receipt", [RECEIPT, LiveReceipt("id", "bronze/orders", "a", 1, CLOSED, "2024-03-01T00:00:00+00:00", kind="close")]
)
def test_a_live_receipt_survives_its_json(receipt):
    """What is stored in a commit is read back the same."""
    assert live_receipt_from_json(receipt.to_json()) == receipt


def test_the_form_of_a_live_receipt_does_not_change():
    """Other versions read it: a change of it needs a new format number."""
    assert RECEIPT.to_json() == (
        '{"backfill_assets_live":1,"receipt_id":"id","table":"bronze/orders","stream":"a1","epoch":2,"batch":7,'
        '"fence_utc":"2024-02-29T00:00:00+00:00","until_utc":"2024-03-10T01:00:00+00:00","kind":"batch","rows":3,"late_rows":1,'
        '"quarantined_rows":0,"landed_utc":["2024-03-09T23:00:00Z","2024-03-09T23:30:00Z"]}'
    )


@pytest.mark.parametrize("text", [None, "", "backfill_assets_live", '["backfill_assets_live"]', '{"backfill_assets_live": 1', '{"x": 1}'])
def test_the_metadata_of_others_is_no_live_receipt(text):
    """A commit without metadata, or with somebody else's, has no receipt, even if our name is in it."""
    assert live_receipt_from_json(text) is None


def test_the_two_kinds_of_receipts_are_not_taken_for_each_other(world):
    """A launch's receipt is no live one, and a batch's none of a launch."""
    world.write(0, *EVENTS)
    world.launch("2024-02-28")
    assert set(world.live.receipts()) == {2}
    assert set(world.lake.receipts()) == {3}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"backfill_assets_live":1', '"backfill_assets_live":2', "format 2"),
        ('"epoch":2,', "", "missing 1 required positional argument: 'epoch'"),
        ('"epoch":2,', '"epoch":2,"colour":3,', "unexpected keyword argument 'colour'"),
    ],
)
def test_a_live_receipt_that_cannot_be_read_is_an_error(old, new, why):
    """A receipt of another format, or a damaged one, is never taken for somebody else's metadata."""
    with pytest.raises(ReceiptError) as caught:
        live_receipt_from_json(RECEIPT.to_json().replace(old, new))
    assert why in caught.value.what
    assert caught.value.remedy == "This version reads format 1; use the version of backfill_assets that wrote the commit, or a newer one."


def test_rows_are_as_they_came(world):
    """Nothing is changed on the way: the rows in the table and in the late table are those of the batch."""
    world.write(0, *EVENTS)
    there = [row for rows in world.lake.versions[-1].rows.values() for row in rows] + world.lake.late_rows
    assert sorted(map(hash_of, there)) == sorted(map(hash_of, EVENTS))


def test_conflicts_are_what_the_lake_raises():
    """The fakes raise what the real lake raises."""
    assert isinstance(conflict(), CommitConflictError)


# -- which partitions may not lose a row -------------------------------------------------------------------------------


def test_a_partition_that_was_put_back_still_loses_no_live_row(world):
    """A publish that was taken back does not count: the live rows that are there again must be in the source."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    world.source.files["2024-03-01"] = [order(400, "2024-03-01T06:00"), EVENTS[2]]
    world.lake.damage = lambda rows: rows[1:]
    with pytest.raises(StagedContentLostError):
        world.launch("2024-03-01")
    world.lake.damage = None
    world.source.files["2024-03-01"] = [order(400, "2024-03-01T06:00")]
    world.launch("2024-03-01")
    assert 3 in world.orders("2024-03-01")


def test_history_from_before_the_stream_does_not_vouch_for_live_rows():
    """A partition that history had filled before the table got its stream is looked at all the same."""
    world = World(stream="")
    world.lake.versions[0] = type(world.lake.versions[0])({})
    world.launch("2024-03-01")
    world.lake.add_version({}, fence=Fence(START))
    world.claim()
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    world.launch("2024-03-01")
    assert 3 in world.orders("2024-03-01")


def test_a_later_start_in_the_spec_unseals_nothing(world):
    """Whoever edits `live.starts` after the fence was moved does not take the audit away."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    changed = spec_with(latest_wins_by=["updated_at"], live={"path": "events", "starts": "2024-03-02"})
    world.spec = world.lake.spec = world.source.spec = changed
    world.launch("2024-03-01")
    assert 3 in world.orders("2024-03-01")


def test_rows_go_only_if_the_launch_says_so(world):
    """`discard_uncovered_rows` is the one way to overwrite a live row that the source lacks."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    assert isinstance(world.launch("2024-03-01")[-1], Refused)
    world.launch("2024-03-01", discard_uncovered_rows=True)
    assert 3 not in world.orders("2024-03-01")
