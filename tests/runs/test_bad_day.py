"""A launch with a bad day among good ones, and the launches after it: in a story that is told once, in fixtures."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest

from tests.runs.scenes import DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, Scene, same_keys, scene
from tests.support.launching import ORDERS, TOTALS, Lake
from tests.support.shop import orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture(scope="module")
def before(made: Callable[..., Lake]) -> Scene:
    """Three days are in the table."""
    lake = made("bad")
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day, customer="old"))
    return scene(lake, lake.launch(DAY_1, DAY_3))


@pytest.fixture(scope="module")
def bad(before: Scene) -> Scene:
    """All three days are corrected at the source, and the second has two rows with one key."""
    lake = before.lake
    for day in (DAY_1, DAY_2, DAY_3):
        lake.export(day, orders(day, customer="new") + (orders(day, 1, customer="again") if day == DAY_2 else []))
    return scene(lake, lake.launch(DAY_1, DAY_3, tables=(ORDERS, TOTALS), max_partitions_per_chunk=3))


@pytest.fixture(scope="module")
def repeated(bad: Scene) -> Scene:
    """The second day is put right, and Dagster executes the failed run again."""
    bad.lake.export(DAY_2, orders(DAY_2, customer="new"))
    return scene(bad.lake, bad.lake.launch(DAY_1, DAY_3, tables=(ORDERS, TOTALS), again=bad.ran))


@pytest.fixture(scope="module")
def only_missing(repeated: Scene) -> Scene:
    """The third day changes once more, a fourth arrives, and a launch asks for `MISSING` only."""
    repeated.lake.export(DAY_3, orders(DAY_3, customer="newest"))
    repeated.lake.export(DAY_4, orders(DAY_4))
    return scene(repeated.lake, repeated.lake.launch(DAY_1, DAY_4, only="MISSING"))


@pytest.fixture(scope="module")
def reprocessed(only_missing: Scene) -> Scene:
    """Every day changes at the source, and the range is launched as it was the first time."""
    for day in (DAY_1, DAY_2, DAY_3, DAY_4):
        only_missing.lake.export(day, orders(day, 2, customer="corrected"))
    return scene(only_missing.lake, only_missing.lake.launch(DAY_1, DAY_4))


def test_good_days_are_published_and_green(bad: Scene):
    """The days beside a bad one are published, recorded and shown as materialized."""
    assert bad.ran.recorded() == [DAY_1, DAY_3]
    assert bad.shown == {
        DAY_1: "materialized",
        DAY_2: "failed",
        DAY_3: "materialized",
        DAY_4: "missing",
        DAY_5: "missing",
    }


def test_a_bad_day_keeps_its_rows_and_files(before: Scene, bad: Scene):
    """The refused day has the rows it had, in the very files it had; its neighbours have new ones."""
    assert bad.content == same_keys(DAY_2, customer="old") + same_keys(DAY_1, DAY_3, customer="new")
    assert bad.files[DAY_2] == before.files[DAY_2]
    assert not bad.files[DAY_1] & before.files[DAY_1]


def test_the_run_fails_and_says_why(bad: Scene):
    """The run fails with the number of refused days, which, the rule, and what the table has there now."""
    assert not bad.ran.succeeded
    assert (
        f"`{ORDERS}`: 1 of 3 partitions were refused ({DAY_2}); the table keeps what it had there. 2 were published."
        in bad.ran.failure
    )
    assert "keys_are_unique: 1 row repeats a key" in bad.ran.failure
    assert f"| {DAY_2} | keys_are_unique" in bad.ran.launch  # the observation is there although the launch failed


def test_every_partition_of_a_failed_run_is_evaluated(bad: Scene):
    """The check has a verdict for every day: green for the published, red with the reason and a row for the refused."""
    assert bad.ran.verdicts() == {DAY_1: True, DAY_2: False, DAY_3: True}
    refused = bad.ran.evaluations()[DAY_2]
    assert refused.severity == dg.AssetCheckSeverity.ERROR
    assert "Refused, the table keeps what it had." in (refused.description or "")
    assert "order_id=" in refused.metadata["keys_are_unique"].value


def test_what_is_made_of_a_bad_day_does_not_run(bad: Scene):
    """Downstream of a failed table nothing is started in that run."""
    assert bad.ran.recorded(TOTALS) == []
    assert set(bad.totals_shown.values()) <= {"missing", "failed"}
    assert "silver__daily_totals" not in {step for step, end in bad.ran.steps.items() if end == "success"}


def test_a_repeated_run_does_the_rest(bad: Scene, repeated: Scene):
    """Executed again, a run leaves out what it published of the same content and publishes the rest; downstream runs."""
    assert repeated.ran.succeeded, repeated.ran.failure
    assert repeated.content == same_keys(DAY_1, DAY_2, DAY_3, customer="new")
    assert (repeated.files[DAY_1], repeated.files[DAY_3]) == (bad.files[DAY_1], bad.files[DAY_3])
    assert "an earlier attempt of this run published the same content" in repeated.ran.launch
    assert repeated.totals_shown[DAY_2] == "materialized"


def test_what_a_repeated_run_left_out_is_green(repeated: Scene):
    """A day that was left out since it is published already has an event with its receipt, and is green."""
    assert sorted(filter(None, repeated.ran.recorded())) == [DAY_1, DAY_2, DAY_3]
    assert "left_out" in repeated.ran.metadata(DAY_1)
    assert repeated.ran.metadata(DAY_1)["table_version"] < repeated.ran.metadata(DAY_2)["table_version"]
    assert [repeated.shown[day] for day in (DAY_1, DAY_2, DAY_3)] == ["materialized"] * 3


@pytest.mark.prove
def test_only_missing_writes_what_changed_or_is_not_there(repeated: Scene, only_missing: Scene):
    """With `only: MISSING` a launch writes the days whose source changed and those never published; others keep their files."""
    assert only_missing.ran.succeeded, only_missing.ran.failure
    assert only_missing.content == (
        same_keys(DAY_1, DAY_2, customer="new") + same_keys(DAY_3, customer="newest") + same_keys(DAY_4)
    )
    assert (only_missing.files[DAY_1], only_missing.files[DAY_2]) == (repeated.files[DAY_1], repeated.files[DAY_2])
    assert only_missing.files[DAY_3] != repeated.files[DAY_3]
    assert (
        f"**Left out:** 2 from `{DAY_1}` to `{DAY_2}`: their receipt names the source's content as it is now."
        in only_missing.ran.launch
    )


@pytest.mark.prove
def test_a_plain_launch_writes_everything(only_missing: Scene, reprocessed: Scene):
    """A launch writes every day that it names, whatever was there: that is how a corrected source is reprocessed."""
    assert reprocessed.ran.succeeded, reprocessed.ran.failure
    assert reprocessed.content == same_keys(DAY_1, DAY_2, DAY_3, DAY_4, count=2, customer="corrected")
    for day in (DAY_1, DAY_2, DAY_3, DAY_4):
        assert not reprocessed.files[day] & only_missing.files[day]
    assert reprocessed.ran.verdicts() == dict.fromkeys((DAY_1, DAY_2, DAY_3, DAY_4), True)
