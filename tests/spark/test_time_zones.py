"""Java puts rows into partitions, Python names them: where their clocks differ nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo

import pytest

from backfill_assets.errors import ConfigurationError
from backfill_assets.lake.table import LakeTable
from backfill_assets.spark import time_zones
from backfill_assets.spark.time_zones import refuse_other_clocks
from tests.support.shop import orders_spec

NOW = datetime(2024, 9, 1, tzinfo=UTC)
ZONES = (
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia",
    "Africa/Casablanca",
)  # fmt: skip


@pytest.fixture
def old_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python has the rules of a neighbour for Berlin, as if one of the two had not heard of a change yet."""
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(rules_of("Europe/London"))
    monkeypatch.setattr("zoneinfo.TZPATH", TZPATH)
    import zoneinfo

    zoneinfo.reset_tzpath([str(tmp_path), *TZPATH])
    ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(TZPATH)
    ZoneInfo.clear_cache()
    time_zones._first_difference.cache_clear()


@pytest.mark.prove
@pytest.mark.usefixtures("old_rules")
def test_a_zone_that_java_does_not_know_is_refused(spark: Any, tmp_path: Path):
    """Python may have heard of one that is younger than Java's rules."""
    (tmp_path / "Europe" / "Atlantis").write_bytes(rules_of("Europe/London"))
    with pytest.raises(ConfigurationError, match="Java does not know the zone `Europe/Atlantis`"):
        refuse_other_clocks(spark, orders_spec(time_zone="Europe/Atlantis"), NOW)


def rules_of(zone: str) -> bytes:
    for folder in map(Path, TZPATH):
        if (folder / zone).exists():
            return (folder / zone).read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(zone).read_bytes()


@pytest.mark.parametrize(
    "zone", [pytest.param(zone, marks=[] if zone == "Europe/Berlin" else pytest.mark.prove) for zone in ZONES]
)
def test_both_have_the_same_clocks(spark: Any, zone: str):
    """Of a few dozen years, changes of the clocks, half hours and a day that was skipped included."""
    refuse_other_clocks(spark, orders_spec(time_zone=zone, start="1990-01-01"), NOW)


@pytest.mark.usefixtures("old_rules")
def test_other_clocks_are_refused(spark: Any, tmp_path: Path):
    """Before the table is made, by the first instant at which they differ; a table in UTC, or of days, has no clocks."""
    table = LakeTable(spark, orders_spec(time_zone="Europe/Berlin"), f"{tmp_path}/orders")
    with pytest.raises(
        ConfigurationError, match="show 2024-01-01 01:00:00 by Java's rules, and 2024-01-01 00:00:00 by"
    ):
        table.create()
    assert not table.exists()
    dates = {"order_id": "bigint", "ordered_at": "date"}
    refuse_other_clocks(spark, orders_spec(time_zone="Europe/Berlin", columns=dates), NOW)
    refuse_other_clocks(spark, orders_spec(), NOW)


@pytest.mark.parametrize(
    ("zone", "start", "returns"),
    [
        ("America/St_Johns", "2009-01-01", "2009-11-01 02:31Z"),
        pytest.param("America/St_Johns", "2012-01-01", None, marks=pytest.mark.prove),
    ],
)
def test_a_day_that_comes_once_more_after_midnight_is_refused(spark, zone, start, returns):
    """At 00:01 clocks went back to 23:01: an hour of the day before lies in the window of the next one, and content would depend on the chunk."""
    spec = orders_spec(time_zone=zone, start=start)
    if returns is None:
        refuse_other_clocks(spark, spec, NOW)
        return
    with pytest.raises(ConfigurationError, match=f"at {returns} the clocks of `{zone}` show the day before once more"):
        refuse_other_clocks(spark, spec, NOW)
    refuse_other_clocks(spark, orders_spec(time_zone=zone, start=start, grain="hourly"), NOW)
