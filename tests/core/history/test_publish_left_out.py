"""What a launch leaves out, with its reason: what the source is not complete for, and what is there already."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.errors import SourceIncompleteError
from tests.core.history.world import BAD, KEYS, left_out, published_keys
from tests.support.actors import Killed
from tests.support.fakes import raising

# -- completeness ------------------------------------------------------------------------------------------------------


def test_partitions_beyond_the_source_are_left_out(world):
    """A launch is clipped where the source stops being complete: one microsecond short of a partition's end is not it."""
    world.source.complete_until_utc = datetime(2024, 3, 1, tzinfo=UTC) - timedelta(microseconds=1)
    outcomes = world.run(reversed(KEYS))
    assert left_out(outcomes) == [(KEYS[3:], "the source is not complete for them yet; they stay missing", False)]
    assert published_keys(outcomes) == [KEYS[:3]]
    world.source.complete_until_utc = datetime(2024, 3, 1, tzinfo=UTC)
    assert published_keys(world.run()) == [KEYS[:4]]


def test_a_launch_beyond_the_source_is_refused(world):
    """If the source is complete for no partition, the launch fails and says how far it is."""
    world.source.complete_until_utc = datetime(2024, 2, 26, 12, tzinfo=UTC)
    with pytest.raises(SourceIncompleteError) as caught:
        world.run()
    assert str(caught.value) == (
        "`bronze/orders`: the source is complete up to `2024-02-26T12:00:00+00:00`, and the launch starts at "
        "`2024-02-26T00:00:00+00:00` (partition `2024-02-26`). Nothing was written. "
        "Launch partitions that end before that, or wait for the source."
    )
    assert caught.value.facts == {"complete_until": datetime(2024, 2, 26, 12, tzinfo=UTC)}
    assert world.script.passed == []


def test_a_launch_from_a_source_with_nothing_is_refused(world):
    """A source that has nothing at all is said to have nothing."""
    world.source.complete_until_utc = None
    with pytest.raises(SourceIncompleteError, match="the source has nothing yet, and the launch starts at"):
        world.run()


# -- what is left out --------------------------------------------------------------------------------------------------


def test_a_launch_redoes_what_it_names(world):
    """A plain launch writes every partition again, though the source did not change."""
    world.run()
    outcomes = world.run(run_id="another")
    assert left_out(outcomes) == []
    assert published_keys(outcomes) == [KEYS]


def test_only_missing_leaves_out_what_is_there(world):
    """`only: missing` publishes what has no receipt or whose source changed, and leaves out the rest with a reason."""
    world.run(KEYS[:4])
    world.correct("2024-02-27")
    outcomes = world.run(only="missing", run_id="another")
    unchanged = ["2024-02-26", "2024-02-28", "2024-02-29"]
    assert left_out(outcomes) == [(unchanged, "their receipt names the source's content as it is now", True)]
    assert published_keys(outcomes) == [["2024-02-27", "2024-03-01", "2024-03-02"]]
    assert world.lake.content() == world.source_content()


def test_only_missing_of_nothing_missing_does_nothing(world):
    """If nothing is missing, nothing is read and no version is made."""
    world.run()
    world.script.passed.clear()
    outcomes = world.run(only="missing")
    assert [keys for keys, _, _ in left_out(outcomes)] == [KEYS]
    assert len(outcomes) == 1
    assert world.script.passed == []


def test_only_missing_redoes_what_other_code_made(world):
    """A partition that another version of the code published is missing."""
    world.run(code_version="c1")
    assert published_keys(world.run(only="missing", code_version="c1")) == []
    assert published_keys(world.run(only="missing", code_version="c2")) == [KEYS]


def test_a_repeated_run_continues_where_it_was_killed(world):
    """A re-execution leaves out what the same chain of runs published of the same content."""
    world.script.at("scan", raising(Killed()), visit=2)
    with pytest.raises(Killed):
        world.run(chunk=2, run_id="run 1")
    outcomes = world.run(chunk=2, run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert left_out(outcomes) == [(KEYS[:2], "an earlier attempt of this run published the same content", True)]
    assert published_keys(outcomes) == [KEYS[2:4], KEYS[4:]]
    assert world.lake.content() == world.source_content()


def test_a_repeated_run_redoes_what_changed_since(world):
    """A partition whose source changed after the first attempt is published again."""
    world.run(run_id="run 1")
    world.correct(BAD)
    outcomes = world.run(run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert published_keys(outcomes) == [[BAD]]
    assert world.lake.content() == world.source_content()


def test_a_repeated_run_redoes_what_another_run_published(world):
    """What a run of another chain published is not left out, even with the same content."""
    world.run(run_id="run 1")
    world.run([BAD], run_id="somebody")
    outcomes = world.run(run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert published_keys(outcomes) == [[BAD]]
