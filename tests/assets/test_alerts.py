"""The sensor that posts what is wrong, over Dagster's own history and to a real HTTP server."""

from __future__ import annotations

import logging
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets import build_lakehouse_table, lakehouse_definitions
from backfill_assets.assets import alerts
from backfill_assets.assets.alerts import ALERTS_URL, Message, Problem, messages
from backfill_assets.runs.killed import process_tags
from tests.support.alert_office import DAY, KEY, LIVE, NEXT, TABLE, Office
from tests.support.alert_receiver import Receiver
from tests.support.shop import orders_spec

SECRET = "a-secret-token"
NOTHING_NEW = "0 of 0 messages were accepted."


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")), st.sets(st.sampled_from("abc"))))
)
def test_whoever_listens_knows_what_is_so(looks):
    """Whatever was refused before: once all is accepted, the receiver knows the problems, and heard nothing twice in a row."""
    accepted: dict[str, Message] = {}
    heard: dict[str, str] = {}
    ids: list[str] = []
    for problems, refused in [*looks, (looks[-1][0] if looks else {}, set())]:
        found = {name: Problem("check_failed", name, "", what) for name, what in problems.items()}
        for name, message in messages(found, accepted).items():
            if name not in refused:
                now = "" if message.is_over else message.problem.what
                assert heard.get(name, "") != now
                heard[name], accepted[name] = now, message
                ids.append(message.id)
    assert {name: what for name, what in heard.items() if what} == (looks[-1][0] if looks else {})
    assert len(set(ids)) == len(ids)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_without_a_url_nobody_is_told(office: Office):
    """The tick says so, and remembers nothing: whoever names a URL later is told of what happens from then on."""
    office.run_that_fails()
    assert office.tick() == f"{ALERTS_URL} is not set: nobody is notified."
    assert office.cursor is None


def test_a_run_that_was_killed_has_failed(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """Also without a URL: it would keep the launches that are queued from beginning."""
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


def test_a_run_that_fails_is_told_once(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """With why, in the run's own words; neither runs from before the first look, nor one that is tagged later."""
    office.run_that_fails("an old failure")
    assert office.tick() == NOTHING_NEW
    run = office.run_that_fails("The disk is full.")
    assert office.tick() == "1 of 1 messages were accepted."
    (body,) = receiver.bodies
    assert (body["kind"], body["subject"], body["table"]) == ("run_failed", run.run_id, TABLE)
    assert body["what"] == f"Run {run.run_id} of `{TABLE}` failed: The disk is full."
    for seconds in (0, 3600, 7200):
        later(monkeypatch, seconds)
        office.instance.add_run_tags(run.run_id, {"seen": str(seconds)})
        assert office.tick() == NOTHING_NEW
    assert run.run_id not in office.cursor, "nothing is kept of what is long over"


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
    for each in (office, other):
        each.tick()
    assert [(body["project"], body["subject"]) for body in receiver.bodies] == [
        ("", mine.run_id),
        ("shop", theirs.run_id),
    ]


def test_retried_refusal_is_told_once(office: Office, receiver: Receiver):
    """The check of the refused days notifies: again of another day, and when all have passed, but of no retry."""
    office.tick()
    repeated = "keys_are_unique: 1 row repeats a key."
    for refused in ({DAY: repeated}, {DAY: repeated}, {DAY: repeated, NEXT: repeated}, {NEXT: repeated}):
        office.refused(refused)
        office.tick()
    assert [body["partitions"] for body in receiver.bodies] == [[DAY], [DAY, NEXT]]
    assert receiver.news() == [("check_failed", "open", TABLE)] * 2
    office.refused({NEXT: repeated}, killed=True)
    office.tick()
    assert receiver.news() == [("run_failed", "open", TABLE)], "not only partitions were refused"
    for day in (DAY, NEXT):
        office.check(True, partition=day)
    office.tick()
    assert receiver.news() == [("check_failed", "over", TABLE)]


# -- checks ------------------------------------------------------------------------------------------------------------


def test_a_check_that_fails_is_told_until_it_changes(office: Office, receiver: Receiver):
    """Once; again when another partition differs; and once more when it is over."""
    office.tick()
    office.check(False, partition=DAY)
    assert [office.tick() for _ in range(2)] == ["1 of 1 messages were accepted.", NOTHING_NEW]
    office.check(False, partition=DAY)  # found again, the same
    assert office.tick() == NOTHING_NEW
    office.check(False, partition=NEXT)
    office.tick()
    office.check(True, partition=DAY)
    office.check(True, partition=NEXT)
    office.tick()
    assert [body["partitions"] for body in receiver.bodies] == [[DAY], [DAY, NEXT], [DAY, NEXT]]
    assert receiver.news() == [("check_failed", state, TABLE) for state in ("open", "open", "over")]


def test_a_failed_check_of_a_run_that_was_made_before_another_is_told(office: Office, receiver: Receiver):
    """Two launches side by side, of days of their own: the one that was made first ends last."""
    office.tick()
    for passed in (False, True):
        first, second = (office.planned(day) for day in (DAY, NEXT))
        office.check(True, partition=NEXT, run=second)
        office.tick()
        office.check(passed, partition=DAY, run=first)
        office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE), ("check_failed", "over", TABLE)]


