"""What the list of runs shows of a launch without opening it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backfill_assets.runs.run_tags import progress_of
from tests.runs.scenes import DAY_1, DAY_2, DAY_3
from tests.support.launching import Lake
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.drawn
def test_a_launch_shows_its_range_its_reason_and_how_far_it_is(made: Callable[..., Lake]):
    """As tags that Dagster does not hide; one day is refused, one is left out."""
    lake = made("tagged")
    lake.export(DAY_1, orders(DAY_1))
    lake.export(DAY_2, orders(DAY_2) * 2)  # every key twice
    ran = lake.launch(DAY_1, DAY_3, reason="export was corrected")
    shown = {key: value for key, value in ran.run.tags.items() if not key.startswith((".dagster/", "dagster/"))}
    assert shown == {
        "partitions": f"{DAY_1}...{DAY_3}",
        "reason": "export was corrected",
        "bronze/orders": "1 of 3 published, 1 refused, 1 left out",
    }
    again = lake.launch(DAY_1, only="MISSING").run.tags
    assert again["bronze/orders"] == "0 of 1 published, 1 up to date"
    assert progress_of(again, "bronze/orders") == (1, 1), "nothing is left to do"
