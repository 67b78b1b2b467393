"""Whose table it is: one stream writes it, and another only when nothing would come twice."""

from __future__ import annotations

import pytest

from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import FenceMoveInterruptedError, StreamMismatchError
from tests.core.live.world import EVENTS, NO_EVENT, START, STREAM, World, at, published
from tests.support.actors import Killed
from tests.support.fake_live import order
from tests.support.fakes import BATCH_POINTS, raising

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
    world.script.at(
        point, lambda: [world.write(n, *EVENTS[2 * n : 2 * n + 2], NO_EVENT, is_first=is_first) for n in (0, 1)]
    )
    world.write(0, *EVENTS[:2], NO_EVENT)
    world.write(1, *EVENTS[2:], NO_EVENT, is_first=False)
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9, 9])
    world.check_live_commits()


# -- a table without an owner ------------------------------------------------------------------------------------------


def test_the_first_claim_begins_an_epoch():
    """A stream that claims a new table owns it; claiming it again changes nothing."""
    world = World(stream="")
    assert world.claim() == Fence(START, epoch=2, last_batch=-1, stream=STREAM)
    version = world.lake.version()
    assert world.claim() == world.claim(is_new=True) == world.live.fence()
    assert world.lake.version() == version


# -- a new stream ------------------------------------------------------------------------------------------------------


def test_a_new_stream_is_refused_while_live_rows_are_there(world):
    """It would write them again. The refusal counts them; the old stream goes on."""
    world.write(0, *EVENTS)
    with pytest.raises(StreamMismatchError) as caught:
        world.claim("b2", is_new=True)
    assert "3 rows at or after the fence" in str(caught.value)
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
@pytest.mark.parametrize(
    "point", ["find", "before_close", "during_close", "after_close", "count", "before_store", "during_store"]
)
def test_the_old_stream_writes_while_a_new_one_takes_over(world, point, visit):
    """At whatever point of the takeover it writes: no event is in the table of both."""
    world.effects = world.clock.effects(world.said.append, wait_seconds=0)

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
    assert fence.stream == owner
    world.write(0, *EVENTS, stream=owner)
    assert world.orders() == [2, 3, 4]
    world.check_live_commits()
    world.check_fences()


@pytest.mark.parametrize(
    "point", ["before_close", "after_close", "count", "before_store", "during_store", "after_store"]
)
def test_a_crash_during_a_takeover(world, point):
    """Killed anywhere, the table belongs to one of the two, which can write; and the takeover can be run again."""
    world.script.at(point, raising(Killed()))
    with pytest.raises(Killed):
        world.claim("b2", is_new=True)
    fence = world.live.fence()
    world.claim(fence.stream)
    world.write(0, EVENTS[0], stream=fence.stream)
    assert world.claim("b2", is_new=True).stream == "b2"
    world.write(1, *EVENTS[1:], stream="b2")
    assert world.orders() == [2, 3, 4]
    world.check_live_commits()
    world.check_fences()
