"""The live stream of a spec: what is left out, and what cannot be."""

from __future__ import annotations

import pytest

from tests.core.spec.specs import refusal_of, spec

LIVE = {"path": "events", "starts": "2024-03-01"}
FOLDING = {"key_columns": ["order_id"], "latest_wins_by": ["created_at"]}


def live_spec(live=LIVE, **changes):
    return spec(**{**FOLDING, **changes}, live=live)


@pytest.mark.parametrize("late", ["keep", "ignore"])
def test_late_rows_that_are_not_folded_need_no_key(late):
    """Only folding needs a key and an order; a table without them can keep or ignore what comes late."""
    live = spec(live={**LIVE, "late": late}).live
    assert live.late == late


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
        ({"starts": "2023-12-31"}, {}, "live.starts: `2023-12-31` lies before the table's start, `2024-01-01`"),
        ({}, {"latest_wins_by": []}, NO_FOLD),
        (
            {"late": "keep"}, {"columns": {"order_id": "bigint", "created_at": "date"}},
            "live: the event time `created_at` must be a `timestamp`",
        ),
        ({"timestamps_without_zone": "Europe/Berln"}, {}, "there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?"),
        ({"trigger_seconds": 0}, {}, "Input should be greater than 0"),
        ({"silent_after_seconds": 119}, {}, "Input should be greater than or equal to 120"),
    ],
)  # fmt: skip
def test_a_live_block_that_cannot_be_is_refused(live, changes, message):
    """Each contradiction between the stream and its table is named with the value and what would be right."""
    assert refusal_of(live_spec, {**LIVE, **live}, **changes) == message
