"""A launch and what its audit finds: a bad or emptied partition keeps its rows, and no other is held up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.core.history.audit import AuditRule
from backfill_assets.core.history.guards import ALL_KEYS
from backfill_assets.core.state.fence import Fence
from backfill_assets.errors import NOTHING_WRITTEN, CommitConflictError, SourceChangedError, UnreadableSourceError
from tests.core.history.world import BAD, KEYS, World, published_keys, refused_keys
from tests.support.fakes import ORDERS, PROBLEM, hash_of, orders_of, raising, spec_with

# -- the audit ---------------------------------------------------------------------------------------------------------


def put_stray(world):
    world.source.files[BAD][0]["created_at"] += timedelta(days=1)


def put_null(world):
    world.source.files[BAD][0]["order_id"] = None


def put_duplicate(world):
    world.source.files[BAD].append({**world.source.files[BAD][0], "amount": 7})


def put_unreadable_row(world):
    world.source.files[BAD][0][PROBLEM] = "line 1: `abc` is no number"


def put_unreadable_file(world):
    world.source.unreadable.add(BAD)


def put_lacking_column(world):
    for row in world.source.files[BAD]:
        row["amount"] = None
    world.source.lacking[BAD] = "amount"


def put_forgotten_row(world):
    world.source.forgotten.add(BAD)


def remove_file(world):
    del world.source.files[BAD]


def empty_file(world):
    world.source.files[BAD] = []


FAULTS = {
    put_stray: AuditRule.ROWS_INSIDE_PARTITION,
    put_null: AuditRule.REQUIRED_COLUMNS_ARE_FILLED,
    put_duplicate: AuditRule.KEYS_ARE_UNIQUE,
    put_unreadable_row: AuditRule.VALUES_FIT_THEIR_TYPES,
    put_unreadable_file: AuditRule.FILES_ARE_READABLE,
    put_lacking_column: AuditRule.SCHEMA_MATCHES,
    put_forgotten_row: AuditRule.ROWS_ARE_ACCOUNTED_FOR,
    remove_file: AuditRule.SOURCE_IS_PRESENT,
    empty_file: AuditRule.PARTITION_IS_NOT_EMPTIED,
}
ANY_FAULT = pytest.mark.parametrize(("fault", "rule"), FAULTS.items(), ids=lambda v: getattr(v, "__name__", str(v)))


@ANY_FAULT
def test_a_bad_partition_keeps_its_old_rows(filled, fault, rule):
    """Within a chunk the bad partition is in neither the commit nor its receipt; the others are published."""
    old = filled.lake.content()[BAD]
    fault(filled)
    outcomes = filled.run()
    others = [key for key in KEYS if key != BAD]
    assert published_keys(outcomes) == [others]
    assert refused_keys(outcomes) == [BAD]
    assert [f.rule for f in outcomes[-1].verdict.findings] == [rule]
    assert filled.lake.content()[BAD] == old
    assert {key: filled.lake.content()[key] for key in others} == {key: filled.source_content()[key] for key in others}
    assert filled.lake.version() == 2
    assert filled.lake.versions[2].touched == set(others)
    assert filled.lake.receipts()[2].partitions.keys() == set(others)


@ANY_FAULT
def test_a_chunk_of_bad_partitions_does_not_move_the_version(filled, fault, rule):
    """If no partition passes, nothing is committed, and the chunks beside it are published all the same."""
    fault(filled)
    outcomes = filled.run([BAD])
    assert refused_keys(outcomes) == [BAD]
    assert [f.rule for f in outcomes[0].verdict.findings] == [rule]
    assert filled.lake.version() == 1
    outcomes = filled.run(chunk=1)
    assert refused_keys(outcomes) == [BAD]
    assert filled.lake.version() == 1 + len(KEYS) - 1


def test_a_refusal_names_rows(filled):
    """A finding comes with a few of the rows that break the rule."""
    put_stray(filled)
    finding = filled.run([BAD])[0].verdict.findings[0]
    assert finding.examples == ("order_id=738944000 at 2024-02-29 00:00:00Z (belongs to 2024-02-29)",)


def test_a_column_that_is_null_everywhere_may_be(world):
    """A nullable column without any value passes if the source finds nothing wrong with its files."""
    for row in world.source.files[BAD]:
        row["amount"] = None
    assert refused_keys(world.run()) == []


def test_unreadable_files_beside_good_ones_are_read_around(world):
    """When a file cannot be read to its end, the chunk is read again without it, and only its partition is refused."""
    world.source.unreadable = {KEYS[0], BAD}
    outcomes = world.run()
    assert refused_keys(outcomes) == [KEYS[0], BAD]
    assert world.source.staged_keys == [KEYS, KEYS]
    assert world.slept == [], "it is no conflict: nobody needs to wait"


def test_a_read_that_fails_for_no_file_is_an_error(world):
    """If the source finds no file to blame in five attempts, the launch fails instead of reading for ever."""
    world.script.always("stage", raising(UnreadableSourceError("No such host.", state=NOTHING_WRITTEN, remedy="Look.")))
    with pytest.raises(UnreadableSourceError, match="No such host"):
        world.run()
    assert world.source.staged_keys == [KEYS] * 5
    assert world.lake.version() == 0


# -- emptiness ---------------------------------------------------------------------------------------------------------


def test_an_allowed_empty_partition_is_published_with_no_rows():
    """With `empty: allowed` the rows of a partition go, and its receipt says 0 rows."""
    world = World(spec_with(empty="allowed"))
    world.run()
    empty_file(world)
    assert published_keys(world.run()) == [KEYS]
    assert BAD not in world.lake.content()
    receipt = world.lake.receipts()[2].partitions[BAD]
    assert (receipt.rows, receipt.checksum, receipt.first_event_micros) == (0, "0" * 16, None)


def test_a_partition_that_was_empty_stays_empty_without_a_word(world):
    """A new partition without rows is published and recorded, whatever the spec says of emptying."""
    empty_file(world)
    outcomes = world.run()
    assert refused_keys(outcomes) == []
    assert world.lake.receipts()[1].partitions[BAD].rows == 0


def test_a_plan_is_of_what_the_source_was(filled):
    """A launch reads a source again that changes meanwhile; one that carries out a plan fails, with nothing written."""
    filled.correct(BAD)
    filled.script.at("stage", lambda: filled.correct(BAD, amount=9))
    with pytest.raises(SourceChangedError):
        filled.run(plan="p1")
    assert filled.lake.version() == 1
    filled.script.at("stage", lambda: filled.correct(BAD, amount=10))
    assert published_keys(filled.run()) != []


@pytest.mark.parametrize("point", ["stage", "before_save"])
def test_a_plan_replaces_nothing_that_was_written_since(filled, point):
    """Another launch is read again and replaces it; one of a plan fails, and the other writer's rows are there."""
    filled.correct(BAD)
    theirs = orders_of(filled.spec, BAD, 4, amount=77)
    filled.script.at(point, lambda: filled.lake.commit_as_somebody_else({BAD: theirs}))
    with pytest.raises(CommitConflictError):
        filled.run([BAD], plan="p1")
    assert filled.lake.content()[BAD] == sorted(map(hash_of, theirs))


