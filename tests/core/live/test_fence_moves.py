"""The fence is moved: at any point of a batch, by two at once, and always forward."""

from __future__ import annotations

from datetime import datetime

import pytest

from backfill_assets.core.live.receipts import CLOSED
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import FenceError, NaiveInstantError
from tests.core.live.world import EVENTS, NO_EVENT, STREAM, World, at
from tests.support.fake_live import order
from tests.support.fakes import BATCH_POINTS, MOVE_POINTS


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


# -- a fence that moves while a batch is written -----------------------------------------------------------------------


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


# -- two who move ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", MOVE_POINTS)
@pytest.mark.parametrize(
    ("mine", "theirs"), [("2024-03-01", "2024-03-02"), ("2024-03-02", "2024-03-01"), ("2024-03-02", "2024-03-02")]
)
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
    assert fence.at_utc == at(max(mine, theirs))
    assert fence.last_batch == 0
    world.check_fences()
    world.write(1, order(5, "2024-03-01T12:00"), order(6, "2024-03-03T12:00"))
    assert sorted(world.orders() + world.late()) == [1, 2, 3, 4, 5, 6]
