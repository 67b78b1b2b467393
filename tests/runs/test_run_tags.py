"""What the list of runs shows of a launch without opening it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backfill_assets.runs.run_tags import progress_of, step_of
from tests.runs.scenes import DAY_1, DAY_2, DAY_3
from tests.support.launching import Lake
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.prove
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
    assert progress_of(again, "bronze/orders")[:2] == (1, 1), "nothing is left to do"


@pytest.mark.parametrize(
    ("said", "progress"),
    [
        ("0 of 3 published", (0, 3, 0, 3)),
        ("1 of 1,000 published, 970 up to date", (971, 1_000, 1, 29)),
        (
            "1,200 of 3,000 published, 3 identical, 40 refused, 57 left out; chunk 3 of 6 (90 partitions): audit",
            (1_203, 3_000, 1_243, 1_700),
        ),
        ("export was corrected", None),
    ],
)
def test_what_is_left_is_what_nothing_is_told_of(said, progress):
    """So the time that is left is judged by what the launch has worked on, and not by what it has left alone."""
    assert progress_of({"bronze/orders": said}, "bronze/orders") == progress


def test_the_step_is_what_comes_after_the_counts():
    """A run that has ended says none."""
    said = "1 of 3 published, 1 refused; chunk 2 of 3 (1 partition): write"
    assert step_of({"bronze/orders": said}, "bronze/orders") == "chunk 2 of 3 (1 partition): write"
    assert step_of({"bronze/orders": "1 of 3 published"}, "bronze/orders") == ""
