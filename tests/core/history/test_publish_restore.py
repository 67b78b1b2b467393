"""A write that is not what was audited: what was there before is put back, and nothing newer is undone."""

from __future__ import annotations

import pytest

from backfill_assets.errors import StagedContentLostError, TableLockedError
from tests.core.history.world import BAD, FIRST, KEYS, LAST, LOCKED, published_keys
from tests.support.fakes import ORDERS, files_of, hash_of, orders_of, raising


def lose_row(rows):
    return rows[1:]


def change_row(rows):
    return [{**rows[0], "amount": 1_000_000}, *rows[1:]]


def repeat_row(rows):
    return [*rows, rows[-1]]


@pytest.mark.parametrize("damage", [lose_row, change_row, repeat_row])
@pytest.mark.parametrize("answers", [True, False], ids=["answered", "answer lost"])
def test_a_write_that_differs_from_the_audit_is_put_back(filled, damage, answers):
    """If the commit does not hold what was audited, the content from before is put back, and the launch fails saying so."""
    old = filled.lake.content()
    filled.lake.damage, filled.lake.answers = damage, answers
    with pytest.raises(StagedContentLostError) as caught:
        filled.run()
    wrong = KEYS[-1] if damage is repeat_row else KEYS[0]
    assert str(caught.value) == (
        f"`bronze/orders`: version 2 does not hold what was audited in 1 partitions (first `{wrong}`). "
        "The content from before was put back as version 3. "
        "Launch the range again; if it happens twice, look for executors, or files of Spark's disk (`spark.local.dir`), that are lost "
        "during the write."
    )
    assert caught.value.facts == {"partitions": [wrong], "version": 2}
    assert filled.lake.content() == old
    assert filled.lake.version() == 3


def test_what_cannot_be_put_back_is_said_to_stay(filled):
    """Another writer comes between the damage and what would mend it: the error does not say that the table is as it was."""
    filled.lake.damage = lose_row
    filled.script.always("before_restore", raising(LOCKED), visits=500)
    with pytest.raises(TableLockedError, match=r"Version \d does not hold what was audited, and stays"):
        filled.run()


def test_what_was_put_back_has_a_receipt_that_nobody_takes_for_a_publish(filled):
    """The receipt of a put back names the version that it came from and no content of the source, so a re-execution redoes it."""
    filled.lake.damage = lose_row
    with pytest.raises(StagedContentLostError):
        filled.run(run_id="run 1")
    publish, restore = filled.lake.receipts()[2], filled.lake.receipts()[3]
    assert (restore.kind, restore.staged_from_version, restore.source) == (
        "put_back",
        2,
        {"kind": "version", "version": 1},
    )
    assert restore.run.reason == "version 2 does not hold what was audited"
    assert restore.receipt_id != publish.receipt_id
    tallies = filled.lake.tally([ORDERS.grid.partition(key) for key in KEYS])
    assert all(
        restore.partitions[key].matches(tallies[key]) and not restore.partitions[key].fingerprint for key in KEYS
    )
    filled.lake.damage = None
    outcomes = filled.run(run_id="run 2", root_run_id="run 1", is_reexecution=True)
    assert published_keys(outcomes) == [KEYS]
    assert filled.lake.content() == filled.source_content()


def test_what_did_not_exist_before_is_gone_after_a_restore(world):
    """Put back over nothing is nothing; chunks that were published before stay."""
    world.run(KEYS[:2])
    world.lake.damage = lose_row
    with pytest.raises(StagedContentLostError):
        world.run(KEYS[2:])
    assert world.lake.content().keys() == set(KEYS[:2])
    assert world.lake.published().keys() == set(KEYS[:2])
    world.lake.damage = None
    assert published_keys(world.run(only="missing")) == [KEYS[2:]]


def test_a_restore_does_not_undo_what_came_after(filled):
    """What somebody else committed after our wrong commit is newer than what was before it, and stays."""
    old = filled.lake.content()
    theirs = orders_of(ORDERS, BAD, amount=50)
    filled.lake.damage = lose_row
    filled.script.at("after_commit", lambda: filled.lake.commit_as_somebody_else({BAD: theirs}))
    with pytest.raises(StagedContentLostError, match="The content from before was put back as version 4"):
        filled.run()
    assert filled.lake.content() == {**old, BAD: sorted(map(hash_of, theirs))}
    assert BAD not in filled.lake.receipts()[4].partitions


def test_nothing_is_put_back_where_all_is_newer(filled):
    """If later commits replaced every partition of the wrong one, there is nothing to put back."""
    theirs = files_of(ORDERS, FIRST, LAST, amount=50)
    filled.lake.damage = lose_row
    filled.script.at("after_commit", lambda: filled.lake.commit_as_somebody_else(theirs))
    with pytest.raises(StagedContentLostError, match="Version 3 has replaced it since, so nothing was put back"):
        filled.run()
    assert filled.lake.content() == {key: sorted(map(hash_of, rows)) for key, rows in theirs.items()}
    assert filled.lake.version() == 3


def test_a_wrong_count_over_right_rows_is_looked_into(filled):
    """If only the commit's statistics differ, the table is read, found right, and left as it is."""
    filled.lake.miscounted = True
    assert published_keys(filled.run()) == [KEYS]
    assert filled.lake.content() == filled.source_content()
    assert filled.script.passed.count("tally") == 1
