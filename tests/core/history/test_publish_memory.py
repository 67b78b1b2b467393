"""A launch that runs out of memory goes on with halves, then with slices of one partition."""

from __future__ import annotations

import pytest

from backfill_assets.errors import NOTHING_WRITTEN, MemoryExhaustedError
from tests.core.history.world import KEYS, published_keys
from tests.support.fakes import raising


@pytest.mark.parametrize(
    ("bearable", "chunks"), [(6, [6]), (5, [3, 3]), (3, [3, 3]), (2, [1, 2, 1, 2]), (1, [1, 1, 1, 1, 1, 1])]
)
def test_a_chunk_that_is_too_large_is_halved(world, bearable, chunks):
    """When memory runs out the chunk is halved, down to one partition if need be; nothing is lost or done twice."""
    world.lake.memory_partitions = bearable
    outcomes = world.run()
    assert [len(keys) for keys in published_keys(outcomes)] == chunks
    assert [key for keys in published_keys(outcomes) for key in keys] == KEYS
    assert world.lake.content() == world.source_content()
    assert world.slept == []
    if bearable == 5:
        assert world.said == ["Spark ran out of memory over 6 partitions; continuing with halves."]


def test_a_partition_that_is_too_large_goes_through_in_slices(world):
    """A partition that does not fit by itself is cut by key, finer if need be, and is still one commit."""
    world.lake.memory_partitions = 1 / 10
    outcomes = world.run()
    assert [key for keys in published_keys(outcomes) for key in keys] == KEYS
    assert world.lake.version() == len(KEYS), "a commit for each partition"
    assert world.lake.content() == world.source_content()
    assert f"Spark ran out of memory over {KEYS[0]} alone; continuing with 8 slices of it by key." in world.said
    assert f"Spark ran out of memory over {KEYS[0]} alone; continuing with 64 slices of it by key." in world.said


def test_a_chunk_that_is_indivisible_stays_one_commit(world):
    """A row may have moved from one of its partitions to another: in halves readers would see it twice, or nowhere."""
    world.lake.memory_partitions = 1
    assert published_keys(world.run(is_indivisible=True)) == [KEYS]
    assert world.said == [
        "Spark ran out of memory over 6 partitions of one commit; continuing with 8 slices of it by key."
    ]
    assert (world.lake.version(), world.lake.content()) == (1, world.source_content())


def test_a_partition_that_is_too_large_even_in_slices_is_an_error(filled):
    """When the finest cut does not help the launch fails, and the table is as it was."""
    old = filled.lake.content()
    filled.lake.memory_partitions = 0
    with pytest.raises(MemoryExhaustedError):
        filled.run()
    assert (filled.lake.version(), filled.lake.content()) == (1, old)


def test_memory_that_runs_out_during_the_save_halves_too(filled):
    """The write may run out of memory as well as the read."""
    filled.script.at("during_save", raising(MemoryExhaustedError("Full.", state=NOTHING_WRITTEN, remedy="Less.")))
    assert published_keys(filled.run()) == [KEYS[:3], KEYS[3:]]
    assert filled.lake.content() == filled.source_content()
