"""What a launch counts at each stage: it adds up, over whatever becomes of a partition."""

from __future__ import annotations

from functools import reduce
from operator import add

from backfill_assets.core.history.outcomes import Identical, Published, Refused
from backfill_assets.core.history.stages import Stages
from tests.core.history.world import BAD, KEYS, World
from tests.support.fakes import PROBLEM, orders_of, spec_with

WHOLE = 3 * len(KEYS)


def counted(outcomes):
    return reduce(add, (o.stages for o in outcomes if isinstance(o, Published | Identical | Refused)), Stages())


def test_what_was_read_is_accounted_for():
    """Published, refused and identical partitions are in it; of what was read, what was written is told beside it."""
    world = World(spec_with(latest_wins_by=["updated_at"]))
    world.source.files[KEYS[0]] += orders_of(world.spec, KEYS[0], 1)
    world.source.files[BAD][0][PROBLEM] = "line 1: `abc` is no number"
    first = counted(world.run())
    assert (first.expected_rows, first.unsaid, first.read_rows) == (WHOLE + 1, 0, WHOLE + 1)
    assert (first.superseded_rows, first.unreadable_rows, first.staged_rows) == (1, 1, WHOLE - 1)
    assert (first.written_rows, first.written_bytes > 0) == (WHOLE - 3, True)
    del world.source.files[BAD][0][PROBLEM]
    again = counted(world.run(published=world.lake.published()))
    assert (again.read_rows, again.staged_rows, again.written_rows) == (WHOLE + 1, WHOLE, 3)


def test_what_a_source_does_not_say_is_not_called_nothing():
    """Beside what others said."""
    said = Stages(expected_rows=3, unsaid=2, read_rows=9, staged_rows=9)
    assert "| rows | 3 and what 2 partitions have | 9 | 0 | 0 | 0 | 9 | 0 |" in said.as_markdown()
    assert "| rows | not said | 9 |" in Stages(unsaid=3, read_rows=9).as_markdown()[2]
    assert Stages().as_markdown() == []
