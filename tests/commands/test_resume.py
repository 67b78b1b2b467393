"""`resume`: what a launch had left is done as it would have done it, and nothing else."""

from __future__ import annotations

import json
from datetime import datetime

import dagster as dg
import deltalake
import pytest

from backfill_assets.runs import pacing
from tests.commands.places import new_place
from tests.support.launching import ORDERS
from tests.support.shop import multiset, orders

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

DAYS = [f"2024-01-0{n}" for n in range(1, 5)]


def test_resume_of_a_stopped_launch_does_the_rest(tmp_path, monkeypatch):
    """It was stopped before its third chunk: a commit for each of the two days that were left, and none for the others."""
    nights = {"cron": "0 22 * * *", "hours": 8}
    place, chunks = new_place(tmp_path, pace={"off_peak": nights}), list[datetime]()
    for day in DAYS:
        place.lake.export(day, orders(day, 4))

    def opens(_: object, zone_name: str, now_utc: datetime) -> datetime:
        chunks.append(now_utc)
        if len(chunks) == 3:
            (record,) = place.lake.instance.get_run_records(limit=1)
            place.lake.instance.report_run_canceling(record.dagster_run)
            raise dg.DagsterExecutionInterruptedError
        return now_utc

    monkeypatch.setattr(pacing, "opens_at", opens)
    with place.instance() as place.lake.instance:
        ended = place.lake.launch(DAYS[0], DAYS[-1], max_partitions_per_chunk=1, rewrite_identical=True)
        assert (ended.run.status, ended.recorded()) == (dg.DagsterRunStatus.CANCELED, DAYS[:2])
    before = deltalake.DeltaTable(str(place.lake.path())).version()
    done = place.run("resume", ORDERS, "--json")
    assert done.exit_code == 0, done.output
    assert deltalake.DeltaTable(str(place.lake.path())).version() == before + len(DAYS[2:])
    assert place.lake.content() == multiset([row for day in DAYS for row in orders(day, 4)])


@pytest.mark.prove
def test_what_is_left_of_a_rewrite_is_rewritten(tmp_path):
    """That it is in the table already is no reason to leave it out: only what this launch has published is.

    What the source is not complete for is not called done.
    """
    place = new_place(tmp_path)
    for day in DAYS:
        place.lake.export(day, orders(day, 4))
    with place.instance() as place.lake.instance:
        assert place.lake.launch(DAYS[0], DAYS[-1]).succeeded
        place.lake.export(DAYS[2], orders(DAYS[2], 1))
        ended = place.lake.launch(
            DAYS[0], "2024-01-06", rewrite_identical=True, max_partitions_per_chunk=1, max_refused=1, reason="new data"
        )
        assert (ended.succeeded, ended.recorded()) == (False, DAYS[:2])
    place.lake.export(DAYS[2], orders(DAYS[2], 4))
    before = deltalake.DeltaTable(str(place.lake.path())).version()

    done = place.run("resume", ORDERS, "--json")
    assert done.exit_code == 1, done.output
    run_id, failure = (json.loads(done.stdout)[name] for name in ("run_id", "failure"))
    assert "2 from `2024-01-05` to `2024-01-06`: the source is not complete for them yet" in failure
    with place.instance() as instance:
        run = instance.get_run_by_id(run_id)
    assert (run.parent_run_id, run.root_run_id) == (ended.run.run_id, ended.run.run_id)
    assert deltalake.DeltaTable(str(place.lake.path())).version() == before + len(DAYS[2:])
    told = json.loads(place.run("history", ORDERS, "--json", "--newest", "1").stdout)["operations"]
    assert [(one["run_id"], one["partitions"], one["reason"]) for one in told] == [(run_id, DAYS[2:], "new data")]


def test_a_flow_that_failed_is_launched_again_instead(tmp_path):
    """It names no range; an ordinary launch of its partitions would not complete it."""
    place = new_place(tmp_path, once={"years": [2024]})
    flow = dg.AssetKey(["bronze", "orders_2024"])
    job = place.lake.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={flow})
    with place.instance() as instance:
        instance.create_run_for_job(job, asset_selection=job.asset_selection, status=dg.DagsterRunStatus.FAILURE)
    refused = place.run("resume", ORDERS)
    assert refused.exit_code == 2
    assert "Launch `bronze/orders_2024` again: it continues." in " ".join(refused.output.split())


@pytest.mark.prove
def test_a_launch_that_discards_rows_is_not_resumed(tmp_path):
    """That was said of what was history then: a day that was sealed since may have live rows that its export lacks."""
    place = new_place(tmp_path)
    place.lake.export(DAYS[0], orders(DAYS[0], 4))
    with place.instance() as place.lake.instance:
        assert place.lake.launch(DAYS[0], DAYS[0]).succeeded
        place.lake.export(DAYS[0], orders(DAYS[0], 1))
        assert not place.lake.launch(DAYS[0], DAYS[0], discard_uncovered_rows=True).succeeded
    refused = place.run("resume", ORDERS)
    assert refused.exit_code == 2
    assert "would discard those of days that were sealed since then too" in " ".join(refused.output.split())
