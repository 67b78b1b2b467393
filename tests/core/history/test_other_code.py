"""Launches of different code beside each other: what newer code published is not replaced, and the older launch says so."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.plan import LeftOut
from tests.core.history.world import BAD, CONFLICT, KEYS, LOCKED, left_out, published_keys
from tests.support.fakes import raising

WHY = "newer code has published them since this launch began"
OLD, NEW = {"run_id": "A", "code_version": "old"}, {"run_id": "B", "code_version": "new"}


def code_of(world):
    return {key: published.receipt.run.code_version for key, published in world.lake.published().items()}


def fails(outcomes):
    return [outcome.is_failure for outcome in outcomes if isinstance(outcome, LeftOut)]


@pytest.mark.parametrize("point", ["scan", "stage", "before_save", "during_save"])
def test_what_newer_code_published_is_not_replaced(world, point):
    """In the middle of a launch another spec is launched: the older one leaves that partition out, fails for it, and does the rest."""

    def publish_newer():
        world.correct(BAD, amount=9)
        world.run([BAD], **NEW)
        world.correct(BAD, amount=1)

    world.script.at(point, publish_newer)
    outcomes = world.run(chunk=3, **OLD)
    assert left_out(outcomes) == [([BAD], WHY, False)]
    assert fails(outcomes) == [True]
    back = world.lake.published()[BAD].receipt  # Delta itself refuses what is put back here: nothing came before it
    assert code_of(world) == {key: "new" if key == BAD and back.kind == "publish" else "old" for key in KEYS}
    assert (back.kind == "put_back") is (point == "during_save")
    assert [row["amount"] for row in world.lake.versions[-1].rows[BAD]] == [9, 9, 9]


def test_a_launch_that_began_later_replaces_what_older_code_publishes(world):
    """The older launch had published when the newer one began: whichever of the two comes second to a partition, the newer code stays."""
    older = world.outcomes(chunk=2, **OLD)
    next(older)
    newer = world.outcomes(chunk=2, **NEW)
    assert published_keys([next(newer)]) == [KEYS[:2]]
    assert published_keys([next(older)]) == [KEYS[2:4]]
    assert published_keys(newer) == [KEYS[2:4], KEYS[4:]]
    assert left_out(older) == [(KEYS[4:], WHY, False)]
    assert set(code_of(world).values()) == {"new"}


def test_a_run_that_is_executed_again_began_when_the_first_did(world):
    """What newer code published after the first attempt stays, if the old code executes the run again; the new code writes all."""
    world.run(KEYS[:2], **OLD)
    world.run([KEYS[2]], **NEW)
    again = {"root_run_id": "A", "is_reexecution": True}
    assert left_out(world.run(KEYS[:4], **{**OLD, "run_id": "A2"}, **again))[1] == ([KEYS[2]], WHY, False)
    assert code_of(world) == dict.fromkeys([*KEYS[:2], KEYS[3]], "old") | {KEYS[2]: "new"}
    assert published_keys(world.run(KEYS[:4], run_id="A3", code_version="newest", **again)) == [KEYS[:4]]


def test_what_was_there_before_is_replaced_by_any_code(world):
    """A launch of older code that begins afterwards is somebody's decision, as is one that says nothing of its code."""
    world.run(**NEW)
    assert published_keys(world.run(**OLD)) == [KEYS]
    world.script.at("scan", lambda: world.run([BAD], run_id="C"))
    assert left_out(world.run(run_id="D", code_version="other")) == []
    world.script.at("scan", lambda: world.run([BAD], **NEW))
    assert left_out(world.run(run_id="E")) == []


def published_while_saved(world):
    """Let newer code publish a partition between the start of an older launch's commit and its end."""

    def publish_newer():
        world.correct(BAD, amount=9)
        world.run([BAD], **NEW)

    world.script.at("during_save", publish_newer)


def amounts(world):
    return [row["amount"] for row in world.lake.versions[-1].rows[BAD]]


@pytest.mark.parametrize("error", [CONFLICT, LOCKED])
def test_what_is_put_back_is_tried_again(world, error):
    """Somebody else comes first, or holds the lock; meanwhile the table holds what it should not."""
    published_while_saved(world)
    for visit in (1, 2):
        world.script.at("before_restore", raising(error), visit=visit)
    assert left_out(world.run(**OLD)) == [([BAD], WHY, False)]
    assert amounts(world) == [9, 9, 9]
    assert len(world.slept) == 3, "twice before it is put back, once before the rest is published"
