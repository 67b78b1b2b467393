"""The live stream of a spec: what is left out, and what cannot be."""

from __future__ import annotations

from datetime import date

import pytest

from backfill_assets.core.spec.table import TableSpec
from tests.core.spec.specs import refusal_of, spec

LIVE = {"path": "events", "starts": "2024-03-01"}


FOLDING = {"key_columns": ["order_id"], "latest_wins_by": ["created_at"]}


def live_spec(live=LIVE, **changes):
    return spec(**{**FOLDING, **changes}, live=live)


def test_a_table_has_no_live_stream_unless_it_says_so():
    """Without a `live:` block there is no stream, and so no fence."""
    assert spec().live is None


def test_a_short_live_block_gets_plain_defaults():
    """A folder and a first day are enough: late rows are folded, and every wait and size has a plain value."""
    live = live_spec().live
    assert live is not None
    assert (live.path, live.starts, live.late) == ("events", date(2024, 3, 1), "fold")
    assert (live.trigger_seconds, live.max_files_per_trigger, live.max_future_seconds) == (10, 100, 3600)
    assert (live.silent_after_seconds, live.closed_after_seconds, live.max_publish_seconds) == (900, 900, 20)
    assert live.timestamps_without_zone is None


def test_a_live_block_survives_a_round_trip_through_json():
    """A spec with a stream that is written as JSON and read again is the same."""
    made = live_spec({**LIVE, "late": "keep", "timestamps_without_zone": "Asia/Kolkata", "trigger_seconds": 0.5})
    assert TableSpec.model_validate_json(made.model_dump_json(exclude_unset=True)) == made
    assert TableSpec.model_validate(made.model_dump(exclude_unset=True)) == made


@pytest.mark.parametrize("late", ["keep", "ignore"])
def test_late_rows_that_are_not_folded_need_no_key(late):
    """Only folding needs a key and an order; a table without them can keep or ignore what comes late."""
    live = spec(live={**LIVE, "late": late}).live
    assert live is not None
    assert live.late == late


@pytest.mark.parametrize("starts", ["2024-01-01", "2024-02-29", "2999-01-01"])
def test_a_stream_may_start_with_the_table_or_any_time_after(starts):
    """The first fence may be the table's start: then history has nothing until it is moved."""
    live = live_spec({**LIVE, "starts": starts}).live
    assert live is not None
    assert live.starts == date.fromisoformat(starts)


NO_FOLD = (
    "live.late: `fold` needs `key_columns` and `latest_wins_by`, else an event that is in the source too would count twice; "
    "use `late: keep` (reported) or `late: ignore`"
)


@pytest.mark.parametrize(
    ("live", "changes", "message"),
    [
        (
            {"starts": "2024-03-05"}, {"grain": "weekly"},
            "live.starts: `2024-03-05` is not the first day of a weekly partition; the one that holds it starts on `2024-03-04`",
        ),
        (
            {"starts": "2024-03-02"}, {"grain": "monthly"},
            "live.starts: `2024-03-02` is not the first day of a monthly partition; the one that holds it starts on `2024-03-01`",
        ),
        ({"starts": "2023-12-31"}, {}, "live.starts: `2023-12-31` lies before the table's start, `2024-01-01`"),
        ({}, {"key_columns": [], "latest_wins_by": []}, NO_FOLD),
        ({}, {"latest_wins_by": []}, NO_FOLD),
        (
            {"late": "keep"}, {"columns": {"order_id": "bigint", "created_at": "date"}},
            "live: the event time `created_at` must be a `timestamp`",
        ),
        ({"timestamps_without_zone": "Europe/Berln"}, {}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        ({"late": "drop"}, {}, "Input should be 'fold', 'keep' or 'ignore'"),
        ({"colour": "blue"}, {}, "Extra inputs are not permitted"),
        ({"trigger_seconds": 0}, {}, "Input should be greater than 0"),
        ({"max_files_per_trigger": 0}, {}, "Input should be greater than or equal to 1"),
        ({"max_future_seconds": -1}, {}, "Input should be greater than or equal to 0"),
        ({"silent_after_seconds": 119}, {}, "Input should be greater than or equal to 120"),
        ({"closed_after_seconds": -1}, {}, "Input should be greater than or equal to 0"),
        ({"max_publish_seconds": 0}, {}, "Input should be greater than 0"),
        ({"starts": "soon"}, {}, "Input should be a valid date or datetime, input is too short"),
    ],
)  # fmt: skip
def test_a_live_block_that_cannot_be_is_refused(live, changes, message):
    """Each contradiction between the stream and its table is named with the value and what would be right."""
    assert refusal_of(live_spec, {**LIVE, **live}, **changes) == message


@pytest.mark.parametrize("field", ["path", "starts"])
def test_a_live_block_says_where_and_from_when(field):
    """The folder and the first day have no default."""
    assert refusal_of(live_spec, {name: value for name, value in LIVE.items() if name != field}) == "Field required"