# -- shrinking ---------------------------------------------------------------------------------------------------------


def shrink(world):
    """Leave one row of three in the bad partition's file."""
    del world.source.files[BAD][1:]


def test_a_partition_that_shrinks_keeps_its_rows(filled):
    """It is refused with all its rows in place, the others are published; a launch that allows it publishes it too."""
    before = filled.lake.content()[BAD]
    shrink(filled)
    outcomes = filled.run()
    assert refused_keys(outcomes) == [BAD]
    assert filled.lake.content()[BAD] == before
    assert published_keys(filled.run([BAD], allow_shrink=True)) == [[BAD]]
    assert len(filled.lake.content()[BAD]) == 1
    assert refused_keys(filled.run()) == [], "what was allowed once is what is published now"


@pytest.mark.parametrize("before", [[], [KEYS[0]]], ids=["while it is staged", "in a chunk before it"])
def test_what_another_launch_publishes_meanwhile_counts(filled, before):
    """One of three rows may go; but ten are there when the chunk is staged at last, and two of ten are too few."""
    whole = orders_of(ORDERS, BAD, 10)
    filled.source.files[BAD] = whole[:2]

    def publish_ten() -> None:
        filled.source.files[BAD] = whole
        filled.run([BAD])
        filled.source.files[BAD] = whole[:2]

    filled.script.at("before_save", publish_ten)
    assert refused_keys(filled.run([*before, BAD], chunk=1)) == [BAD]
    assert len(filled.lake.content()[BAD]) == 10


def test_rows_that_nobody_published_may_be_fewer():
    """`max_shrink: 1` lets all but the last go, and a first publish has nothing to shrink from."""
    world = World(spec_with(max_shrink=1))
    world.run()
    shrink(world)
    assert refused_keys(world.run()) == []


@pytest.mark.parametrize("is_told", [True, False])
def test_a_key_of_which_nobody_told_is_kept_beside_one_of_which_somebody_did(is_told, monkeypatch):
    """The table may be the only place that still has it; a feed speaks of the keys that it names."""
    world = World()
    world.run()
    before = world.lake.content()
    told, untold = world.source.files[KEYS[0]][:2]
    world.source.files[KEYS[0]] = world.source.files[KEYS[0]][1 if is_told else 2 :]
    scan = world.source.scan

    def with_what_left(partitions, surveys):
        found = scan(partitions, surveys)
        said = {KEYS[0]: replace(found.evidence[KEYS[0]], deleted_rows=1)}
        return replace(found, evidence=found.evidence | said, gone=[told])

    monkeypatch.setattr(world.source, "scan", with_what_left)
    assert told != untold
    outcomes = world.run(KEYS[:2], guards=(ALL_KEYS,), allow_shrink=True)
    assert refused_keys(outcomes) == ([] if is_told else KEYS[:1])
    assert (world.lake.content() == before) is not is_told


def test_rows_that_a_stream_brought_twice_may_become_fewer():
    """Where the source has to cover every live row by its key, fewer rows than before are no loss."""
    world = World(spec_with(live={"path": "events", "starts": "2024-03-01"}, latest_wins_by=["updated_at"]))
    rows = world.source.files[BAD]
    world.lake.add_version({}, fence=Fence(datetime(2024, 3, 1, tzinfo=UTC), stream="s"))
    world.lake.commit_as_somebody_else({BAD: rows * 3})
    assert published_keys(world.run([BAD])) == [[BAD]]
    assert world.lake.receipts()[3].partitions[BAD].rows_before == 9

    other = World(spec_with(latest_wins_by=["updated_at"]))
    other.lake.commit_as_somebody_else({BAD: rows * 3})
    assert refused_keys(other.run([BAD])) == [BAD]
