"""A launch of a table with a live stream: where a batch waits for a save, chunks are cut as the spec says."""

from __future__ import annotations

import pytest

from backfill_assets.runs.launch import longest_publish_seconds
from tests.support.live_shop import live_spec
from tests.support.shop import orders, orders_spec

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


@pytest.mark.prove
@pytest.mark.spark
def test_a_run_that_discards_rows_is_not_repeated(made):
    """What it discards was said of what was history then; Dagster's re-execution, and its retry, would stretch it."""
    live = {"path": "events", "starts": "2024-01-04"}
    lake = made("discarding", latest_wins_by=["ordered_at"], live=live)
    lake.export("2024-01-01", orders("2024-01-01"))
    first = lake.launch("2024-01-01", discard_uncovered_rows=True)
    assert first.succeeded, first.failure
    before = lake.content()
    again = lake.launch("2024-01-01", again=first, discard_uncovered_rows=True)
    assert not again.succeeded
    assert f"This run repeats run {first.run.run_id}" in again.failure
    assert lake.content() == before
    assert lake.launch("2024-01-01", again=first).succeeded
