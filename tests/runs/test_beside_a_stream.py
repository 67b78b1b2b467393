"""A launch of a table with a live stream: where a batch waits for a save, chunks are cut as the spec says."""

from __future__ import annotations

import pytest

from backfill_assets.runs.launch import longest_publish_seconds
from tests.support.live_shop import live_spec
from tests.support.shop import orders_spec

LIVE = live_spec(live={"path": "events", "starts": "2024-01-04", "max_publish_seconds": 7})


@pytest.mark.parametrize(
    ("spec", "path", "seconds"),
    [
        (LIVE, "/lake/orders", 7.0),
        (LIVE, "file:///lake/orders", 7.0),
        (LIVE, "hdfs://name/lake/orders", None),
        (orders_spec(), "/lake/orders", None),
    ],
)
def test_a_batch_waits_no_longer_than_the_spec_says(spec, path, seconds):
    """`live.max_publish_seconds` holds where writers of a table wait for each other, and nowhere else."""
    assert longest_publish_seconds(spec, path) == seconds
