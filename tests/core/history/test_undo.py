"""A launch taken back: exactly what it replaced is there again, and nothing that came later is lost."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.history.effects import Effects
from backfill_assets.core.history.undo import Restored, carry_out
from backfill_assets.core.history.undo_plan import Undo, UndoAction, of_launch, plan_undo
from backfill_assets.core.live.receipts import LiveReceipt
from backfill_assets.core.state.partition_status import Known, State, status_of
from backfill_assets.core.state.receipts import UNDOES, PartitionReceipt, Run
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.errors import CommitConflictError, StagedContentLostError
from tests.core.history.world import BAD, CONFLICT, KEYS, World
from tests.support.docstring_tables import table_of
from tests.support.fakes import ORDERS, hash_of, orders_of, raising, receipt_of, spec_with

DAY, FIRST_DAY = ORDERS.grid.partition(BAD), datetime(2024, 1, 1, tzinfo=UTC)


def undo_of(name, *, run_id="undo", reason="", **how):
    return Undo(name, of_launch(name, []), Run(run_id, reason=reason), **how)


def take_back(world, name, **how):
    """Take a launch back; return its plan, what was put back, and what was kept after all."""
    undo = undo_of(name, **how)
    plan = plan_undo(world.spec, world.lake, undo)
    effects = Effects(log=world.said.append, sleep=world.slept.append)
    done = list(carry_out(world.spec, world.lake, undo, plan, effects))
    restored = [one for one in done if isinstance(one, Restored)]
    return plan, restored, [one for one in done if not isinstance(one, Restored)]


# -- what is done with a partition -------------------------------------------------------------------------------------


def write(lake, what, number):
    """Make one version of a partition, as the table of cases names it."""
    rows = orders_of(ORDERS, BAD, amount=number)
    if what == "F":
        return lake.commit_as_somebody_else({BAD: rows})
    if what == "S":
        return lake.add_version({BAD: rows}, metadata=LiveReceipt("id", ORDERS.key, "s1", 1, number, "").to_json())
    launch, ids = f"launch {what}", {version: r.receipt_id for version, r in lake.receipts().items()}
    made_at = (FIRST_DAY + number * timedelta(days=20)).isoformat()
    changes = {"receipt_id": f"{what}{number}", "run_id": launch, "root_run_id": launch, "made_at": made_at}
    if what in "UVB":
        changes |= {"kind": "put_back", "source": {"kind": "version", "version": number - 2}}
        rows = list(lake.versions[number - 2].rows.get(BAD, ()))
    if what in "UV":
        changes["source"][UNDOES] = [ids[number - 1]]
    if what == "B":
        changes |= {"run_id": "launch L", "root_run_id": "launch L"}
    tally = PartitionReceipt(len(rows), "", None, None, "")
    return lake.add_version({BAD: rows}, metadata=receipt_of({BAD: tally}, **changes).to_json())


@pytest.mark.parametrize("row", table_of(plan_undo), ids=lambda row: row["writes"])
def test_what_is_done_is_what_the_docstring_says(row):
    """Every row of the table of cases, made in a table and asked of it."""
    world = World()
    for number, what in enumerate(row["writes"].split(), start=1):
        assert what[1:] == str(number)
        write(world.lake, what[0], number)
    (found,) = plan_undo(ORDERS, world.lake, undo_of("launch L")).partitions
    as_of = str(found.before) if found.action is UndoAction.RESTORED else "-"
    assert (found.action.value, as_of) == (row["what is done"], row["as of version"])
    assert (found.then is not None) == (found.action is UndoAction.RESTORED)


def test_what_came_later_is_discarded_where_that_is_asked_for(filled):
    """With `discard_later` what another launch and somebody else wrote since is replaced too."""
    old = filled.lake.content()
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad")
    filled.correct(BAD, amount=6)
    filled.run([BAD], run_id="later")
    filled.lake.commit_as_somebody_else({KEYS[0]: orders_of(ORDERS, KEYS[0], amount=7)})
    plan, _, _ = take_back(filled, "bad")
    assert {one.key for one in plan.of(UndoAction.KEPT)} == {BAD, KEYS[0]}
    assert filled.lake.content()[KEYS[1]] == old[KEYS[1]]
    take_back(filled, "bad", discard_later=True)
    assert filled.lake.content() == old


def test_a_live_partition_is_kept():
    """What the fence has given to the stream is no launch's to change."""
    world = World(spec_with(live={"path": "events", "starts": KEYS[-1], "late": "keep"}))
    world.run(KEYS[:-1], run_id="bad")
    rows = orders_of(world.spec, KEYS[-1])
    tally = PartitionReceipt(len(rows), "", None, None, "")
    named = receipt_of({KEYS[-1]: tally}, run_id="bad", root_run_id="bad")
    world.lake.add_version({KEYS[-1]: rows}, metadata=named.to_json())
    plan, _, _ = take_back(world, "bad")
    assert [(one.key, one.why) for one in plan.of(UndoAction.KEPT)] == [(KEYS[-1], "it is live")]
    assert world.lake.content() == {KEYS[-1]: sorted(map(hash_of, rows))}


