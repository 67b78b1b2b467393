"""Alerts on their way: to a real HTTP server that is slow, away, or does not like what it gets."""

from __future__ import annotations

import pytest

from backfill_assets.errors import AlertError, ConfigurationError
from backfill_assets.runs import alerts
from backfill_assets.runs.alert_hook import ALERTS_URL, post
from tests.support.alert_office import DAY, NEXT, TABLE, Office
from tests.support.alert_receiver import Receiver


@pytest.mark.prove
def test_hundreds_of_runs_that_fail_at_once_are_all_told(
    office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """Page by page, each once, and whatever fails later too; old failures that are only tagged fill no page."""
    monkeypatch.setattr(alerts, "_AT_ONCE", 4)
    old = [office.run_that_fails() for _ in range(6)]
    office.tick()
    for run in old:
        office.instance.add_run_tags(run.run_id, {"seen": "yes"})
    failed = [office.run_that_fails() for _ in range(11)]
    for _ in range(3):
        office.tick()
    failed.append(office.run_that_fails())
    office.tick()
    assert [body["run_id"] for body in receiver.bodies] == [run.run_id for run in failed]


def test_a_slow_receiver_is_told_over_several_looks(
    office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """A tick ends in time, what it has told is remembered, and the next goes on with the rest."""
    office.tick()
    failed = [office.run_that_fails() for _ in range(3)]
    monkeypatch.setattr("backfill_assets.assets.alerts.POSTING_SECONDS", -1.0)
    assert "The rest is told at the next look. 0 of 3" in office.tick()
    monkeypatch.setattr("backfill_assets.assets.alerts.POSTING_SECONDS", 20.0)
    office.tick()
    office.tick()
    assert sorted(body["run_id"] for body in receiver.bodies) == sorted(run.run_id for run in failed)


def test_a_redirect_takes_no_alert(office: Office, receiver: Receiver):
    """What is sent elsewhere would arrive without its body, or at a page to log in."""
    office.tick()
    office.run_that_fails()
    receiver.answers = [302]
    assert "did not take an alert: it answered 302, at attempt 1" in office.tick()
    office.tick()
    assert receiver.news() == [("run_failed", "open", TABLE)]


def test_one_that_is_refused_keeps_no_other_back(office: Office, receiver: Receiver):
    """A receiver that does not like one body is there for the others; and no sentence is longer than it may be."""
    office.tick()
    office.run_that_fails("x" * 100_000)
    office.check(False, partition=DAY)
    receiver.answers = [413]
    office.tick()
    assert receiver.news() == [("check_failed", "open", TABLE)]
    office.tick()
    assert len(receiver.bodies[0]["what"]) == 2_000


def test_each_outage_has_keys_of_its_own(office: Office, receiver: Receiver):
    """Open, over, and open again are three posts; tried again after a failure, one."""
    office.tick()
    for lag in (21.0, 5.0, 21.0):
        office.batch(lag=lag)
        receiver.answers = [400]
        office.tick()
        office.tick()
    assert receiver.news() == [("stream_lags", state, TABLE) for state in ("open", "over", "open")]
    assert (len(receiver.keys), len(set(receiver.keys))) == (6, 3)


def test_what_is_said_again_has_another_key(office: Office, receiver: Receiver):
    """A day differs, then another one too, then the first alone: who drops keys that he knows would not hear the last."""
    office.tick()
    for day, passed in ((DAY, False), (NEXT, False), (NEXT, True)):
        office.check(passed, partition=day)
        receiver.answers = [400]
        office.tick()
        office.tick()
    assert [body["partitions"] for body in receiver.bodies] == [[DAY], [DAY, NEXT], [DAY]]
    assert [receiver.keys.count(body["id"]) for body in receiver.bodies] == [2, 2, 2]


def test_a_damaged_memory_is_a_new_one(office: Office, receiver: Receiver):
    """Nobody is told twice of what was before, and the sensor goes on."""
    office.run_that_fails()
    office.cursor = '{"open": 7}'
    assert office.tick() == "0 alerts were told; 0 are open."


@pytest.mark.prove
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
    for wrong in ("ftp://host/", "https://[bad/", "https://user:pw@host/", "https://höst/"):
        monkeypatch.setenv(ALERTS_URL, f"{wrong}a-secret-token")
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
