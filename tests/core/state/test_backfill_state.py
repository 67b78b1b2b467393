"""How far a backfill is: by its table of cases, and along the ways that a table's life can take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.state.backfill_state import BackfillState, backfill_state
from tests.support.docstring_tables import table_of

N, P, A, S, F, R, C = BackfillState
LEGAL = {
    N: {N, P, A, F, S},
    P: {P, A, S, F, N, R, C},
    A: {A, S, F, R, C, N},
    S: {S, P, A, R, C},
    F: {F, P, A, C, N, R},
    R: {R, P, A, C, F, S, N},
    C: {C, P, A, R, F, S, N},
}
"""Where a state can lead. What nobody launches neither waits nor runs, and nothing is complete before it was launched."""


@pytest.mark.parametrize("row", table_of(backfill_state), ids=lambda row: "-".join(row.values()))
def test_the_state_is_what_the_docstring_says(row):
    """Every row of the table of cases."""
    published, total, stale = (int(row[name]) for name in ("published", "of", "stale"))
    has_stopped = row["feed"] == "stopped"
    found = backfill_state(published, total, row["newest launch"], stale=stale, feed_has_stopped=has_stopped)
    assert found == row["state"]


EVENTS = st.lists(st.sampled_from(["queue", "start", "chunk", "end", "fail", "stop", "kill", "new day"]), max_size=30)


@given(EVENTS)
def test_states_follow_each_other_as_they_may(events):
    """Whatever happens to a table, a `kill -9` of its launch too, the next state is one that the one before leads to."""
    published, total, newest = 0, 3, "none"
    state = backfill_state(published, total, newest)
    for event in events:
        runs, waits = newest == "started", newest == "queued"
        if event == "new day":
            total += 1
        elif event == "queue" and not runs:
            newest = "queued"
        elif event == "start" and waits:
            newest = "started"
        elif event == "chunk" and runs:
            published = min(total, published + 2)
        elif event == "end" and runs:
            newest = "succeeded"
        elif event in ("fail", "kill") and runs:
            newest = "failed"
        elif event == "stop" and (runs or waits):
            newest = "canceled"
        then = backfill_state(published, total, newest)
        assert then in LEGAL[state], (event, state, then)
        assert (then is C) <= (published == total)
        assert (then in (P, A)) == (newest in ("queued", "started"))
        state = then
