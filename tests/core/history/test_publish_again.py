"""A launch of what was published already: its rows are tallied and not kept, and read again where they have to be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.history.effects import ATTEMPTS
from backfill_assets.core.history.guards import ALL_KEYS
from backfill_assets.core.state.fence import Fence
from tests.core.history.test_publish_identical import again, identical_keys
from tests.core.history.world import CONFLICT, KEYS, LOCKED, World, published_keys, refused_keys
from tests.support.fakes import HOME, FakeSource, orders_of, raising, spec_with

DAY = KEYS[0]


@pytest.fixture
def staged(world):
    """What was staged: partitions that have rows, and whether these were kept."""
    seen: list[tuple[list[str], bool]] = []
    really = world.lake.stage

    def noting(scan, *arguments, **how):
        found = really(scan, *arguments, **how)
        seen.append((sorted(found.tallies), found.kept is not None))
        return found

    world.lake.stage = noting
    return seen


def test_what_the_table_has_not_after_all_is_read_again(world, staged):
    """Somebody else's rows lie in one of the partitions: it alone is read once more, kept, and written."""
    world.run(code_version="1")
    world.lake.commit_as_somebody_else({KEYS[1]: world.source.files[KEYS[1]][1:]})
    outcomes = again(world, code_version="1")
    assert identical_keys(outcomes) == [[key for key in KEYS if key != KEYS[1]]]
    assert published_keys(outcomes) == [[KEYS[1]]]
    assert staged[1:] == [(KEYS, False), ([KEYS[1]], True)]
    assert world.lake.content() == world.source_content()


def test_what_is_read_again_is_audited_as_it_is_then(world, staged):
    """The source was corrected between both reads: what is in the table is one content of it, whole."""
    world.run(code_version="1")
    world.lake.commit_as_somebody_else({DAY: world.source.files[DAY][1:]})
    world.script.at("stage", lambda: world.correct(DAY), visit=2)
    assert published_keys(again(world, code_version="1")) == [[DAY]]
    assert [kept for _, kept in staged[1:]] == [False, True, True], "the correction is read a third time"
    assert world.lake.content() == world.source_content()


def test_only_what_changed_is_kept(world, staged):
    """One partition was corrected at the source: it is written, and the others of its chunk are only counted."""
    world.run(code_version="1")
    world.correct(DAY)
    assert published_keys(again(world, code_version="1")) == [[DAY]]
    assert staged[1:] == [([DAY], True), (KEYS[1:], False)]
    assert world.lake.content() == world.source_content()


def test_a_guarded_chunk_stays_whole(world, staged):
    """`keep_keys` looks for a key in every partition of the chunk, also in those that did not change."""
    world.run(code_version="1")
    world.correct(DAY)
    assert published_keys(again(world, code_version="1", guards=(ALL_KEYS,))) == [[DAY]]
    assert staged[1:] == [(KEYS, True)]


def test_a_chunk_that_one_call_makes_stays_whole(world, staged):
    """Its code may look at all partitions that it is asked for."""
    world.source.makes_chunks_at_once = lambda: True
    world.run(code_version="1")
    world.correct(DAY)
    assert published_keys(again(world, code_version="1")) == [[DAY]]
    assert (KEYS, True) in staged[1:]
    assert (KEYS[1:], False) not in staged


def test_rows_that_no_publish_put_there_are_guarded():
    """A stream's rows lie in a partition whose source is as it was published: they are looked for among the staged."""
    world = World(spec_with(live={"path": "events", "starts": "2024-03-01", "late": "ignore"}))
    world.lake.add_version({}, fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s"))
    world.run([DAY], code_version="1")
    world.lake.commit_as_somebody_else({DAY: [*world.source.files[DAY], *orders_of(world.spec, DAY, 9)]})
    assert refused_keys(again(world, [DAY], code_version="1")) == [DAY]


# -- what is read again has attempts of its own ------------------------------------------------------------------------


def touched(world, *keys):
    """Launch everything, and let somebody else take a row out of some partitions."""
    world.run(code_version="1")
    world.lake.commit_as_somebody_else({key: world.source.files[key][1:] for key in keys})


def told_until_it_failed(world, error, **launch):
    """Return each key that a launch told of, as often as it did, until it failed."""
    told = []

    def listen():
        for outcome in world.outcomes(run_id="again", code_version="1", published=world.lake.published(), **launch):
            told.extend(p.key for p in outcome.partitions)

    with pytest.raises(error):
        listen()
    return told


@pytest.mark.parametrize("failure", [CONFLICT, LOCKED])
def test_what_was_told_is_not_told_again(world, staged, failure):
    """What is read again cannot be saved, five times: the launch fails as any other, and read the others once."""
    touched(world, DAY)
    before = world.script.passed.count("before_save")
    for visit in range(1, 30):
        world.script.at("before_save", raising(failure), visit=visit)
    assert told_until_it_failed(world, type(failure)) == KEYS[1:]
    assert world.script.passed.count("before_save") - before == ATTEMPTS
    assert staged[1:] == [(KEYS, False), *[([DAY], True)] * ATTEMPTS]


class Leading(FakeSource):
    """Makes a chunk in one call, and its first partition another one if the second is there too."""

    def makes_chunks_at_once(self):
        return True

    def scan(self, partitions, surveys):
        found = super().scan(partitions, surveys)
        for row in found.rows:
            if row[HOME] == DAY and len(partitions) > 1:
                row["amount"] = 77
        return found


def test_what_is_made_together_is_made_together_again(staged, world):
    """Else a partition would become another one because others are as they were."""
    world.source = Leading(world.spec, world.source.files, world.script)
    world.run(code_version="1")
    before = world.lake.content()
    world.lake.commit_as_somebody_else({DAY: world.source.files[DAY][1:]})
    outcomes = again(world, code_version="1")
    assert (identical_keys(outcomes), published_keys(outcomes)) == ([KEYS[1:]], [[DAY]])
    assert world.lake.content() == before
    assert [(keys, kept) for keys, kept in staged if keys == KEYS] == [(KEYS, True), (KEYS, False), (KEYS, True)]
