"""The sensor that tells somebody, over Dagster's own history and a real HTTP server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets.reconciliation import RECONCILIATION, check_name
from backfill_assets.errors import AlertError, ConfigurationError
from backfill_assets.runs import alert_hook
from backfill_assets.runs.alert_hook import ALERTS_URL, post
from backfill_assets.runs.killed import process_tags
from tests.support.alert_receiver import Receiver, receiving
from tests.support.shop import orders_spec

TABLE, DAY, NEXT = "bronze/orders", "2024-01-01", "2024-01-02"
KEY, LIVE = dg.AssetKey(["bronze", "orders"]), dg.AssetKey(["bronze", "orders_live"])
STREAM = {"path": "events", "starts": "2024-06-01", "silent_after_seconds": 60, "max_lag_seconds": 20}
SPEC = orders_spec(latest_wins_by=["ordered_at"], live=STREAM)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        monkeypatch.setenv(ALERTS_URL, made.url)
        monkeypatch.setattr(alert_hook.time, "sleep", lambda _: None)
        yield made


class Office:
    """A Dagster instance, and the sensor, tick after tick, with the cursor that Dagster keeps for it."""

    def __init__(self, instance: dg.DagsterInstance):
        self.instance, self.cursor = instance, None
        self.definitions = lakehouse_definitions(build_lakehouse_table(SPEC))

    def tick(self) -> str:
        sensor = self.definitions.resolve_sensor_def("alerts")
        context = dg.build_sensor_context(self.instance, cursor=self.cursor)
        data = sensor.evaluate_tick(context)
        self.cursor = data.cursor
        return str(data.skip_message)

    def run_that_fails(self, why: str = "") -> dg.DagsterRun:
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        run = self.instance.create_run_for_job(job, asset_selection={KEY}, status=dg.DagsterRunStatus.STARTED)
        self.instance.report_run_failed(run, why or None)
        return run

    def check(self, passed: bool, *, asset: dg.AssetKey = KEY, name: str = "reconciled", **more: Any) -> None:
        severity = more.pop("severity", dg.AssetCheckSeverity.ERROR)
        evaluation = dg.AssetCheckEvaluation(
            asset_key=asset, check_name=name, passed=passed, severity=severity, **{"metadata": {"rows": 1}, **more}
        )
        job = self.definitions.resolve_job_def("launch_bronze_orders")
        run = self.instance.create_run_for_job(job, asset_selection=set())
        event = DagsterEvent("ASSET_CHECK_EVALUATION", job_name=run.job_name, event_specific_data=evaluation)
        self.instance.report_dagster_event(event, run.run_id)

    def gap(self, passed: bool, which: str = "") -> None:
        metadata = {"which": dg.MetadataValue.md(which), "unreconciled": len(which)}
        said = "1 of 3 partitions are not reconciled." if which else "All are."
        self.check(passed, asset=RECONCILIATION, name=check_name(TABLE), metadata=metadata, description=said)

    def batch(self, lag: float = 1.0, batches: int = 1) -> None:
        metadata = {"batches": batches, **({"lag_seconds": lag} if batches else {})}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(LIVE, metadata=metadata))


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield Office(instance)


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
    later(monkeypatch, 80)
    office.tick()
    assert receiver.news() == [], "a writer tells of its batches every 30 s"
    later(monkeypatch, 91)
    office.tick()
    office.tick()
    assert receiver.news() == [("stream_silent", "open", TABLE)]
    monkeypatch.undo()
    monkeypatch.setenv(ALERTS_URL, receiver.url)
    office.batch()
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


def test_a_receiver_that_is_away_is_told_later(office: Office, receiver: Receiver):
    """Three attempts; then at the next look, and nothing twice: what was taken is remembered."""
    office.tick()
    office.run_that_fails("first")
    office.check(False, partition=DAY)
    receiver.answers = [204, 500, 503, 429]
    assert "did not take an alert: it answered 429, at attempt 3" in office.tick()
    assert receiver.news() == [("run_failed", "open", TABLE)]
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE)]
    assert office.tick() == "0 alerts were told; 1 are open."


def test_a_url_is_a_secret(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """It is in no message, whatever is wrong with it, nor in the cursor."""
    office.tick()
    office.run_that_fails()
    receiver.answers = [404]
    said = office.tick()
    assert "it answered 404, at attempt 1" in said
    assert "a-secret-token" not in said + str(office.cursor)
    monkeypatch.setenv(ALERTS_URL, "ftp://host/a-secret-token")
    with pytest.raises(Exception, match="no URL that begins with") as caught:
        office.tick()
    assert "a-secret-token" not in str(caught.value)
    with pytest.raises(ConfigurationError):
        post("file:///etc/passwd", {"id": "1"})


def test_nobody_there_is_an_error():
    """A port that nobody listens at, after three attempts; the pauses grow."""
    slept: list[float] = []
    with pytest.raises(AlertError, match="`127.0.0.1` did not take an alert: ConnectionRefusedError, at attempt 3"):
        post("http://127.0.0.1:9/a-secret-token", {"id": "1"}, sleep=slept.append)
    assert slept == [1.0, 2.0]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the sensor's clock be ahead."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(UTC) + timedelta(seconds=seconds)

    monkeypatch.setattr("backfill_assets.assets.alerts.datetime", Clock)
