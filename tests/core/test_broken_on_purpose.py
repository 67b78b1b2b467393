"""The tests of the live side can fail: each rule is broken on purpose, and a scenario and the random schedules notice it."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from backfill_assets.core.history import plan, publish
from backfill_assets.core.live import batches as live
from backfill_assets.core.live import fence_moves as moves
from backfill_assets.core.state import fence
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import CommitConflictError
from tests.core.live import test_batches, test_claims, test_fence_moves, test_history_and_live, test_replays
from tests.core.live.world import World, at
from tests.support import fake_lake
from tests.support.fake_live import FakeLiveLake, conflict
from tests.support.schedule_plans import schedule_of
from tests.support.schedules import failure_of

MANY_SCHEDULES = 300
"""Within so many schedules each of these must be noticed; the suite runs more."""


def history_ignores_the_fence(patch):
    """Launches overwrite live partitions: nobody asks where the fence is, neither at the start nor before the commit."""
    patch.setattr(plan, "history_part", lambda spec, partitions, fence: (list(partitions), ()))
    patch.setattr(fake_lake, "refuse_live", lambda spec, partitions, fence: None)


def live_ignores_the_fence(patch):
    """The writer takes every event for live."""
    asked = live.the_fence_of
    patch.setattr(live, "the_fence_of", lambda spec, lake: replace(asked(spec, lake), at_utc=at("2024-01-01")))


def the_partition_at_the_fence_is_history(patch):
    """An inclusive end: history owns the partition that starts at the fence too."""
    patch.setattr(fence, "is_history", lambda partition, fence: partition.window.start_utc <= fence.at_utc)


def the_partition_before_the_fence_is_live(patch):
    """The other way round: the partition that ends at the fence belongs to nobody."""
    patch.setattr(fence, "is_history", lambda partition, fence: partition.window.end_utc < fence.at_utc)


def an_event_at_the_fence_is_late(patch):
    """The live side begins a microsecond after the fence."""
    asked = live.the_fence_of

    def a_little_later(spec, lake):
        now = asked(spec, lake)
        return replace(now, at_utc=now.at_utc + timedelta(microseconds=1))

    patch.setattr(live, "the_fence_of", a_little_later)


def appends_carry_no_transaction(patch):
    """Every attempt to append is a transaction of its own, so nothing tells a second one from the first."""
    numbers = itertools.count()
    commit = FakeLiveLake.append
    patch.setattr(
        FakeLiveLake,
        "append",
        lambda self, rows, receipt, transaction: commit(self, rows, receipt, (f"{next(numbers)}", 0)),
    )


def late_rows_are_tried_once(patch):
    """A conflict over the late table is taken for the end of it."""

    def try_once(effects, append):
        with suppress(CommitConflictError):
            append()

    patch.setattr(live, "retry_until_committed", try_once)


def late_rows_come_first(patch):
    """The late rows are committed before the table, when nothing says yet at which fence they were parted."""
    write = live.write_batch

    def late_first(spec, batch, lake, stream, effects, *, is_first=True):
        now = live.the_fence_of(spec, lake)
        if now.stream == stream:
            split = batch.split(now.at_utc, effects.now() + timedelta(hours=1))
            if split.late:
                live.retry_until_committed(
                    effects, lambda: lake.append_late(split.late, (f"late:{stream}", batch.number))
                )
        return write(spec, batch, lake, stream, effects, is_first=is_first)

    patch.setattr(live, "write_batch", late_first)


def a_replay_parts_late_rows_by_the_fence_of_now(patch):
    """The receipt of the batch is found, but its late rows are parted at the fence as it is."""
    write = live.write_batch

    def part_again(spec, batch, lake, stream, effects, *, is_first=True):
        receipt = lake.find(live.is_batch(stream, batch.number))
        if receipt is None:
            return write(spec, batch, lake, stream, effects, is_first=is_first)
        split = batch.split(live.the_fence_of(spec, lake).at_utc, receipt.until)
        lake.append_late(split.late, (f"late:{stream}", batch.number))
        lake.append_quarantine(split.quarantined, (f"quarantine:{stream}", batch.number))
        return receipt

    patch.setattr(live, "write_batch", part_again)


def transactions_do_not_name_the_epoch(patch):
    """A batch that read the old fence still commits: moving the fence uses up nothing that the writer carries."""
    close = FakeLiveLake.close
    patch.setattr(Fence, "transaction_id", property(lambda fence: f"live:{fence.stream}"))
    patch.setattr(
        FakeLiveLake,
        "close",
        lambda self, receipt, transaction: close(self, receipt, (f"close:{receipt.epoch}", transaction[1])),
    )


def the_last_batch_is_not_stored(patch):
    """A new epoch does not know what the old one committed."""
    patch.setattr(moves, "Fence", lambda at_utc, epoch, last_batch, stream: Fence(at_utc, epoch, -1, stream))


def a_takeover_does_not_end_the_epoch(patch):
    """The old stream's live rows are counted, and then it may still commit some."""
    close = FakeLiveLake.close
    patch.setattr(
        FakeLiveLake,
        "close",
        lambda self, receipt, transaction: (
            None if receipt.fence == self.fence().at_utc else close(self, receipt, transaction)
        ),
    )