def test_a_gap_is_told_until_it_changes(office: Office, receiver: Receiver):
    """By which partitions are not reconciled, not by when somebody looked; and behind a check that was only planned."""
    office.tick()
    job = office.definitions.resolve_job_def("reconciliation_job")
    for days in ((DAY,), (DAY,), (NEXT,), ()):
        office.gaps(*days)
        office.instance.create_run_for_job(job, asset_selection=job.asset_selection)
        office.tick()
    assert [body["partitions"] for body in receiver.bodies] == [[DAY], [NEXT], [NEXT]]
    assert receiver.news() == [("gap_found", state, TABLE) for state in ("open", "open", "over")]


def test_a_warning_is_no_alert(office: Office, receiver: Receiver):
    """What waits for a launch is shown in Dagster, and wakes nobody."""
    office.tick()
    office.check(False, asset=LIVE, name="late_rows_are_folded", severity=dg.AssetCheckSeverity.WARN)
    office.tick()
    assert receiver.news() == []
    office.check(False, asset=LIVE, name="no_gap_at_fence", description="1 partition is missing.")
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE)]


def test_alerts_of_a_table_that_is_gone_are_over(office: Office, receiver: Receiver):
    """Nobody would ever evaluate its checks again."""
    office.tick()
    office.check(False, partition=DAY)
    office.tick()
    office.definitions = lakehouse_definitions(build_lakehouse_table(orders_spec(key="bronze/others")))
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE), ("check_failed", "over", TABLE)]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_that_falls_silent_is_told_once(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """Within its time, without any run or check; not before it has begun; and when it writes again."""
    later(monkeypatch, 100_000)
    office.tick()
    later(monkeypatch, 0)
    office.batch()
    later(monkeypatch, 58)
    assert office.tick() == NOTHING_NEW, "a writer tells of its batches every 30 s, and is looked at every 30"
    later(monkeypatch, 61)
    office.tick()
    office.tick()
    assert receiver.news() == [("stream_silent", "open", TABLE)]
    later(monkeypatch, 0)
    office.batch()
    office.tick()
    assert receiver.news() == [("stream_silent", "over", TABLE)]


def test_the_last_batches_are_as_old_as_they_are(office: Office, receiver: Receiver):
    """A writer that ends, or a schedule that finds nothing new, tells of a batch long after it was written."""
    office.tick()
    office.batch(batches=0)
    assert office.tick() == NOTHING_NEW, "it has not begun"
    written = datetime.now(UTC) - timedelta(seconds=300)
    office.batch(written=written)
    office.tick()
    assert receiver.news() == [("stream_silent", "open", TABLE)]
    office.batch(batches=0, written=written)
    assert office.tick() == NOTHING_NEW
    office.batch(written=datetime.now(UTC))
    office.tick()
    assert receiver.news() == [("stream_silent", "over", TABLE)]


def test_a_stream_that_lags_is_told(office: Office, receiver: Receiver):
    """Once, however far it lags; and again after it had caught up."""
    office.tick()
    for lag in (21.0, 30.0, 5.0, 21.0):
        office.batch(lag=lag)
        office.tick()
    assert receiver.news() == [("stream_lags", state, TABLE) for state in ("open", "over", "open")]


# -- delivery ----------------------------------------------------------------------------------------------------------


def test_a_receiver_that_is_away_is_told_later(office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    """However long that takes, and nothing twice."""
    office.tick()
    failed = {office.run_that_fails(f"{n}").run_id for n in range(3)}
    monkeypatch.setenv(ALERTS_URL, "http://127.0.0.1:9/")
    said = "0 of 3 messages were accepted; the others are posted again at the next look: ConnectionRefusedError."
    for hours in (0, 20, 40):
        later(monkeypatch, 3600 * hours)
        assert office.tick() == said
    monkeypatch.setenv(ALERTS_URL, receiver.url)
    receiver.answers = [503, 0]
    assert office.tick().startswith("1 of 3 messages were accepted; ")
    assert office.tick() == "2 of 2 messages were accepted."
    assert office.tick() == NOTHING_NEW
    assert {body["subject"] for body in receiver.bodies} == failed
    assert (len(receiver.bodies), len(receiver.keys), len(set(receiver.keys))) == (3, 5, 3)


def test_a_slow_receiver_is_told_over_several_looks(
    office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """A look ends in time, what it has told is remembered, and the next goes on with the rest."""
    office.tick()
    office.run_that_fails()
    monkeypatch.setattr(alerts, "POSTING_SECONDS", -1.0)
    assert office.tick().endswith("the others are posted again at the next look: there was no time.")
    monkeypatch.undo()
    monkeypatch.setenv(ALERTS_URL, receiver.url)
    assert office.tick() == "1 of 1 messages were accepted."


def test_a_redirect_takes_no_alert(office: Office, receiver: Receiver):
    """It would arrive elsewhere without its body, or at a page to log in."""
    office.tick()
    office.run_that_fails()
    receiver.answers = [301, 302, 303, 307, 308]
    for code in list(receiver.answers):
        assert office.tick().endswith(f"the receiver answered {code}.")
    assert office.tick() == "1 of 1 messages were accepted."


def test_one_that_is_refused_keeps_no_other_back(office: Office, receiver: Receiver):
    """Whichever it is; and no sentence is longer than it may be."""
    office.tick()
    office.run_that_fails("x" * 100_000)
    office.check(False, partition=DAY)
    for _ in range(8):
        receiver.answers = [413]
        assert office.tick().startswith(("1 of 2", "0 of 1"))
    office.tick()
    assert sorted(body["kind"] for body in receiver.bodies) == ["check_failed", "run_failed"]
    assert max(len(body["what"]) for body in receiver.bodies) == 2_000


def test_what_is_said_again_has_another_key(office: Office, receiver: Receiver):
    """A day differs, then another one too, then the first alone; a post that is tried again has the key that it had."""
    office.tick()
    for day, passed in ((DAY, False), (NEXT, False), (NEXT, True)):
        office.check(passed, partition=day)
        receiver.answers = [400]
        office.tick()
        office.tick()
    assert [body["partitions"] for body in receiver.bodies] == [[DAY], [DAY, NEXT], [DAY]]
    assert [receiver.keys.count(body["id"]) for body in receiver.bodies] == [2, 2, 2]


def test_a_damaged_memory_is_a_new_one(office: Office, receiver: Receiver):
    """Nobody is told of runs that failed before, and the sensor goes on."""
    office.run_that_fails()
    office.cursor = '{"open": 7}'
    assert office.tick() == NOTHING_NEW


def test_a_url_is_a_secret(
    office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """No message, no log of any library and no cursor has a part of it, whatever is wrong with it."""
    caplog.set_level(logging.DEBUG)
    office.tick()
    office.run_that_fails()
    receiver.answers = [404, 0]
    said = [office.tick(), office.tick()]
    for wrong in (
        "ftp://host/",
        "file:///",
        "https://[bad/",
        "http://user:pw@127.0.0.1:9/",
        "https://h st/",
        "http://",
        "",
    ):
        monkeypatch.setenv(ALERTS_URL, f"{wrong}{SECRET}")
        said.append(office.tick())
    assert all(one.startswith("0 of 1 messages") for one in said), said
    monkeypatch.setenv(ALERTS_URL, receiver.url)
    said.append(office.tick())
    assert said[-1] == "1 of 1 messages were accepted."
    assert SECRET in receiver.url
    assert SECRET not in "".join([*said, str(office.cursor), caplog.text, str(receiver.bodies)])


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the sensor's clock be ahead."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(UTC) + timedelta(seconds=seconds)

    monkeypatch.setattr(alerts, "datetime", Clock)
