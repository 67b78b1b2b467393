"""Alerts: told once, again when they change, and once more when they are over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.state.alerts import Alert, AlertKind, AlertMemory, lag, news, silence
from tests.support.docstring_tables import table_of

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
ALERT = Alert(AlertKind.CHECK_FAILED, "check", "3 partitions differ.", "bronze/orders", partitions=("2024-02-29",))


@pytest.mark.parametrize("row", table_of(news), ids=lambda row: " ".join(row.values()))
def test_what_is_told_is_what_the_docstring_says(row):
    """Every row of the table of cases."""
    told = {ALERT.name: ALERT} if row["told"] == "yes" else {}
    now = {"yes": [ALERT], "the same": [replace(ALERT, what="In other words.")], "no": []}
    now["changed"] = [replace(ALERT, partitions=("2024-02-29", "2024-03-01"))]
    opened, over = news(told, now[row["found"]], {ALERT.name} if row["looked at"] == "yes" else set())
    assert (bool(opened), bool(over)) == (row["told now"] == "open", row["told now"] == "over")


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y"])), max_size=12))
def test_whoever_listens_knows_what_is_so(steps):
    """After any history, what was told last of each subject is how it is; and nothing is told twice in a row."""
    told: dict[str, Alert] = {}
    heard: dict[str, str] = {}
    for subject, details in steps:
        alert = replace(ALERT, subject=subject, details=details)
        opened, over = news(told, [alert] if details else [], {alert.name})
        for each in opened:
            assert heard.get(each.subject) != each.alert_id
            told[each.name], heard[each.subject] = each, each.alert_id
        for each in over:
            del told[each.name], heard[each.subject]
        assert heard.get(subject) == (alert.alert_id if details else None)


@pytest.mark.parametrize("untold", [0, 29], ids=["told at once", "told of an earlier batch"])
@pytest.mark.parametrize("phase", [1, 15, 30])
@pytest.mark.parametrize("silent_after", [120, 900])
def test_silence_is_told_within_its_time(silent_after, phase, untold):
    """Whenever the sensor looks, and whatever the writer had not told yet: never later, and not while it writes."""
    told = NOW - timedelta(seconds=untold)
    looks = [NOW + timedelta(seconds=phase + 30 * n) for n in range(40)]
    late = {"silent_after_seconds": silent_after, "known_every": 60}
    found = next(at for at in looks if silence("bronze/orders", told, at, **late))
    assert timedelta(seconds=30) < found - NOW <= timedelta(seconds=silent_after)
    assert silence("bronze/orders", None, looks[-1], **late) is None
    alert = silence("bronze/orders", told, looks[-1], **late)
    assert (alert.kind, alert.since) == (AlertKind.STREAM_SILENT, told.isoformat())


@pytest.mark.parametrize(
    ("seconds", "most", "lags"), [(61, 60, True), (60, 60, False), (61, None, False), (None, 60, False)]
)
def test_a_stream_lags_behind_its_target(seconds, most, lags):
    """Only where the spec names one, and only where a batch had a file."""
    assert (lag("bronze/orders", seconds, most) is not None) is lags


def test_what_was_told_is_remembered_as_text():
    """A sensor's cursor is text; an empty one is no memory."""
    told = AlertMemory({ALERT.name: ALERT}, "2025-06-01T12:00:00+00:00", "2025-06-01T12:00:00+00:00", {"run": "then"})
    assert AlertMemory.from_json(told.to_json()) == told
    for nothing in (None, "", "{", '{"open": 7}'):
        assert AlertMemory.from_json(nothing) == AlertMemory()


def test_what_is_posted_has_everything_and_no_more():
    """The id says whether it is the same as before; a newer count of seconds in words does not change it."""
    body = ALERT.to_body(NOW, began="then")
    assert body == {
        "id": body["id"],
        "project": "",
        "kind": "check_failed",
        "state": "open",
        "table": "bronze/orders",
        "subject": "check",
        "what": "3 partitions differ.",
        "since": "",
        "run_id": "",
        "partitions": ["2024-02-29"],
        "at": "2025-06-01T12:00:00+00:00",
    }
    assert replace(ALERT, what="3 partitions still differ.").to_body(NOW, began="then")["id"] == body["id"]
    over = ALERT.to_body(NOW, began="then", is_over=True)
    assert over["state"] == "over"
    others = ALERT.to_body(NOW, began="later"), ALERT.to_body(NOW, began="then", project="shop")
    assert len({body["id"], over["id"], *(other["id"] for other in others)}) == 4
