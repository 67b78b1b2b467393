"""Tallies: checksums that add up, whatever the order, and instants that stay exact."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.state.tallies import Tally, checksum_of, instant_of, total

HASHES = st.integers(-(1 << 63), (1 << 63) - 1)
"""What Spark's `xxhash64` returns: a signed 64-bit number."""


def lanes_of(hashes):
    """Sum hashes in two lanes as Spark does: the upper 32 bits with their sign, the lower ones without."""
    return sum(h >> 32 for h in hashes), sum(h & 0xFFFFFFFF for h in hashes)


@given(st.lists(HASHES))
def test_two_lanes_are_the_sum_of_the_hashes(hashes):
    """The lanes, joined, are the sum of the hashes modulo 2**64, for negative hashes too."""
    assert checksum_of(*lanes_of(hashes)) == sum(hashes) % (1 << 64)


@given(st.lists(HASHES), st.randoms())
def test_a_checksum_does_not_depend_on_the_order(hashes, random):
    """Rows in another order have the same checksum."""
    shuffled = list(hashes)
    random.shuffle(shuffled)
    assert checksum_of(*lanes_of(shuffled)) == checksum_of(*lanes_of(hashes))


@given(st.lists(HASHES, min_size=1))
def test_a_row_that_comes_twice_changes_the_checksum(hashes):
    """Unlike an exclusive or, a sum notices a repeated row, unless its hash is 0."""
    twice = [*hashes, hashes[0]]
    assert (checksum_of(*lanes_of(twice)) == checksum_of(*lanes_of(hashes))) == (hashes[0] == 0)


@given(st.lists(st.lists(HASHES), max_size=6))
def test_the_checksums_of_parts_add_up_to_the_whole(parts):
    """Rows and checksum of several partitions together are those of all their rows."""
    tallies = [Tally(rows=len(part), checksum=checksum_of(*lanes_of(part))) for part in parts]
    everything = [h for part in parts for h in part]
    assert total(tallies) == (len(everything), checksum_of(*lanes_of(everything)))


@pytest.mark.parametrize(
    ("checksum", "text"), [(0, "0000000000000000"), (255, "00000000000000ff"), ((1 << 64) - 1, "ffffffffffffffff")]
)
def test_a_checksum_is_written_with_16_digits(checksum, text):
    """Its text has the same length for every value, so that texts compare as numbers do."""
    assert Tally(checksum=checksum).checksum_hex == text


@pytest.mark.parametrize(
    ("micros", "instant"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        (1709251199999999, datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)),
        (253402300799999999, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        (None, None),
    ],
)
def test_microseconds_become_instants_exactly(micros, instant):
    """No microsecond is lost, not even at the end of time; no row, no instant."""
    assert instant_of(micros) == instant
    tally = Tally(first_event_micros=micros, last_event_micros=micros)
    assert (tally.first_event_utc, tally.last_event_utc) == (instant, instant)
