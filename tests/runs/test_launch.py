"""What a launch does, and what Dagster is told of it: real runs on a real table, in this process.

Each scenario is launched once, in a fixture; the tests beneath it look at what it left behind.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pytest
from pyspark.sql import functions as F

from backfill_assets.runs import killed as runs
from tests.runs.scenes import DAY_1, DAY_2, DAY_3, DAY_4, DAY_5, Scene, same_keys, scene
from tests.support.launching import ORDERS, TOTALS, Lake, daily_totals
from tests.support.shop import multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ONE_SPEC = ["keys_are_unique", "rows_inside_partition", "rows_match_source", "schema_matches"]


# -- a launch that goes well -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(made: Callable[..., Lake]) -> Scene:
    """Five days are launched, of which the source has three; the launch may skip the others."""
    lake = made("good")
    for count, day in enumerate((DAY_1, DAY_2, DAY_3), start=2):
        lake.export(day, orders(day, count))
    config = {"reason": "first load", "max_partitions_per_chunk": 2, "may_find_nothing": True}
    return scene(lake, lake.launch(DAY_1, DAY_5, tables=(ORDERS, TOTALS), **config))


def test_the_table_has_the_sources_rows(good: Scene):
    """After a launch the table holds exactly the rows of its source."""
    assert good.ran.succeeded, good.ran.failure
    assert good.content == same_keys(DAY_1, count=2) + same_keys(DAY_2, count=3) + same_keys(DAY_3, count=4)


def test_each_partition_has_one_event(good: Scene):
    """Each published partition has one materialization event: ours, and none that Dagster adds at the end."""
    assert good.ran.recorded() == [DAY_1, DAY_2, DAY_3]
    assert good.ran.recorded(TOTALS) == [DAY_1, DAY_2, DAY_3]


def test_an_event_says_what_was_published(good: Scene):
    """An event names rows, bytes, version, checksum, seconds and reason of its own partition."""
    for rows, (day, version) in enumerate(((DAY_1, 1), (DAY_2, 1), (DAY_3, 2)), start=2):
        metadata = good.ran.metadata(day)
        assert metadata["dagster/partition_row_count"] == rows
        assert metadata["table_version"] == version
        assert metadata["size_bytes"] == sum((good.lake.path() / file).stat().st_size for file in good.files[day])
        assert len(metadata["checksum"]) == 16
        assert metadata["seconds"] >= 0
        assert metadata["reason"] == "first load"
        assert metadata["event_times"] == f"{day} 00:00:00 to {day} {rows - 1:02}:00:00 UTC"


def test_the_data_version_is_the_checksum(good: Scene):
    """Dagster knows each partition's content by its checksum, so equal content is never stale."""
    for event in good.ran.materializations():
        assert event.tags is not None
        assert event.tags["dagster/data_version"] == event.metadata["checksum"].value


def test_partitions_beyond_the_source_stay_missing(good: Scene):
    """Partitions for which the source is not complete have no event, stay missing, and are named in the launch."""
    done = dict.fromkeys((DAY_1, DAY_2, DAY_3), "materialized")
    assert good.shown == {**done, DAY_4: "missing", DAY_5: "missing"}
    assert good.totals_shown == good.shown
    assert (
        f"**Left out:** 2 from `{DAY_4}` to `{DAY_5}`: the source is not complete for them yet; they stay missing."
        in good.ran.launch
    )


def test_every_partition_is_reconciled(good: Scene):
    """Each published partition has a green evaluation of every rule, in the run that published it."""
    evaluations = good.ran.evaluations()
    for day in (DAY_1, DAY_2, DAY_3):
        assert evaluations[day].passed
        assert {name: evaluations[day].metadata[name].value for name in ONE_SPEC} == dict.fromkeys(ONE_SPEC, "holds")
    assert good.ran.verdicts(table=TOTALS)[DAY_3]


