"""Crashes, conflicts and answers that are lost: a batch that is tried again is written once."""

from __future__ import annotations

import pytest

from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import LiveError, ReceiptError
from tests.core.history.world import LOCKED
from tests.core.live.world import EVENTS, NO_EVENT, START, STREAM, at, forget
from tests.support.actors import Killed
from tests.support.fake_live import conflict, order
from tests.support.fakes import BATCH_POINTS, PROBLEM, raising

# -- crashes -----------------------------------------------------------------------------------------------------------


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


def test_a_batch_that_the_log_has_forgotten_is_not_written_again(world):
    """Killed after its commit and started again when the log was cleaned up: it is no move that nobody ended, and none doubles it."""
    world.script.at("after_append", raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, *EVENTS)
    forget(world)
    with pytest.raises(ReceiptError, match="the number of batch 0 of stream `a1` was used up before"):
        world.write(0, *EVENTS)
    assert world.move("2024-03-02").after.last_batch == 0
    with pytest.raises(ReceiptError, match="the log no longer has the batch's receipt"):
        world.write(0, *EVENTS)
    assert world.orders() == [2, 3, 4]
    world.write(1, order(5, "2024-03-02T12:00"))
    assert world.orders() == [2, 3, 4, 5]


def test_a_batch_that_is_read_otherwise_now_is_not_guessed_at(world):
    """Killed after its commit, and a line is an event by now: it is neither in the table nor in quarantine, so it is an error."""
    world.script.at("after_append", raising(Killed()))
    with pytest.raises(Killed):
        world.write(0, *EVENTS, NO_EVENT)
    by_now = {name: value for name, value in NO_EVENT.items() if name != PROBLEM}
    with pytest.raises(LiveError) as caught:
        world.write(0, *EVENTS, by_now)
    assert str(caught.value) == (
        "`bronze/orders`: batch 0 of stream `a1` was committed before, with 3 live, 1 late and 1 quarantined rows, and is now read as "
        "4, 1 and 0: the spec, or a landed file, has changed since. Its live rows are in the table as they were read then; its late "
        "rows and its quarantined lines may not be written yet. Undo the change, run `backfill-assets live bronze/orders --once`, and "
        "make the change again. If that cannot be: seal the live partitions, launch them from their source, and start a new stream: "
        "`backfill-assets live bronze/orders --new-stream`."
    )
    world.write(0, *EVENTS, NO_EVENT)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9])


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


@pytest.mark.parametrize(
    "point", ["before_close", "during_close", "after_close", "before_store", "during_store", "after_store"]
)
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