def live_rows_need_not_be_covered(patch):
    """A sealed partition is overwritten with what its source has, whatever the stream wrote."""
    planned = plan.plan_launch
    patch.setattr(publish, "plan_launch", lambda *args, **more: replace(planned(*args, **more), foreign=frozenset()))


# Each rule with a call of a scenario that notices it.
BROKEN = [
    (history_ignores_the_fence, lambda: test_history_and_live.test_history_leaves_out_what_is_live(World())),
    (live_ignores_the_fence, lambda: test_batches.test_an_event_at_the_fence_is_live(World())),
    (
        the_partition_at_the_fence_is_history,
        lambda: test_history_and_live.test_history_leaves_out_what_is_live(World()),
    ),
    (
        the_partition_before_the_fence_is_live,
        lambda: test_history_and_live.test_history_leaves_out_what_is_live(World()),
    ),
    (an_event_at_the_fence_is_late, lambda: test_batches.test_an_event_at_the_fence_is_live(World())),
    (
        appends_carry_no_transaction,
        lambda: test_replays.test_a_lost_answer_is_no_second_commit(World(), "after_append", conflict()),
    ),
    (
        late_rows_are_tried_once,
        lambda: test_replays.test_a_batch_outlasts_conflicts(World(), "before_late", conflict()),
    ),
    (
        late_rows_come_first,
        lambda: test_fence_moves.test_a_batch_that_read_the_old_fence_cannot_commit(World(), "before_append"),
    ),
    (
        a_replay_parts_late_rows_by_the_fence_of_now,
        lambda: test_replays.test_a_batch_of_the_old_epoch_that_is_replayed_in_the_new(World(), "before_late", True),
    ),
    (
        transactions_do_not_name_the_epoch,
        lambda: test_fence_moves.test_a_batch_that_read_the_old_fence_cannot_commit(World(), "before_append"),
    ),
    (
        the_last_batch_is_not_stored,
        lambda: test_replays.test_a_batch_of_the_old_epoch_that_is_replayed_in_the_new(World(), "after_append", False),
    ),
    (
        a_takeover_does_not_end_the_epoch,
        lambda: test_claims.test_the_old_stream_writes_while_a_new_one_takes_over(World(), "before_store", 1),
    ),
    (live_rows_need_not_be_covered, lambda: test_history_and_live.test_a_sealed_partition_loses_no_live_row(World())),
]


@pytest.mark.parametrize(("broken", "scenario"), BROKEN, ids=lambda value: value.__name__)
def test_a_scenario_notices(monkeypatch, broken, scenario):
    """The scenario holds as the code is, and fails, by an assertion of its own, when the rule is broken."""
    scenario()
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        scenario()


@pytest.mark.prove
@pytest.mark.parametrize("broken", dict.fromkeys(broken for broken, _ in BROKEN), ids=lambda value: value.__name__)
def test_random_schedules_notice(monkeypatch, broken):
    """Nobody had to think of the interleaving: one of a few random schedules ends, or passes through, where it must not."""
    broken(monkeypatch)
    schedules = filter(needed_for(broken), map(schedule_of, itertools.count()))
    assert any(failure_of(schedule.plan, schedule.steps) for schedule in itertools.islice(schedules, MANY_SCHEDULES))


def needed_for(broken):
    """Return what a schedule must have in it, so that the search is short; the suite does not choose."""
    if broken is a_takeover_does_not_end_the_epoch:
        return lambda schedule: "successor" in schedule.plan.writers
    if broken is the_last_batch_is_not_stored:
        return lambda schedule: "twin" in schedule.plan.writers
    return lambda schedule: True
