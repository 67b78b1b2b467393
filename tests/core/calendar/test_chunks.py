"""Chunks: how a range is cut, by partitions and by bytes, and in halves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.calendar.chunks import chunks_of, halves_of
from tests.core.calendar.grids import DAILY, YEARS
from tests.support.docstring_tables import table_of


def sizes_of(count, *, max_partitions, max_bytes=1 << 40, size_bytes=None):
    """Return how many partitions each chunk has."""
    partitions = YEARS[:count]
    by_key = {p.key: size for p, size in zip(partitions, size_bytes or [0] * count, strict=True)}
    return [
        len(c) for c in chunks_of(partitions, max_partitions=max_partitions, max_bytes=max_bytes, size_bytes=by_key)
    ]


@pytest.mark.parametrize("row", table_of(chunks_of), ids=lambda row: f"{row['partitions']} by {row['max_partitions']}")
def test_chunks_are_what_their_docstring_says(row):
    """Every row of the table in `chunks_of` holds."""
    assert sizes_of(int(row["partitions"]), max_partitions=int(row["max_partitions"])) == [
        int(n) for n in row["chunks"].split(",")
    ]


@pytest.mark.parametrize(
    ("size_bytes", "max_bytes", "chunks"),
    [
        ([10, 10, 10, 10], 20, [2, 2]),
        ([10, 10, 10], 20, [2, 1]),
        ([50, 1, 1, 1], 20, [1, 3]),
        ([1, 50, 1], 20, [1, 1, 1]),
        ([21], 20, [1]),
        ([20, 20], 20, [1, 1]),
        ([0, 0, 0, 20], 20, [4]),
    ],
)
def test_chunks_are_cut_by_bytes(size_bytes, max_bytes, chunks):
    """No chunk reads more than the bytes allowed, unless one partition alone does; such a one is a chunk of its own."""
    assert sizes_of(len(size_bytes), max_partitions=100, max_bytes=max_bytes, size_bytes=size_bytes) == chunks


def test_the_last_chunk_is_no_crumb():
    """Chunks that only the number of partitions bounds differ by one at most."""
    for count in range(1, 60):
        for most in range(1, 13):
            sizes = sizes_of(count, max_partitions=most)
            assert max(sizes) - min(sizes) <= 1, (count, most, sizes)
            assert len(sizes) == -(-count // most), "no more chunks than are needed"


@given(st.lists(st.integers(0, 400), unique=True, max_size=60), st.integers(1, 20), st.integers(1, 100), st.data())
def test_chunks_cover_everything_once_in_order_and_within_limits(offsets, max_partitions, max_bytes, data):
    """Whatever the order given: every partition is in one chunk, in order of time, and limits hold."""
    partitions = [DAILY.partition((DAILY.start + timedelta(days=n)).isoformat()) for n in offsets]
    size_bytes = {p.key: data.draw(st.integers(0, 120)) for p in partitions if data.draw(st.booleans())}
    chunks = chunks_of(partitions, max_partitions=max_partitions, max_bytes=max_bytes, size_bytes=size_bytes)
    assert [p for chunk in chunks for p in chunk] == sorted(partitions)
    for chunk in chunks:
        assert 1 <= len(chunk) <= max_partitions
        assert len(chunk) == 1 or sum(size_bytes.get(p.key, 0) for p in chunk) <= max_bytes


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_halves_are_the_chunk_in_order(count):
    """Both halves have something, and together they are the chunk."""
    chunk = DAILY.between("2024-01-01", "2024-01-09")[:count]
    one, other = halves_of(chunk)
    assert one + other == chunk
    assert abs(len(one) - len(other)) <= 1
    assert one
