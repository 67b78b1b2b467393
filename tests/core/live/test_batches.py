"""One batch of a stream: what of it is live, what late and what goes to quarantine, and that it is written once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backfill_assets.core.live import batches as live
from backfill_assets.errors import FirstBatchLateError, LiveError, StreamMismatchError
from tests.core.live.world import DAYS, EVENTS, NO_EVENT, START, STREAM, World, at, published
from tests.support.actors import Killed
from tests.support.fake_live import FakeBatch, order
from tests.support.fakes import ORDERS, hash_of, raising, spec_with

# -- what goes where ---------------------------------------------------------------------------------------------------


def test_an_event_at_the_fence_is_live(world):
    """What happened at the fence or after it goes to the table, a microsecond earlier is late, and what is no event is set aside."""
    receipt = world.write(0, *EVENTS, NO_EVENT)
    assert world.orders() == [2, 3, 4]
    assert {day: world.orders(day) for day in DAYS[2:5]} == {"2024-02-29": [2], "2024-03-01": [3], "2024-03-02": [4]}
    assert world.late() == [1]
    assert world.quarantined() == [9]
    assert (receipt.rows, receipt.late_rows, receipt.quarantined_rows) == (3, 1, 1)


def test_the_receipt_of_a_batch_says_how_it_was_split(world):
    """It names the stream, the epoch, the batch and both instants at which rows were parted; and it is what the log has."""
    batch = FakeBatch(world.spec, 7, EVENTS, landed_utc=("2024-03-09T23:00:00Z", "2024-03-09T23:30:00Z"))
    receipt = live.write_batch(world.spec, batch, world.live, STREAM, world.effects)
    (logged,) = world.live.receipts().values()
    assert receipt == logged
    assert (receipt.stream, receipt.epoch, receipt.batch) == (STREAM, 2, 7)
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


@pytest.mark.parametrize("is_first", [True, False])
def test_the_same_batch_twice_is_written_once(world, is_first):
    """A batch that comes again, to a writer that has just started or to one that has not, changes nothing."""
    first = world.write(0, *EVENTS, NO_EVENT)
    versions = world.lake.version()
    assert world.write(0, *EVENTS, NO_EVENT, is_first=is_first) == first
    assert world.lake.version() == versions
    assert (world.orders(), world.late(), world.quarantined()) == ([2, 3, 4], [1], [9])
    if is_first:
        assert world.said[-1] == "Batch 0 was committed before; only what is missing is written."


def test_rows_are_as_they_came(world):
    """Nothing is changed on the way: the rows in the table and in the late table are those of the batch."""
    world.write(0, *EVENTS)
    there = [row for rows in world.lake.versions[-1].rows.values() for row in rows] + world.lake.late_rows
    assert sorted(map(hash_of, there)) == sorted(map(hash_of, EVENTS))


@pytest.mark.parametrize("is_first", [True, False])
def test_another_batch_of_the_same_size_is_not_taken_for_it(world, is_first):
    """After a restore of the checkpoint from a backup numbers are given again, to other files."""
    world.write(0, EVENTS[3])
    with pytest.raises(
        LiveError, match="was committed before, with other lines than it has now: the writer's checkpoint"
    ):
        world.write(0, {**EVENTS[3], "order_id": 77}, is_first=is_first)
    assert world.orders() == [EVENTS[3]["order_id"]]


def test_a_table_without_a_stream_is_not_written_live():
    """There is no fence, so no batch can be parted."""
    world = World(ORDERS, stream="")
    for attempt in (world.claim, lambda: world.write(0, *EVENTS), lambda: world.move("2024-03-01")):
        with pytest.raises(StreamMismatchError) as caught:
            attempt()
        assert "has no live stream" in str(caught.value)
    assert world.lake.version() == 0


# -- late rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "kept", "folded"), [("fold", [1], [1, 200]), ("keep", [1], [200]), ("ignore", [], [200])]
)
def test_what_happens_to_late_rows(late, kept, folded):
    """`fold` keeps them and joins them to their partition's next launch, `keep` only keeps them, `ignore` counts them."""
    world = World(
        spec_with(latest_wins_by=["updated_at"], live={"path": "events", "starts": "2024-02-29", "late": late})
    )
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


# -- events from the future --------------------------------------------------------------------------------------------


def test_events_from_the_future_are_quarantined(world):
    """From `max_future_seconds` after now on it is a wrong clock; a microsecond earlier it is an event."""
    now = world.clock.now()
    sold = [{**EVENTS[3], "order_id": n, "created_at": now + timedelta(hours=1, microseconds=n)} for n in (-1, 0, 1)]
    world.write(0, *sold)
    assert (world.orders(), world.quarantined()) == ([-1], [0, 1])


@pytest.mark.parametrize(
    "point", ["after_append", "before_late", "after_late", "before_quarantine", "after_quarantine"]
)
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


# -- a stream that reads history -----------------------------------------------------------------------------------


def of_day(day, numbers):
    return [order(number, f"{day}T{number % 24:02}:00") for number in numbers]


@pytest.mark.parametrize(("late", "live_rows"), [(100, 0), (91, 9), (910, 99)])
def test_a_first_batch_of_history_writes_nothing(world, late, live_rows):
    """Nine tenths of late rows end a new stream, at each start; the error names both folders, and a flag goes on."""
    events = [*of_day("2024-02-27", range(late)), *of_day("2024-03-01", range(late, late + live_rows))]
    batch, before = FakeBatch(world.spec, 0, events), dict(world.live.receipts())
    for _ in range(2):
        with pytest.raises(FirstBatchLateError, match=r"rows in `events` .* files below `.*has written nothing"):
            live.write_batch(world.spec, batch, world.live, STREAM, world.effects)
    assert (world.orders(), world.late(), dict(world.live.receipts())) == ([], [], before)

    receipt = live.write_batch(world.spec, batch, world.live, STREAM, world.effects, accept_late=True)

    assert (receipt.rows, receipt.late_rows) == (live_rows, late)


@pytest.mark.parametrize(("late", "live_rows"), [(99, 0), (90, 10), (0, 100)])
def test_a_first_batch_may_be_late(world, late, live_rows):
    """Few rows, or a tenth that is live, are a stream like any other."""
    receipt = world.write(0, *of_day("2024-02-27", range(late)), *of_day("2024-03-01", range(late, late + live_rows)))
    assert (receipt.rows, receipt.late_rows) == (live_rows, late)


def test_a_later_batch_may_be_late(world):
    """A stream that has written a batch takes as many late rows as come, also after a new start."""
    world.write(0, *EVENTS)
    assert world.write(1, *of_day("2024-02-27", range(100, 300))).late_rows == 200
