"""A move of the fence that is begun and not ended: who waits for it, who ends it, and that nothing is lost."""

from __future__ import annotations

import pytest

from backfill_assets.core.live.receipts import CLOSED
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import FenceError, FenceMoveInterruptedError, ReceiptError
from tests.core.live.world import EVENTS, NO_EVENT, START, STREAM, at, forget, interrupt
from tests.support.actors import Killed
from tests.support.fake_live import order
from tests.support.fakes import MOVE_POINTS, raising

# -- who waits for it --------------------------------------------------------------------------------------------------


def test_a_batch_waits_for_a_move_and_then_says_who_is_gone(world):
    """Between the two steps nothing is written; after a minute the writer ends and says which command ends the move."""
    interrupt(world)
    version = world.lake.version()
    with pytest.raises(FenceMoveInterruptedError) as caught:
        world.write(0, *EVENTS, NO_EVENT)
    assert str(caught.value) == (
        "`bronze/orders`: the fence was about to be moved from `2024-02-29T00:00:00+00:00` to `2024-03-02T00:00:00+00:00`, and the "
        "command that moved it did not finish. Live writing has stopped; nothing is lost, the events wait where they landed. Finish the move: "
        "`backfill-assets fence bronze/orders --at 2024-03-02T00:00:00+00:00`; then start the writer again."
    )
    assert 60 <= sum(world.clock.slept_seconds) <= 62
    assert world.said[-1] == "Batch 0 waits: the fence is being moved."
    assert world.lake.version() == version
    assert (world.orders(), world.late(), world.quarantined()) == ([], [], [])


def test_a_batch_goes_on_when_the_move_is_ended_in_time(world):
    """While the batch waits somebody ends the move: the batch is split at the new fence, without an error."""
    interrupt(world)
    world.script.at("before_append", lambda: world.move("2024-03-02"), visit=20)
    assert world.write(0, *EVENTS).epoch == 3
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


# -- who ends it -------------------------------------------------------------------------------------------------------


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


def test_a_command_for_an_earlier_place_ends_an_interrupted_move_and_is_refused(world):
    """What was begun cannot be taken back: the fence stands where that move put it, and the refusal says so."""
    interrupt(world)
    with pytest.raises(FenceError) as caught:
        world.move("2024-03-01")
    assert (
        "the fence is at `2024-03-02T00:00:00+00:00` and cannot be moved back to `2024-03-01T00:00:00+00:00`"
        in caught.value.what
    )
    assert caught.value.state == "The fence stays where it is."
    assert world.live.fence() == Fence(at("2024-03-02"), epoch=3, stream=STREAM)
    world.write(0, *EVENTS)
    assert (world.orders(), world.late()) == ([4], [1, 2, 3])


def test_a_move_that_the_log_has_forgotten_is_ended_by_the_next(world):
    """Nobody knows which batch came last before it: the fence moves, the stream writes no more, and a new one follows it."""
    world.write(0, *EVENTS)
    interrupt(world)
    forget(world)
    with pytest.raises(FenceMoveInterruptedError, match="`the fence that was meant`, and the command that moved it"):
        world.write(1, order(5, "2024-03-02T12:00"))
    assert world.move("2024-03-03").after == Fence(at("2024-03-03"), epoch=3, last_batch=CLOSED, stream=STREAM)
    with pytest.raises(ReceiptError, match="the number of batch 1 of stream `a1` was used up before"):
        world.write(1, order(5, "2024-03-02T12:00"))
    assert world.claim("b2", is_new=True) == Fence(at("2024-03-03"), epoch=4, stream="b2")
    world.check_fences()


def test_a_writer_that_starts_ends_an_interrupted_move(world):
    """The writer itself does the second step when it claims the table, so that a restart is enough."""
    interrupt(world)
    assert world.claim() == Fence(at("2024-03-02"), epoch=3, stream=STREAM)
    world.write(0, *EVENTS)
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


def test_the_last_batch_is_the_newest_of_the_stream(world):
    """An epoch without a batch keeps the last batch of the one before; the epoch that ends counts what it committed."""
    assert world.move("2024-03-01").after.last_batch == -1
    world.write(0)
    world.write(1)
    assert world.move("2024-03-02").after.last_batch == 1
    assert world.move("2024-03-03").after.last_batch == 1
    world.write(2)
    assert world.move("2024-03-04").after.last_batch == 2