def test_a_launch_that_wrote_nothing_has_nothing_to_take_back(filled):
    """No commit is made for a name that no receipt has; nor for none, though receipts name no plan."""
    assert plan_undo(ORDERS, filled.lake, undo_of("")).partitions == ()
    plan, restored, kept = take_back(filled, "nobody")
    assert (plan.partitions, restored, kept, filled.lake.version()) == ((), [], [], 1)


# -- carried out -------------------------------------------------------------------------------------------------------


def test_a_launch_in_chunks_is_put_back_commit_by_commit(filled):
    """Each chunk has a version of its own before it; doing it again makes no commit."""
    old = filled.lake.content()
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad", chunk=2)
    _, restored, kept = take_back(filled, "bad", reason="halved revenue")
    assert (len(restored), kept, filled.lake.content()) == (3, [], old)
    assert {one.receipt.run.reason for one in restored} == {"halved revenue"}
    version = filled.lake.version()
    plan, restored, _ = take_back(filled, "bad")
    assert [one.action for one in plan.partitions] == [UndoAction.DONE] * len(KEYS)
    assert (restored, filled.lake.version()) == ([], version)


def test_an_undo_that_was_killed_is_carried_on(filled):
    """What its first commit put back is not put back again; the same command does the rest."""
    old = filled.lake.content()
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad", chunk=2)
    filled.script.at("before_restore", raising(KeyboardInterrupt()), visit=2)
    with pytest.raises(KeyboardInterrupt):
        take_back(filled, "bad", run_id="killed")
    plan, put_back, _ = take_back(filled, "bad", run_id="again")
    assert (len(plan.of(UndoAction.DONE)), len(put_back)) == (len(KEYS) % 2 or 2, 2)
    assert filled.lake.content() == old


def test_late_rows_that_were_folded_are_folded_again():
    """They are not in what was there before the launch; they wait, and the next launch has them."""
    live = {"path": "events", "starts": "2025-01-01", "late": "fold"}
    world = World(spec_with(live=live, latest_wins_by=["updated_at"]))
    world.run([BAD], run_id="first")
    late = {**orders_of(world.spec, BAD, 9)[8], "amount": 7}
    world.lake.late_rows.append(late)
    world.run([BAD], run_id="folds")
    folded = world.lake.content()
    assert len(folded[BAD]) == 4
    take_back(world, "folds")
    assert len(world.lake.content()[BAD]) == 3
    known = Known(published=world.lake.published(), late_rows=world.lake.late([DAY]).rows)
    assert status_of([DAY], known)[0].states == (State.RESTORED, State.STALE_LATE_ROWS)
    world.run([BAD], run_id="again", only="missing")
    assert world.lake.content() == folded


def test_what_was_put_back_counts_as_restored(filled):
    """Whoever asks is told that the newest publish was taken back; a launch of what is missing makes it again."""
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad")
    take_back(filled, "bad")
    surveys = filled.source.survey([DAY])
    known = Known(published=filled.lake.published(), surveys=surveys, code_version="other code")
    assert [status.states for status in status_of([DAY], known)] == [(State.RESTORED,)], "nothing else is known of it"
    filled.run(only="missing")
    assert filled.lake.content() == filled.source_content()


