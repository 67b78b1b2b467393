"""A launch whose source changes while it is read, or that another writer overtakes: it reads everything again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backfill_assets.core.history.outcomes import Refused
from backfill_assets.core.history.plan import LeftOut
from backfill_assets.core.history.publish import ATTEMPTS
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import (
    NOTHING_WRITTEN,
    CommitConflictError,
    EngineFailedError,
    PutBackError,
    SourceChangedError,
    UncertainCommitError,
    UnsafeWriteError,
)
from tests.core.history.world import BAD, CONFLICT, KEYS, LOCKED, POINTS_OF_A_CHUNK, World, published_keys, refused_keys
from tests.support.fakes import ORDERS, orders_of, raising, spec_with

FAILED = EngineFailedError("Spark failed.", state=NOTHING_WRITTEN, remedy="Try again.")


# -- a source that changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["scan", "stage"])
def test_a_source_that_changes_while_it_is_read_is_read_again(filled, point):
    """The position is looked at again before the save; if it changed, everything is surveyed and staged afresh."""
    filled.script.at(point, lambda: filled.correct(BAD, amount=3))
    outcomes = filled.run()
    assert published_keys(outcomes) == [KEYS]
    assert filled.lake.content() == filled.source_content()
    assert filled.lake.version() == 2, "the torn read was not published"
    now = filled.source.survey([ORDERS.grid.partition(BAD)])[BAD].fingerprint
    assert filled.lake.receipts()[2].partitions[BAD].fingerprint == now
    assert len(filled.slept) == 1


def test_a_source_that_never_stops_changing_is_given_up(filled):
    """After five attempts the launch fails, says what changed, and the table is as it was."""
    old = filled.lake.content()
    amounts = iter(range(100, 200))
    filled.script.always("stage", lambda: filled.correct("2024-02-27", BAD, amount=next(amounts)))
    with pytest.raises(SourceChangedError) as caught:
        filled.run()
    assert str(caught.value) == (
        "The source of 2 partitions changed while it was read (first `2024-02-27`). Nothing was written. "
        "Launch again when whoever writes the source has finished."
    )
    assert caught.value.facts == {"partitions": ["2024-02-27", BAD]}
    assert len(filled.source.staged_keys) == 1 + ATTEMPTS
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


def test_a_change_elsewhere_does_not_disturb(filled):
    """A file of a partition that the chunk does not hold may change meanwhile."""
    filled.script.at("stage", lambda: filled.correct(KEYS[-1], amount=3))
    filled.run(KEYS[:2])
    assert filled.slept == []


# -- the engine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_engine_failure_without_commit_is_repeated(filled, point):
    """Wherever the engine fails before a commit, the chunk is read again and published once."""
    filled.script.at(point, raising(FAILED))
    assert published_keys(filled.run()) == [KEYS]
    assert filled.lake.content() == filled.source_content()
    assert (filled.lake.version(), len(filled.slept)) == (2, 1)


def test_engine_failure_while_planning_is_repeated(filled, monkeypatch):
    """A look into the log that fails before the first chunk is asked again; what is left out is told once."""
    filled.run()
    looks = iter([FAILED, FAILED])
    published = filled.lake.published

    def fails_twice():
        if (error := next(looks, None)) is not None:
            raise error
        return published()

    monkeypatch.setattr(filled.lake, "published", fails_twice)
    filled.correct(BAD, amount=3)
    outcomes = filled.run(only="missing")
    assert published_keys(outcomes) == [[BAD]]
    assert [o.published for o in outcomes if isinstance(o, LeftOut)] == [True]
    assert len(filled.slept) == 2


def test_engine_failure_after_a_commit_repeats_no_commit(filled):
    """What is committed is verified again, and not published twice."""
    filled.lake.answers = False  # so that the table is read
    filled.script.at("tally", raising(FAILED))
    assert published_keys(filled.run()) == [KEYS]
    assert (filled.lake.version(), len(filled.slept)) == (2, 1)


def test_commit_that_cannot_be_verified_is_uncertain(filled):
    """If the engine fails in each attempt to verify, the launch ends, says which version is meant, and wrote it once."""
    filled.lake.answers = False
    filled.script.always("tally", raising(FAILED))
    with pytest.raises(UncertainCommitError, match="version 2 could not be verified. Version 2 is committed"):
        filled.run()
    assert (filled.lake.version(), len(filled.slept)) == (2, ATTEMPTS - 1)


# -- other writers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CONFLICT, LOCKED, FAILED], ids=lambda e: type(e).__name__)
def test_a_conflict_is_tried_again(filled, error):
    """Four conflicts in a row are survived; each time everything is read again, after a longer wait."""
    for visit in range(1, ATTEMPTS):
        filled.script.at("during_save", raising(error), visit=visit)
    filled.run()
    assert filled.lake.content() == filled.source_content()
    assert len(filled.source.staged_keys) == 1 + ATTEMPTS
    assert all(0.5 * 2**n <= seconds <= 1.5 * 2**n for n, seconds in enumerate(filled.slept))
    assert len(filled.slept) == len(filled.said) == ATTEMPTS - 1
    assert filled.said[0] == f"Attempt 1 of 5 failed: {error.what} The next one begins in {filled.slept[0]:.1f} s."


def test_conflicts_without_end_are_given_up(filled):
    """The fifth conflict is the launch's error, and the table is as it was."""
    old = filled.lake.content()
    filled.script.always("during_save", raising(CONFLICT))
    with pytest.raises(CommitConflictError, match="Another writer was there"):
        filled.run()
    assert ATTEMPTS == 5
    assert filled.script.passed.count("during_save") == 1 + 5
    assert len(filled.slept) == 4
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


