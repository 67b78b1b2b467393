"""A launch of what the table has already: made again, held against the table, and not written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backfill_assets.core.history.guards import LIVE_ROWS
from backfill_assets.core.history.identical import identical, is_as_published
from backfill_assets.core.history.outcomes import Identical
from backfill_assets.core.history.staging import stage_chunk
from backfill_assets.core.state.fence import Fence
from tests.core.history.world import KEYS, World, published_keys, refused_keys
from tests.support.docstring_tables import table_of
from tests.support.fakes import orders_of, spec_with


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
}


def cases():
    for line in table_of(identical):
        *case, verdict = line.values()
        for happened in CASES.get(tuple(case), ()):
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


def test_every_line_of_the_table_is_tried():
    """All but one: over lists nothing is unreadable, and `tests/runs/test_identical.py` damages files."""
    lines = {tuple(line.values())[:3] for line in table_of(identical)}
    assert lines - {("the same", "no", "unreadable")} == set(CASES)


def test_the_source_is_surveyed_before_anything_is_called_identical(world):
    """A file that changes between the read and the verdict is read again."""
    world.run()
    world.script.at("tally", lambda: world.correct(DAY))
    outcomes = again(world)
    assert published_keys(outcomes) == [[DAY]]
    assert world.lake.content() == world.source_content()


# -- rows that are not kept --------------------------------------------------------------------------------------------


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


def test_rows_that_the_table_has_are_not_kept(world, staged):
    """Nobody reads them again: they are tallied as they pass."""
    world.run(code_version="1")
    assert identical_keys(again(world, code_version="1")) == [KEYS]
    assert staged == [(KEYS, True), (KEYS, False)]


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


def test_what_is_read_again_is_cut_as_a_live_writer_bears(world):
    """A launch that thought it would write nothing still keeps nobody waiting for more than one commit's worth."""
    world.run(code_version="1", chunk=2)
    world.lake.commit_as_somebody_else({key: world.source.files[key][1:] for key in KEYS})
    outcomes = again(world, code_version="1", max_publish_seconds=0.03)
    assert max(map(len, published_keys(outcomes))) == 1
    assert world.lake.content() == world.source_content()


def test_a_partition_that_something_guards_is_kept_at_once(world, staged):
    """Its rows are held against the table's, so they are read again in any case."""
    world.run(code_version="1")
    assert identical_keys(again(world, code_version="1", guards=(LIVE_ROWS,))) == [KEYS]
    assert staged[1:] == [(KEYS, True)]


def test_rows_that_no_publish_put_there_are_guarded():
    """A stream's rows lie in a partition whose source is as it was published: they are looked for among the staged."""
    world = World(spec_with(live={"path": "events", "starts": "2024-03-01", "late": "ignore"}))
    world.lake.add_version({}, fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s"))
    world.run([DAY], code_version="1")
    world.lake.commit_as_somebody_else({DAY: [*world.source.files[DAY], *orders_of(world.spec, DAY, 9)]})
    assert refused_keys(again(world, [DAY], code_version="1")) == [DAY]


@pytest.mark.parametrize(
    "changed",
    [
        lambda known: {},
        lambda known: {DAY: replace(known, partition=replace(known.partition, fingerprint="another"))},
        lambda known: {DAY: replace(known, partition=replace(known.partition, superseded_rows=1))},
    ],
    ids=["never published", "another source", "rows with the same key were resolved"],
)
def test_what_tells_rows_from_what_was_published(world, changed):
    """Before they are read: then they are kept from the first, and read once."""
    world.run([DAY], code_version="1")
    (known,) = world.lake.published().values()
    (partition,), contents = [world.spec.grid.partition(DAY)], {DAY: known.partition.content}
    surveys = world.source.survey([partition])
    assert is_as_published({DAY: known}, contents, [partition], surveys)
    assert not is_as_published({DAY: known}, {}, [partition], surveys), "no audit of this code let it through"
    assert not is_as_published(changed(known), contents, [partition], surveys)


def test_partitions_that_were_not_asked_for_are_kept(world):
    """A row may have left one of them: it is published in the same commit, though nothing was known of it."""
    asked, other = [world.spec.grid.partition(key) for key in (DAY, "2024-03-05")]
    surveys, scan = world.source.survey([asked]), world.source.scan
    with stage_chunk([asked], surveys, world.source, world.lake).staged as first:
        known = {key: tally.content for key, tally in first.tallies.items()}
    with stage_chunk([asked], surveys, world.source, world.lake, unique=known, keeps=False).staged as alone:
        assert alone.kept is None
    world.source.scan = lambda *asked_for: replace(scan(*asked_for), also=(other,))
    with stage_chunk([asked], surveys, world.source, world.lake, unique=known, keeps=False).staged as both:
        assert both.kept is not None
