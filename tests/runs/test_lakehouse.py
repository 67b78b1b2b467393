"""The lakehouse as one run has it: how its session starts, and what the run has read."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from backfill_assets.core.calendar.partitions import Grid
from backfill_assets.core.calendar.windows import Grain
from backfill_assets.core.state.tallies import EMPTY
from backfill_assets.runs.resources import Lakehouse
from backfill_assets.runs.seen import Seen
from tests.support.launching import new_lake
from tests.support.shop import orders

DAYS = Grid(Grain.DAILY, date(2024, 1, 1))
MONTHS = Grid(Grain.MONTHLY, date(2024, 1, 1))


@pytest.mark.parametrize(
    ("partitions", "is_long"),
    [
        (DAYS.until(datetime(2024, 1, 2, tzinfo=UTC)), False),
        (DAYS.until(datetime(2024, 7, 18, tzinfo=UTC)), False),
        (DAYS.until(datetime(2024, 7, 19, tzinfo=UTC)), True),
        (MONTHS.until(datetime(2024, 6, 30, tzinfo=UTC)), False),
        (MONTHS.until(datetime(2024, 7, 31, tzinfo=UTC)), True),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, list) else None,
)
def test_much_work_is_compiled_well(monkeypatch, partitions, is_long):
    """Java's second compiler costs a small launch more than it gives, and a range of 200 days or partitions is worth it."""
    seen = []

    class EnoughError(Exception):
        pass

    def start(config):
        seen.append(config)
        raise EnoughError

    monkeypatch.setattr("backfill_assets.spark.session.start_jvm", start)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.delenv("SPARK_EXTRA_CONF", raising=False)
    lakehouse = Lakehouse()
    lakehouse.expect(partitions)
    with pytest.raises(EnoughError):
        _ = lakehouse.spark
    assert ("-XX:TieredStopAtLevel=1" in seen[0]["spark.driver.extraJavaOptions"]) is not is_long


def test_what_one_run_has_read_is_nothing_to_another():
    """A lakehouse may serve several runs in one process: green is what this run has seen."""
    lakehouse = Lakehouse()
    seen = lakehouse.seen("first", "bronze/orders")
    seen.rows["2024-01-01"] = (3, EMPTY)
    seen.left_out.add("2024-01-02")
    assert lakehouse.seen("first", "silver/orders") == Seen()
    assert lakehouse.seen("first", "bronze/orders") == seen != Seen()
    assert lakehouse.seen("second", "bronze/orders") == lakehouse.seen("first", "bronze/orders") == Seen()


@pytest.mark.usefixtures("spark")
def test_a_launch_says_what_it_is_about_before_the_session_starts(tmp_path, monkeypatch):
    """Otherwise a long launch would be compiled as a short one: its step, and its checks alone."""
    told: list[list[str]] = []
    monkeypatch.setattr(Lakehouse, "expect", lambda _, partitions: told.append([p.key for p in partitions]))
    lake = new_lake(tmp_path)
    lake.export("2024-01-01", orders("2024-01-01"))
    assert lake.launch("2024-01-01").succeeded
    assert lake.reconcile("2024-01-01").succeeded
    assert told == [["2024-01-01"]] * 3


def test_two_slashes_in_front_are_one():
    """Hadoop would take what stands behind two slashes for the name of a host."""
    lakehouse = Lakehouse(root="//srv/lake")

    assert lakehouse.root_uri == "/srv/lake"
    assert lakehouse.landing_path("//srv/exports") == "/srv/exports"
    assert Lakehouse(root="s3a://bucket/lake").root_uri == "s3a://bucket/lake"