def test_each_chunk_has_its_own_attempts(filled):
    """Conflicts of one chunk do not use up those of the next."""
    for visit in (1, 2, 3, 4, 6, 7, 8, 9):
        filled.script.at("during_save", raising(CONFLICT), visit=visit)
    assert published_keys(filled.run(chunk=3)) == [KEYS[:3], KEYS[3:]]


@pytest.mark.parametrize("point", ["before_save", "during_save"])
def test_an_error_that_a_retry_does_not_help_is_not_tried_again(filled, point):
    """A session that is not safe to write with stays so: the launch fails at once."""
    filled.script.at(point, raising(UnsafeWriteError("Loose.", state=NOTHING_WRITTEN, remedy="Set it back.")))
    with pytest.raises(UnsafeWriteError):
        filled.run()
    assert (len(filled.source.staged_keys), filled.slept, filled.lake.version()) == (2, [], 1)


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_content_never_goes_back(filled, point):
    """A stages, the source is fixed, B stages and publishes, A goes on: the end is B's content, and A's receipt names it."""

    def fix_and_publish():
        filled.correct(BAD, amount=9)
        filled.run([BAD], run_id="B")

    filled.script.at(point, fix_and_publish)
    filled.run(run_id="A")
    assert [row["amount"] for row in filled.lake.versions[-1].rows[BAD]] == [9, 9, 9]
    assert filled.lake.content() == filled.source_content()
    last = max(filled.lake.receipts())
    assert filled.lake.receipts()[last].run.id == "A"
    assert len(filled.slept) == 1


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_a_commit_of_somebody_else_in_between_is_overwritten_afresh(filled, point):
    """A foreign commit to the same partitions between staging and commit makes the chunk stage and publish again."""
    filled.script.at(point, lambda: filled.lake.commit_as_somebody_else({BAD: orders_of(ORDERS, BAD, amount=50)}))
    filled.run()
    assert filled.lake.content() == filled.source_content()
    assert len(filled.slept) == 1
    assert filled.lake.receipts()[max(filled.lake.receipts())].staged_from_version >= 2


