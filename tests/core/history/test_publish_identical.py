"""A launch of what the table has already: made again, held against the table, and not written."""

from __future__ import annotations

import pytest

from backfill_assets.core.history.identical import identical
from backfill_assets.core.history.outcomes import Identical
from tests.core.history.world import KEYS, published_keys, refused_keys
from tests.support.docstring_tables import table_of


def identical_keys(outcomes):
    return [[p.key for p in outcome.partitions] for outcome in outcomes if isinstance(outcome, Identical)]


def again(world, keys=KEYS, **launch):
    """Launch with the receipts at hand, as every launch from Dagster does."""
    launch.setdefault("published", world.lake.published())
    return world.run(keys, run_id="again", **launch)


def test_what_is_there_already_is_not_written(world):
    """No commit is made, and each partition is named with the publish that put it there."""
    world.run(chunk=3, code_version="1")
    before = world.lake.version()
    outcomes = again(world, chunk=3, code_version="1")
    assert identical_keys(outcomes) == [KEYS[:3], KEYS[3:]]
    assert published_keys(outcomes) == []
    assert world.lake.version() == before
    (first, last) = outcomes
    assert {first.published[key].version for key in KEYS[:3]} == {1}
    assert {last.published[key].version for key in KEYS[3:]} == {2}


def test_only_what_is_another_is_written(world):
    """In a chunk of both, one commit replaces the partition that was corrected and its receipt names no other."""
    world.run()
    world.correct(KEYS[1])
    outcomes = again(world)
    assert identical_keys(outcomes) == [[key for key in KEYS if key != KEYS[1]]]
    assert published_keys(outcomes) == [[KEYS[1]]]
    assert list(world.lake.receipts()[world.lake.version()].partitions) == [KEYS[1]]
    assert world.lake.content() == world.source_content()


def test_an_empty_partition_is_not_written_again(world):
    """That there is nothing is a content, too."""
    world.source.files[KEYS[2]] = []
    world.run()
    assert identical_keys(again(world)) == [KEYS]


def test_a_refused_partition_is_refused_again(world):
    """Content that fails its audit is never taken for what the table has."""
    world.run()
    world.source.files[KEYS[0]] = [*world.source.files[KEYS[0]], world.source.files[KEYS[0]][0]]
    outcomes = again(world)
    assert refused_keys(outcomes) == [KEYS[0]]
    assert identical_keys(outcomes) == [KEYS[1:]]


DAY = KEYS[0]


def receipt_unknown(world):
    return {"published": {}}


def other_fingerprint(world):
    """The same rows, in a file that was exported anew."""
    world.source.files[DAY] = world.source.files[DAY][::-1]
    return {}


def other_rows(world):
    world.correct(DAY)
    return {}


def other_code(world):
    return {"code_version": "2"}


def somebody_else(world):
    """Took the rows away and put the very same ones back."""
    world.lake.commit_as_somebody_else({DAY: world.source.files[DAY]})
    return {}


def our_own_launch(world):
    """Of which this one does not know yet."""
    known = world.lake.published()
    world.run([DAY], run_id="meanwhile", code_version="1")
    return {"published": known}


def damaged(world):
    """Rows are another although no commit says so: a disk, or somebody with a file at hand."""
    at = world.lake.versions[-1]
    rows = {**at.rows, DAY: at.rows[DAY][1:]}
    world.lake.versions[-1] = type(at)(rows, at.touched, at.metadata, at.fence, at.transaction)
    return {}


def nothing(world):
    return {}


CASES = {
    ("none, or not known", "-", "-"): (receipt_unknown,),
    ("other source, rows or code", "-", "-"): (other_fingerprint, other_rows, other_code),
    ("the same", "by anybody", "-"): (somebody_else, our_own_launch),
    ("the same", "no", "others"): (damaged,),
    ("the same", "no", "the same"): (nothing,),
    ("the same", "no", "unreadable"): (),  # `tests/runs/test_identical.py` damages files
}


def cases():
    for line in table_of(identical):
        *case, verdict = line.values()
        for happened in CASES[tuple(case)]:
            yield pytest.param(happened, verdict == "yes", id=happened.__name__)


@pytest.mark.parametrize(("happened", "expected"), list(cases()))
def test_when_a_partition_is_identical(world, happened, expected):
    """The table of `identical`, each line by what really happened to a table."""
    world.run([DAY], code_version="1")
    changed = {"code_version": "1", **happened(world)}
    before = world.lake.version()
    outcomes = again(world, [DAY], **changed)
    assert identical_keys(outcomes) == ([[DAY]] if expected else [])
    assert published_keys(outcomes) == ([] if expected else [[DAY]])
    assert world.lake.version() == before + (not expected)
    assert world.lake.content() == {DAY: world.source_content()[DAY]}


@pytest.mark.parametrize("setting", [{"rewrite_identical": True}, {"flow": "history"}])
def test_all_is_written_if_asked_for(world, setting):
    """By whoever wants new files, and by a once-flow, which is done when its whole range has receipts of its own."""
    world.run(**{name: value for name, value in setting.items() if name == "flow"})
    assert published_keys(again(world, **setting)) == [KEYS]


def test_the_source_is_surveyed_before_anything_is_called_identical(world):
    """A file that changes between the read and the verdict is read again."""
    world.run()
    world.script.at("tally", lambda: world.correct(DAY))
    outcomes = again(world)
    assert published_keys(outcomes) == [[DAY]]
    assert world.lake.content() == world.source_content()
