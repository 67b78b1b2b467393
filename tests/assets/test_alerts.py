"""The sensor that tells somebody, over Dagster's own history and a real HTTP server."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.runs import alerts
from backfill_assets.runs.alert_hook import ALERTS_URL
from backfill_assets.runs.killed import process_tags
from tests.support.alert_office import DAY, KEY, LIVE, NEXT, TABLE, Office
from tests.support.alert_receiver import Receiver
from tests.support.shop import orders_spec


def test_without_a_url_nobody_is_told(office: Office):
    """The tick says so, and remembers nothing: whoever names a URL later is told of what happens from then on."""
    office.run_that_fails()
    assert office.tick() == f"{ALERTS_URL} is not set: nobody is told."
    assert office.cursor is None


def test_a_run_that_was_killed_has_failed(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """Also where nobody is told: it would keep the launches that are queued from beginning."""
    office.tick()
    job = office.definitions.resolve_job_def("launch_bronze_orders")
    for told in (True, False):
        run = office.instance.create_run_for_job(job, asset_selection={KEY}, status=dg.DagsterRunStatus.STARTED)
        ended = subprocess.Popen(["true"])
        tags = process_tags(run.run_id, ended.pid)
        ended.wait()
        office.instance.add_run_tags(run.run_id, tags)
        if not told:
            monkeypatch.delenv(ALERTS_URL)
        office.tick()
        (record,) = office.instance.get_run_records(dg.RunsFilter(run_ids=[run.run_id]))
        assert record.dagster_run.status == dg.DagsterRunStatus.FAILURE
        assert receiver.news() == ([("run_failed", "open", TABLE)] if told else [])


def test_a_run_that_fails_is_told_once(office: Office, receiver: Receiver):
    """With why, in the run's own words; runs from before the first look are old news."""
    office.run_that_fails("an old failure")
    assert office.tick() == "0 alerts were told; 0 are open."
    run = office.run_that_fails("The disk is full.")
    assert office.tick() == "1 alerts were told; 0 are open."
    (body,) = receiver.bodies
    assert (body["kind"], body["run_id"], body["table"]) == ("run_failed", run.run_id, TABLE)
    assert body["what"] == f"Run {run.run_id} of `{TABLE}` failed: The disk is full."
    office.instance.add_run_tags(run.run_id, {"seen": "yes"})  # a run that changes later has not failed again
    assert office.tick() == "0 alerts were told; 0 are open."


def test_another_projects_failures_are_not_told(office: Office, receiver: Receiver):
    """A run of assets that are not the project's, and one that another project has begun on a table of the same key."""
    other = Office(office.instance, "shop")
    for each in (office, other):
        each.tick()
    job = dg.Definitions(assets=[dg.asset(name="theirs")(lambda: None)]).resolve_implicit_global_asset_job_def()
    run = office.instance.create_run_for_job(job, asset_selection={dg.AssetKey("theirs")})
    office.instance.report_run_failed(run)
    mine = office.run_that_fails(begun=True)
    theirs = other.run_that_fails(begun=True)
    told = []
    for each in (office, other):
        each.tick()
        told.append([(body["project"], body["run_id"]) for body in receiver.bodies])
        receiver.bodies.clear()
    assert told == [[("", mine.run_id)], [("shop", theirs.run_id)]]


def test_a_projects_alerts_carry_its_name(office: Office, receiver: Receiver):
    """Two projects tell of the same gap under different ids."""
    other, ids = Office(office.instance, "shop"), []
    for each in (office, other):
        each.tick()
        each.gap(False, "| 2024-01-01 | missing |")
        each.tick()
        ids += [(body["project"], body["kind"], body["id"]) for body in receiver.bodies]
        receiver.bodies.clear()
    assert [one[:2] for one in ids] == [("", "gap_found"), ("shop", "gap_found")]
    assert ids[0][2] != ids[1][2]