@pytest.mark.prove
def test_partitions_that_were_left_out_are_a_warning(good: Scene):
    """A partition that was left out is not green and does not fail the run: its evaluation is a warning that says why."""
    for day in (DAY_4, DAY_5):
        left_out = good.ran.evaluations()[day]
        assert (left_out.passed, left_out.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert "the source is not complete" in (left_out.description or "")


def test_the_launch_is_summed_up(good: Scene):
    """An observation of the table has one line of numbers for the whole launch."""
    head, _, numbers, *_ = good.ran.launch.splitlines()
    found = dict(zip(*([cell.strip() for cell in line.strip("|").split("|")] for line in (head, numbers)), strict=True))
    assert {name: found[name] for name in ("published", "rows", "commits", "refused", "left out")} == {
        "published": "3", "rows": "9", "commits": "2", "refused": "0", "left out": "2",
    }  # fmt: skip


def test_progress_is_logged_for_each_chunk(good: Scene):
    """Each chunk says in the log how far the launch is."""
    assert (
        f"Chunk 1 of 2 is version 1: {DAY_1} to {DAY_2}, 2 partitions, 5 rows; 2 of 3 partitions done" in good.ran.log
    )


def test_a_run_is_signed_by_its_process(good: Scene):
    """A run is tagged with the process it lives in, so that its death can be found out."""
    assert good.ran.run.tags[runs.PID] == str(os.getpid())
    assert good.ran.run.tags[runs.HOST] == socket.gethostname()


def test_receipts_can_be_queried(good: Scene):
    """`<table>_history` has a row for each partition and publish, with the run that made it."""
    rows = deltalake.DeltaTable(f"{good.lake.path()}_history").to_pyarrow_table().to_pylist()
    told = [(row["version"], row["partition"], row["rows"], row["run_id"]) for row in rows if row["what"] == "publish"]
    assert sorted(told) == [
        (1, DAY_1, 2, good.ran.run.run_id),
        (1, DAY_2, 3, good.ran.run.run_id),
        (2, DAY_3, 4, good.ran.run.run_id),
    ]


@pytest.mark.prove
def test_a_history_whose_log_is_damaged_fails_no_launch(made: Callable[..., Lake]):
    """What was published stays so, and the log says which file is damaged and what may be done."""
    lake = made("damaged")
    for day in (DAY_1, DAY_2):
        lake.export(day, orders(day))
    assert lake.launch(DAY_1).succeeded
    newest = max(Path(f"{lake.path()}_history/_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().rstrip()[:-20])
    ran = lake.launch(DAY_2)
    assert ran.succeeded, ran.failure
    assert ran.recorded() == [DAY_2]
    assert f"its history at `{lake.path()}_history` cannot be read" in ran.log
    assert "move it away, and the next launch fills it again" in ran.log


# -- what nobody foresaw -----------------------------------------------------------------------------------------------


@pytest.mark.prove
def test_an_unforeseen_error_fails_the_run_with_its_own_words(made: Callable[..., Lake]):
    """An error that is none of ours fails the run with its own text; nothing is written and nothing recorded."""

    def broken(orders: Any) -> Any:
        raise ZeroDivisionError("a mistake in somebody's transform")

    lake = made("unforeseen", transform=broken)
    lake.export(DAY_1, orders(DAY_1))
    ran = lake.launch(DAY_1, tables=(ORDERS, TOTALS))
    assert (ran.steps["bronze__orders"], ran.steps["silver__daily_totals"]) == ("success", "failure")
    assert "ZeroDivisionError: a mistake in somebody's transform" in ran.failure
    assert ran.recorded(TOTALS) == []
    assert not lake.path(TOTALS).exists()
    assert lake.shown(DAY_1, table=TOTALS) == {DAY_1: "failed"}


@pytest.mark.prove
def test_what_a_transform_cannot_compute_is_said_in_words(made: Callable[..., Lake]):
    """A sum that overflows, a divisor of zero, a text that is no number: Spark's words, and what to write instead."""

    def divides(orders: Any) -> Any:
        return daily_totals(orders.withColumn("amount", F.col("order_id") / (F.col("amount") - F.lit(0.25))))

    lake = made("divides", transform=divides)
    lake.export(DAY_1, orders(DAY_1))
    ran = lake.launch(DAY_1, tables=(ORDERS, TOTALS))
    assert ran.failure.startswith(
        f"`{TOTALS}`: what is computed of its rows cannot be computed of one of them: [DIVIDE_BY_ZERO] Division by zero."
    )
    assert "or in its transform: `try_divide`, `try_cast` and the like" in ran.failure
    assert lake.content(TOTALS) == multiset([])
