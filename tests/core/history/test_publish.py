"""The use case over a source and a lake in memory: chunks, their receipts, and the same content whichever way."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.errors import SchemaMismatchError, WindowError
from tests.core.history.world import BAD, KEYS, World, published_keys
from tests.support.fakes import ORDERS, orders_of, spec_with

# -- chunks ------------------------------------------------------------------------------------------------------------


def test_a_launch_makes_the_table_equal_to_its_source(world):
    """Every partition that is named is published, in one commit if it fits, and no other."""
    world.source.files["2024-02-25"] = orders_of(ORDERS, "2024-02-25")
    assert published_keys(world.run()) == [KEYS]
    expected = world.source_content()
    del expected["2024-02-25"]
    assert world.lake.content() == expected
    assert world.lake.version() == 1


def test_a_chunk_is_a_commit(world):
    """Chunks are published one by one, in order of time; each outcome says which of how many it is."""
    outcomes = world.run(reversed(KEYS), chunk=2)
    assert published_keys(outcomes) == [KEYS[:2], KEYS[2:4], KEYS[4:]]
    assert [(o.chunk, o.chunks, o.commit.version) for o in outcomes] == [(1, 3, 1), (2, 3, 2), (3, 3, 3)]
    assert [version.touched for version in world.lake.versions[1:]] == [set(KEYS[:2]), set(KEYS[2:4]), set(KEYS[4:])]


def test_each_step_is_told_when_it_begins(world):
    """For whoever watches a launch: the chunk, and what is done with it; a partition that is refused is not committed."""
    world.source.files[KEYS[0]] *= 2  # each key twice
    world.run(KEYS[:2], chunk=1)
    steps = ["scan", "write", "audit", "commit"]
    first, second = ([f"chunk {n} of 2 (1 partition): {step}" for step in steps] for n in (1, 2))
    assert world.steps == [*first[:3], *second]


def test_the_spec_says_how_large_chunks_are_unless_the_launch_does():
    """The limits on partitions and on bytes are the spec's; a launch may set the first one."""
    by_partitions = World(spec_with(chunk={"max_partitions": 3}))
    assert published_keys(by_partitions.run()) == [KEYS[:3], KEYS[3:]]
    assert len(published_keys(by_partitions.run(chunk=6))) == 1
    by_bytes = World(spec_with(chunk={"max_source_bytes": 700}))
    assert published_keys(by_bytes.run()) == [KEYS[:2], KEYS[2:4], KEYS[4:]]


def test_a_chunk_is_in_the_table_before_the_next_is_read(world):
    """Who stops taking outcomes stops the launch: what was told is published, and nothing more was staged."""
    outcomes = world.outcomes(chunk=2)
    assert published_keys([next(outcomes)]) == [KEYS[:2]]
    assert world.lake.content().keys() == set(KEYS[:2])
    assert world.source.staged_keys == [KEYS[:2]]
    outcomes.close()
    assert world.lake.version() == 1
    assert world.lake.staged_now == 0


def test_the_receipt_in_the_commit_says_what_was_done(world):
    """The commit carries who, why, from where and what, as the outcome tells it."""
    world.run(run_id="earlier")
    (outcome,) = world.run(KEYS[:2], run_id="run 7", root_run_id="run 1", reason="late files", code_version="c4")
    receipt = world.lake.receipts()[2]
    assert receipt == outcome.receipt
    assert (receipt.table, receipt.run.id, receipt.run.root_id) == ("bronze/orders", "run 7", "run 1")
    assert (receipt.run.reason, receipt.run.code_version, receipt.kind) == ("late files", "c4", "publish")
    assert (receipt.staged_from_version, receipt.source) == (1, {"kind": "files", "files": 2})
    surveys = world.source.survey([ORDERS.grid.partition(key) for key in KEYS[:2]])
    assert {key: (p.rows, p.fingerprint) for key, p in receipt.partitions.items()} == {
        key: (3, surveys[key].fingerprint) for key in KEYS[:2]
    }
    tallies = world.lake.tally(outcome.partitions)
    assert all(receipt.partitions[key].matches(tallies[key]) for key in KEYS[:2])


def test_every_publish_has_its_own_receipt_id(world):
    """Receipts of chunks, and of the same launch twice, can be told apart."""
    world.run(chunk=2)
    world.run(chunk=2)
    assert len({receipt.receipt_id for receipt in world.lake.receipts().values()}) == 6


def test_rows_that_a_newer_one_replaced_are_counted():
    """With `latest_wins_by` the newest row of a key is published, and the receipt counts the others."""
    world = World(spec_with(latest_wins_by=["updated_at"]))
    (first, *_) = world.source.files[BAD]
    newer = {**first, "amount": 99, "updated_at": first["updated_at"] + timedelta(hours=1)}
    world.source.files[BAD].insert(0, newer)
    world.run()
    assert sorted(row["amount"] for row in world.lake.versions[1].rows[BAD]) == [1, 1, 99]
    receipt = world.lake.receipts()[1]
    assert {key: p.superseded_rows for key, p in receipt.partitions.items() if p.superseded_rows} == {BAD: 1}


def test_a_launch_that_names_nothing_is_refused(world):
    """An empty list of partitions is an error, not a green launch that did nothing."""
    with pytest.raises(WindowError) as caught:
        world.run([])
    assert "no partition is named" in str(caught.value)


def test_a_source_with_other_columns_is_refused_before_it_is_read(world):
    """If the source does not have the spec's columns, nothing is staged."""
    world.source.schema_problem = "`amount` is missing"
    with pytest.raises(SchemaMismatchError):
        world.run()
    assert world.script.passed == []


def test_remarks_on_the_columns_are_told(world):
    """What the source says of its columns without refusing them goes to the log."""
    world.source.remarks = ["`x` is not in the spec; left out."]
    world.run()
    assert world.said == ["`x` is not in the spec; left out."]


# -- the same content --------------------------------------------------------------------------------------------------


LATEST_WINS = spec_with(latest_wins_by=["updated_at"])


@st.composite
def sources(draw):
    """Files with rows that repeat keys, in any order; some of them empty."""
    files = {}
    for key in KEYS:
        rows = orders_of(LATEST_WINS, key, draw(st.integers(0, 4)))
        hours = [draw(st.integers(-1, 1)) for _ in rows]
        again = [
            {**r, "amount": 2 + h, "updated_at": r["updated_at"] + timedelta(hours=h)}
            for r, h in zip(rows, hours, strict=True)
        ]
        files[key] = draw(st.permutations(rows + again[: draw(st.integers(0, 4))]))
    return files


@settings(max_examples=50)
@given(sources(), st.integers(1, 6), st.permutations(KEYS))
def test_any_launch_of_the_same_source_has_the_same_content(files, chunk, order):
    """Whole, in chunks of any size, partition by partition in any order, three times: the same rows."""

    def fresh():
        world = World(LATEST_WINS)
        world.source.files = {key: list(rows) for key, rows in files.items()}
        return world

    whole = fresh()
    whole.run()
    content = whole.lake.content()
    assert sum(map(len, content.values())) == len(
        {(key, row["order_id"]) for key, rows in files.items() for row in rows}
    )

    chunked = fresh()
    chunked.run(chunk=chunk)
    singly = fresh()
    for key in order:
        singly.run([key])
    whole.run()
    whole.run(reversed(KEYS), chunk=chunk)
    for world in (chunked, singly, whole):
        assert world.lake.content() == content
    newest = [{key: p.partition for key, p in world.lake.published().items()} for world in (chunked, singly, whole)]
    assert all(receipts == newest[0] for receipts in newest)
