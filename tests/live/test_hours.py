"""An hourly table with a stream: both sides write hours, in a zone whose hours begin at half past."""

from __future__ import annotations

import pytest

from backfill_assets.live.fence_queries import inspect
from tests.support.live_shop import Shop, event, live_spec
from tests.support.shop import published_keys, refusals


@pytest.mark.prove
def test_a_stream_and_history_write_the_hours_of_one_table(spark, tmp_path):
    """The table is made, history is launched, events are appended, late ones folded in, an hour is sealed, and the fence looked at."""
    shop = Shop(spark, tmp_path, live_spec(grain="hourly", time_zone="Asia/Kolkata"))
    shop.export("2024-01-03", event(1, "2024-01-03T10:40:00"))
    shop.export("2024-01-04", event(2, "2024-01-03T18:30:00"))
    shop.export("2024-01-05", event(5, "2024-01-04T18:30:00"))  # then that of the day before is complete
    assert published_keys(shop.launch("2024-01-03-16:00", "2024-01-03-16:00")) == ["2024-01-03-16:00"]
    shop.land(event(2, "2024-01-03T18:30:00"), event(3, "2024-01-03T18:29:59"), event(4, "2024-01-03T10:30:00"))

    shop.stream()

    assert (shop.ids(), shop.ids("_late")) == ([1, 2], [3, 4])
    assert published_keys(shop.launch("2024-01-03-16:00", "2024-01-03-16:00", only="missing")) == ["2024-01-03-16:00"]
    assert shop.ids() == [1, 2, 4]
    shop.move("2024-01-03T19:30:00Z")
    outcomes = shop.launch("2024-01-04-00:00", "2024-01-04-01:00")
    assert (published_keys(outcomes), refusals(outcomes)) == (["2024-01-04-00:00"], {})
    found = inspect(shop.table, shop.spec.live, str(shop.landing), checkpoint="", now=shop.now)
    numbers = {check.name: check.numbers for check in found}
    assert numbers["late_rows_are_folded"]["rows_waiting"] == 1
    assert numbers["no_overlap_at_fence"] == {
        "partitions_written_by_both": 0,
        "keys_on_both_sides": 0,
        "live_keys_twice": 0,
        "rows_outside_of_any_partition": 0,
    }
