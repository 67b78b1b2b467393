"""Where a stream begins: the first fence of a table, and what history has published behind it."""

from __future__ import annotations

import pytest

from backfill_assets.core.state.fence import first_fence, refuse_rows_behind
from backfill_assets.errors import FenceError
from tests.core.state.grids import SHAPES, instant, spec_of


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_begins_with_its_first_local_day(shape):
    """Whatever the grain and the zone, hours too: the first fence is the start of the partition with which that day begins."""
    spec = spec_of(shape)
    fence = first_fence(spec)
    assert spec.grid.partition_of(fence.at_utc).window.start_utc == fence.at_utc
    assert fence.at_utc.astimezone(spec.grid.zone).isoformat()[:19] == f"{spec.live.starts}T00:00:00"


@pytest.mark.parametrize(
    ("shape", "newest", "first_possible"),
    [
        ("daily", "2024-03-01T00:00:00Z", "2024-03-02"),
        ("weekly", "2024-02-28T00:00:00Z", "2024-03-04"),
        ("hourly", "2024-03-01T05:00:00Z", "2024-03-02"),
        ("hourly", "2024-03-01T23:00:00Z", "2024-03-02"),
        ("Kolkata hourly", "2024-03-01T18:00:00Z", "2024-03-02"),
    ],
)
def test_a_stream_that_would_write_over_history_is_told_its_first_day(shape, newest, first_possible):
    """The stream may begin on the first day of which history has no partition at all; where it has none, nothing is refused."""
    spec = spec_of(shape)
    fence = first_fence(spec)
    partition = spec.grid.partition_of(instant(newest))
    with pytest.raises(FenceError, match=f"Set `live.starts` to `{first_possible}` or later"):
        refuse_rows_behind(spec, fence, partition)
    refuse_rows_behind(spec, fence, spec.grid.previous(spec.grid.partition_of(fence.at_utc)))
