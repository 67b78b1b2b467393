"""Launches beside a live stream: neither disturbs the other, and no live row gets lost when history takes a partition over."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.forecast import Action, foresee
from backfill_assets.core.history.outcomes import Refused
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import StagedContentLostError
from tests.core.history.world import POINTS_OF_A_CHUNK
from tests.core.live.world import EVENTS, START, World, left_out, published
from tests.support.fake_live import order
from tests.support.fakes import launch_with, spec_with

# -- side by side ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before", *POINTS_OF_A_CHUNK, "after"])
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


def test_history_leaves_out_what_is_live(world):
    """Of a launch across the fence, the partition that ends at it is published, and the one that starts there is left out."""
    world.write(0, *EVENTS)
    outcomes = world.launch("2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01")
    assert published(outcomes) == ["2024-02-27", "2024-02-28"]
    why = "they are live: the fence is at 2024-02-29T00:00:00+00:00"
    assert left_out(outcomes) == [("2024-02-29", why), ("2024-03-01", why)]
    assert world.orders() == [1, 2, 3, 4, 100, 200]


@pytest.mark.parametrize("point", POINTS_OF_A_CHUNK)
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


# -- which partitions may not lose a row -------------------------------------------------------------------------------


def test_a_sealed_partition_loses_no_live_row(world):
    """If the source lacks a row that the live stream wrote, the partition is refused and stays as it is."""
    world.write(0, *EVENTS)
    world.move("2024-03-02")
    (outcome,) = world.launch("2024-03-01")
    assert isinstance(outcome, Refused)
    assert [finding.rule for finding in outcome.verdict.findings] == ["live_rows_are_covered"]
    assert world.orders("2024-03-01") == [3]


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


def test_a_plan_foresees_that_folded_late_rows_are_gone(world):
    """What a launch refuses because nothing else has these rows, its plan refuses too, read or not."""
    world.write(0, *EVENTS)
    world.launch("2024-02-28")
    world.lake.late_rows.clear()
    day, launch = world.spec.grid.partition("2024-02-28"), launch_with()
    for deep in (False, True):
        (found,) = foresee(world.spec, [day], world.source, world.lake, launch, deep=deep).partitions
        assert (found.action, "1 late rows" in found.why) == (Action.REFUSED, True), found.why
