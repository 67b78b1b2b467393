"""A launch of a table with a live stream: where a batch waits for a save, chunks are cut as the spec says."""

from __future__ import annotations

import pytest

from tests.support.shop import orders


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