def test_what_was_never_there_before_is_missing_again():
    """A first publish taken back leaves no rows, and nobody's publish."""
    world = World()
    world.run(run_id="first")
    take_back(world, "first")
    assert (world.lake.content(), world.lake.published()) == ({}, {})


def test_an_undo_is_undone(filled):
    """Taking it back again gives the launch's content, and that can be taken back once more."""
    old = filled.lake.content()
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad")
    bad = filled.lake.content()
    take_back(filled, "bad", run_id="undo 1")
    take_back(filled, "undo 1", run_id="undo 2")
    assert filled.lake.content() == bad
    take_back(filled, "bad", run_id="undo 3")
    assert filled.lake.content() == old


@pytest.mark.parametrize("point", ["before_restore", "during_save"])
def test_what_comes_between_is_kept(filled, point):
    """Somebody who writes a partition after it was looked at keeps what he wrote; the others are put back."""
    old = filled.lake.content()
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad")
    theirs = orders_of(ORDERS, BAD, amount=9)
    filled.script.at(point, lambda: filled.lake.commit_as_somebody_else({BAD: theirs}))
    _, _, kept = take_back(filled, "bad")
    assert [one.key for one in kept] == [BAD]
    assert filled.lake.content() == {**old, BAD: sorted(map(hash_of, theirs))}


def test_conflicts_are_tried_again_and_given_up(filled):
    """Four are survived; the fifth is the undo's error, and the table is as it was."""
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad")
    bad = filled.lake.content()
    filled.script.always("during_save", raising(CONFLICT))
    with pytest.raises(CommitConflictError):
        take_back(filled, "bad")
    assert (filled.lake.content(), len(filled.slept)) == (bad, 4)


def test_a_restore_that_is_not_what_was_read_is_taken_back(filled):
    """If the commit does not hold what was there before the launch, what the launch made is there again."""
    filled.correct(*KEYS, amount=5)
    filled.run(run_id="bad")
    bad = filled.lake.content()

    def lose_a_row(rows):
        filled.lake.damage = None
        return rows[1:]

    filled.lake.damage, filled.lake.damaged_kind = lose_a_row, "put_back"
    with pytest.raises(StagedContentLostError):
        take_back(filled, "bad")
    assert filled.lake.content() == bad


# -- over random histories ---------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C", "somebody", "undo A", "undo B"]), st.sets(st.sampled_from(KEYS), min_size=1)
    ),
    min_size=1,
    max_size=8,
)


@given(steps=STEPS, chunk=st.sampled_from([1, 2, 30]))
def test_whatever_happened_undo_puts_back_what_the_launch_replaced(steps, chunk):
    """After any history: what the launch wrote last is as before it, all else as it was; and the receipts say so."""
    world = World()
    for number, (who, keys) in enumerate(steps, start=2):
        if who == "somebody":
            world.lake.commit_as_somebody_else({key: orders_of(ORDERS, key, amount=number) for key in keys})
        elif who.startswith("undo"):
            take_back(world, who[-1], run_id=f"{who} {number}")
        else:
            world.correct(*keys, amount=number)
            world.run(sorted(keys), run_id=who, chunk=chunk, rewrite_identical=True)
    before = world.lake.content()
    plan, restored, kept = take_back(world, "A", run_id="at last")
    now, changed = world.lake.content(), {one.key for commit in restored for one in commit.partitions}
    assert changed == {one.key for one in plan.of(UndoAction.RESTORED)}
    assert not kept
    for key in KEYS:
        if key not in changed:
            assert now.get(key) == before.get(key)
    for one in plan.of(UndoAction.RESTORED):
        assert now.get(one.key) == world.lake.content(one.before).get(one.key)
        assert before.get(one.key) == world.lake.content(one.launched.version).get(one.key), "it was the launch's"
        assert world.lake.receipts()[one.launched.version].kind != "put_back"
    held = world.lake.tally([ORDERS.grid.partition(key) for key in KEYS])
    for commit in restored:
        for key, part in commit.receipt.partitions.items():
            assert part.matches(held.get(key, EMPTY))
    assert (
        Counter(one.action for one in plan_undo(ORDERS, world.lake, undo_of("A")).partitions)[UndoAction.RESTORED] == 0
    )