def test_retried_refusal_is_told_once(office: Office, receiver: Receiver):
    """A retry of fewer days, or with other rows, is no news; another day, another reason, or a pass between is."""
    repeated, lacking = "keys_are_unique: 1 row repeats a key.", "schema_matches: `a/b` has no column `x`."

    def runs_told(whys: dict[str, str]) -> int:
        office.refused(whys)
        office.tick()
        return [kind for kind, _, _ in receiver.news()].count("run_failed")

    office.tick()
    assert runs_told({DAY: repeated, NEXT: repeated}) == 1
    assert runs_told({DAY: repeated, NEXT: repeated}) == 0
    assert runs_told({NEXT: "keys_are_unique: 12 rows repeat a key."}) == 0
    assert runs_told({DAY: repeated, "2024-01-03": repeated}) == 1
    assert runs_told({DAY: lacking}) == 1
    assert runs_told({DAY: lacking}) == 0
    office.check(True, partition=DAY)
    assert runs_told({DAY: lacking}) == 1


def test_other_failure_beside_a_refusal_is_told(office: Office, receiver: Receiver):
    """A run that fails for another reason is told whatever was refused before."""
    office.tick()
    office.refused({DAY: "keys_are_unique: 1 row repeats a key."})
    office.tick()
    office.run_that_fails("The disk is full.")
    office.tick()
    assert [kind for kind, _, _ in receiver.news()].count("run_failed") == 2


def test_a_check_that_fails_is_told_until_it_changes(office: Office, receiver: Receiver):
    """Once; again when another partition differs; and once more when it is over."""
    office.tick()
    office.check(False, partition=DAY)
    said = [office.tick() for _ in range(3)]
    assert said == ["1 alerts were told; 1 are open.", *["0 alerts were told; 1 are open."] * 2]
    assert receiver.bodies[0]["partitions"] == [DAY]
    assert receiver.news() == [("check_failed", "open", TABLE)]
    office.check(False, partition=DAY)  # found again, the same
    office.tick()
    assert receiver.news() == []
    office.check(False, partition=NEXT)
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE)]
    office.check(True, partition=DAY)
    office.check(True, partition=NEXT)
    office.tick()
    assert receiver.news() == [("check_failed", "over", TABLE)]


def test_a_failed_check_of_a_run_that_was_made_before_another_is_told(office: Office, receiver: Receiver):
    """Two launches side by side, of days of their own: the one that was made first ends last. And it is told when it is over."""
    office.tick()
    _side_by_side(office, passed=False)
    assert receiver.bodies[0]["partitions"] == [DAY]
    assert receiver.news() == [("check_failed", "open", TABLE)]
    _side_by_side(office, passed=True)
    assert receiver.news() == [("check_failed", "over", TABLE)]


def test_a_launch_that_begins_is_no_reason_to_look_at_what_was_compared(
    office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """Its evaluations come, and count when it has ended: what all partitions of all tables were found to be is long."""
    office.check(False, partition=DAY)
    office.tick()
    looked: list[str] = []
    monkeypatch.setattr(alerts, "failed_comparisons", lambda *_: looked.append("") or {})
    begins = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, job_name="launch_bronze_orders")
    office.instance.report_dagster_event(begins, office.planned(NEXT).run_id)
    office.tick()
    assert looked == []
    assert receiver.bodies


def _side_by_side(office: Office, *, passed: bool) -> None:
    """The launch that was made second ends first, and is looked at before the other one ends."""
    first, second = (office.planned(day) for day in (DAY, NEXT))
    office.check(True, partition=NEXT, run=second)
    office.tick()
    office.check(passed, partition=DAY, run=first)
    office.instance.report_run_canceled(first)
    office.tick()


def test_a_gap_is_told_until_it_changes(office: Office, receiver: Receiver):
    """By which partitions are not reconciled and why, not by when somebody looked."""
    office.tick()
    office.gap(False, "| 2024-01-01 | missing |")
    office.tick()
    office.gap(False, "| 2024-01-01 | missing |")
    office.tick()
    assert receiver.news() == [("gap_found", "open", TABLE)]
    office.gap(False, "| 2024-01-01 | stale |")
    office.tick()
    office.gap(True)
    office.tick()
    assert receiver.news() == [("gap_found", "open", TABLE), ("gap_found", "over", TABLE)]


