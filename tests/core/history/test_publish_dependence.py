"""A partition of each chunk is made once more by itself where code makes chunks: if it is another one, nothing is written."""

from __future__ import annotations

import pytest

from backfill_assets.errors import ChunkDependenceError
from tests.core.history.world import KEYS, World, published_keys
from tests.support.fakes import FakeSource, spec_with


class Numbering(FakeSource):
    """Code that makes rows of a chunk at once, and numbers them.

    Args:
        from_first: Whether over the whole chunk, or each partition by itself.
    """

    from_first = True

    def makes_chunks_at_once(self):
        return True

    def scan(self, partitions, surveys):
        scan = super().scan(partitions, surveys)
        for number, row in enumerate(scan.rows):
            row["amount"] = number if self.from_first else number % 3
        return scan


def world_of(**changes):
    world = World(spec_with(**changes))
    world.source = Numbering(world.spec, world.source.files, world.script)
    return world


def test_content_that_depends_on_the_chunk_is_not_written():
    """The one in the middle is made again; the error names it, and the chunk stays as it was."""
    world = world_of()
    with pytest.raises(ChunkDependenceError) as refused:
        world.run(chunk=3)
    assert str(refused.value).startswith(
        f"`bronze/orders`: partition {KEYS[1]} is another one when it is made by itself than in the chunk {KEYS[0]} to {KEYS[2]}: 3 rows"
    )
    assert world.source.staged_keys == [KEYS[:3], [KEYS[1]]]
    assert world.lake.content() == {}


def test_content_that_does_not_is_written():
    """It costs one partition of each chunk, and nothing where a chunk is one partition, or nobody's code makes it."""
    world = world_of()
    world.source.from_first = False
    assert published_keys(world.run(chunk=3)) == [KEYS[:3], KEYS[3:]]
    assert world.source.staged_keys == [KEYS[:3], [KEYS[1]], KEYS[3:], [KEYS[4]]]
    singly = world_of()
    assert published_keys(singly.run(chunk=1)) == [[key] for key in KEYS]
    assert singly.source.staged_keys == [[key] for key in KEYS]


def test_late_rows_and_empty_days_are_no_dependence():
    """A partition with rows is taken where there is one, and its own late rows belong to it both times."""
    live = {"path": "orders", "starts": "2024-03-10"}
    world = world_of(latest_wins_by=["updated_at"], live=live)
    world.source.from_first = False
    world.source.files = {key: rows if key == KEYS[0] else [] for key, rows in world.source.files.items()}
    world.lake.late_rows = [
        {**world.source.files[KEYS[0]][0], "order_id": 1},
        {**world.source.files[KEYS[0]][0], "order_id": 2},
    ]
    assert published_keys(world.run()) == [KEYS]
    assert world.source.staged_keys == [KEYS, [KEYS[0]]]


def test_sums_of_floating_point_columns_may_differ_in_the_last_digit():
    """Their order is not the same alone: of a table with such a column only the rows are counted."""
    columns = {**spec_with().model_dump(exclude_unset=True)["columns"], "amount": "double"}
    assert published_keys(world_of(columns=columns).run()) == [KEYS]
