"""The lakehouse as one run has it: how its session starts, and what the run has read."""

from __future__ import annotations

from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.seen import Seen


def test_what_one_run_has_read_is_nothing_to_another():
    """A lakehouse may serve several runs in one process: green is what this run has seen."""
    lakehouse = Lakehouse()
    seen = lakehouse.seen("first", "bronze/orders")
    seen.rows["2024-01-01"] = (3, EMPTY)
    seen.left_out.add("2024-01-02")
    assert lakehouse.seen("first", "silver/orders") == Seen()
    assert lakehouse.seen("first", "bronze/orders") == seen != Seen()
    assert lakehouse.seen("second", "bronze/orders") == lakehouse.seen("first", "bronze/orders") == Seen()


def test_two_slashes_in_front_are_one():
    """Hadoop would take what stands behind two slashes for the name of a host."""
    lakehouse = Lakehouse(root="//srv/lake")

    assert lakehouse.root_uri == "/srv/lake"
    assert lakehouse.landing_path("//srv/exports") == "/srv/exports"
    assert Lakehouse(root="s3a://bucket/lake").root_uri == "s3a://bucket/lake"