def test_a_warning_is_no_alert(office: Office, receiver: Receiver):
    """What waits for a launch is shown in Dagster, and wakes nobody."""
    office.tick()
    office.check(False, asset=LIVE, name="late_rows_are_folded", severity=dg.AssetCheckSeverity.WARN)
    office.tick()
    assert receiver.news() == []
    office.check(False, asset=LIVE, name="no_gap_at_fence", description="1 partition is missing.")
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE)]


def test_a_stream_that_falls_silent_is_told_once(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """Within its time, without any run or check; and when it writes again that is told too."""
    office.tick()
    office.batch()
    later(monkeypatch, 58)
    office.tick()
    assert receiver.news() == [], "a writer tells of its batches every 30 s, and is looked at every 30"
    later(monkeypatch, 61)
    office.tick()
    office.tick()
    assert receiver.news() == [("stream_silent", "open", TABLE)]
    monkeypatch.undo()
    monkeypatch.setenv(ALERTS_URL, receiver.url)
    office.batch()
    office.tick()
    assert receiver.news() == [("stream_silent", "over", TABLE)]


def test_the_last_batches_are_as_old_as_they_are(office: Office, receiver: Receiver):
    """Of some a writer tells when it ends, long after it wrote them: that is no news of an outage that goes on."""
    office.tick()
    office.batch(written=datetime.now(UTC) - timedelta(seconds=300))
    office.tick()
    assert receiver.news() == [("stream_silent", "open", TABLE)]
    office.batch(written=datetime.now(UTC) - timedelta(seconds=290))
    office.tick()
    assert {standing for _, standing, _ in receiver.news()} <= {"open"}
    office.batch(written=datetime.now(UTC))
    office.tick()
    assert receiver.news() == [("stream_silent", "over", TABLE)]


def test_looking_every_minute_is_not_writing(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """A schedule that writes what has landed tells each time that nothing had: that is silence too."""
    office.tick()
    office.batch(batches=0)
    later(monkeypatch, 200)
    office.tick()
    assert receiver.news() == [], "it has not begun"
    office.batch()
    for _ in range(3):
        office.batch(batches=0)
    office.tick()
    assert receiver.news() == [("stream_silent", "open", TABLE)]
    office.batch(batches=0)
    office.tick()
    assert receiver.news() == [], "nothing has changed"


def test_a_stream_that_never_began_is_no_outage(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """Nobody is woken for a table that was made yesterday."""
    office.tick()
    later(monkeypatch, 100_000)
    office.tick()
    assert receiver.news() == []


def test_a_stream_that_lags_is_told(office: Office, receiver: Receiver):
    """Where the spec says how long what landed may wait."""
    office.tick()
    office.batch(lag=21.0)
    office.tick()
    office.batch(lag=5.0)
    office.tick()
    assert receiver.news() == [("stream_lags", "open", TABLE), ("stream_lags", "over", TABLE)]


def test_alerts_of_a_table_that_is_gone_are_over(office: Office, receiver: Receiver):
    """Nobody would ever evaluate its checks again."""
    office.tick()
    office.check(False, partition=DAY)
    office.tick()
    office.definitions = lakehouse_definitions(build_lakehouse_table(orders_spec(key="bronze/others")))
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE), ("check_failed", "over", TABLE)]


def test_a_failed_check_is_seen_behind_a_planned_one(office: Office, receiver: Receiver):
    """Somebody has asked for it again, and that has not ended, or never will."""
    office.tick()
    office.gap(False, "| 2024-01-01 | missing |")
    job = office.definitions.resolve_job_def("reconciliation_job")
    office.instance.create_run_for_job(job, asset_selection=job.asset_selection)
    office.tick()
    assert receiver.news() == [("gap_found", "open", TABLE)]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the sensor's clock be ahead."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(UTC) + timedelta(seconds=seconds)

    monkeypatch.setattr("backfill_assets.assets.alerts.datetime", Clock)