@pytest.mark.parametrize("point", [None, "scan", "stage", "before_save"])
@pytest.mark.parametrize("may_be_lost", [False, True])
def test_where_a_stream_writes_nobodys_rows_are_overwritten(point, may_be_lost):
    """What somebody puts into a partition after the plan, before its chunk or within it, is looked at as it would be before."""
    world = World(spec_with(live={"path": "events", "starts": "2024-03-01"}, latest_wins_by=["updated_at"]))
    world.lake.add_version({}, fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s"))
    world.run(KEYS[:4])
    world.correct(KEYS[0], BAD)
    more = orders_of(world.spec, BAD, 4, amount=2)
    launch = world.outcomes([KEYS[0], BAD], chunk=1, discard_uncovered_rows=may_be_lost)
    assert published_keys([next(launch)]) == [[KEYS[0]]]
    if point is None:
        world.lake.commit_as_somebody_else({BAD: more})
    else:
        world.script.at(point, lambda: world.lake.commit_as_somebody_else({BAD: more}))
    found = list(launch)
    there = len(world.lake.versions[-1].rows[BAD])
    expected = (len(world.source.files[BAD]), []) if may_be_lost else (len(more), [BAD])
    assert (there, refused_keys(found)) == expected


@pytest.mark.parametrize("point", POINTS_OF_A_CHUNK)
def test_a_commit_to_other_partitions_does_not_disturb(filled, point):
    """Launches of disjoint partitions run side by side: neither waits for the other or undoes it."""
    filled.script.at(point, lambda: filled.run([BAD], run_id="B"))
    filled.run(KEYS[:2], run_id="A")
    assert filled.slept == []
    assert {key: filled.lake.content()[key] for key in [*KEYS[:2], BAD]} == {
        key: filled.source_content()[key] for key in [*KEYS[:2], BAD]
    }


def test_a_commit_after_ours_is_newer(filled):
    """What somebody else commits after our commit stays: that is not being overtaken."""
    filled.script.at(
        "after_commit", lambda: filled.lake.commit_as_somebody_else({BAD: orders_of(ORDERS, BAD, amount=50)})
    )
    filled.run()
    assert filled.slept == []
    assert [row["amount"] for row in filled.lake.versions[-1].rows[BAD]] == [50, 50, 50]


def test_restoring_what_was_overtaken_may_be_overtaken(filled):
    """If a commit is overtaken, and so is the commit that restores what it replaced, the launch fails and says so."""
    filled.script.always("during_save", lambda: filled.lake.commit_as_somebody_else({BAD: orders_of(ORDERS, BAD)}))
    with pytest.raises(PutBackError) as caught:
        filled.run()
    assert str(caught.value) == (
        "`bronze/orders`: version 3 replaced rows that its audit had not looked at, and while that was put right, "
        "version 4 wrote partitions of this chunk after version 3 was looked at. These partitions have what they had "
        "in version 2; what came after it is in version 4. Compare these versions, and launch again when nobody else "
        "writes these partitions."
    )


def test_rows_appended_before_the_commit_are_restored(filled):
    """Rows that arrive between the look and the commit are in the table again, and the next attempt counts them."""
    theirs = {BAD: [*orders_of(ORDERS, BAD), *orders_of(ORDERS, BAD, 40)[3:]]}
    filled.script.at("during_save", lambda: filled.lake.commit_as_somebody_else(theirs))
    outcomes = filled.run(rewrite_identical=True)
    assert refused_keys(outcomes) == [BAD]
    assert "(40 → 3)" in str(next(o for o in outcomes if isinstance(o, Refused)).verdict)
    assert len(filled.lake.content()[BAD]) == 40


def test_a_commit_that_removed_more_is_restored(filled, monkeypatch):
    """Even if the log names nobody, a commit that removed more rows than were looked at is taken back."""
    looks = iter([{BAD: 1}])
    count = filled.lake.rows_now
    monkeypatch.setattr(filled.lake, "rows_now", lambda *args, **how: count(*args, **how) | next(looks, {}))
    filled.run(rewrite_identical=True)
    assert any("removed 3 rows of `2024-02-28`, of which 1 were looked at" in said for said in filled.said)
    assert [receipt.kind for receipt in filled.lake.receipts().values()] == [
        "publish",
        "publish",
        "put_back",
        "publish",
    ]
